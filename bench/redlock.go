package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/driver/redlock"
)

// HoldfastRedlock is this library over three servers.
var HoldfastRedlock = Contender{
	Name:  "holdfast redlock",
	Role:  Ours,
	Setup: "Open(redlock.New(three drivers, WithDelayedRestart(0))), as the servers are new; Lease and Release",
	Sends: scripts,
	Open: func(_ context.Context, s *Stage) (Process, error) {
		p := &redlockProcess{}
		var nodes []driver.Driver
		for _, addr := range s.three() {
			rdb := redis.NewClient(&redis.Options{Addr: addr})
			p.of = append(p.of, rdb)
			nodes = append(nodes, redisdriver.New(rdb, redisdriver.WithPrefix(s.Prefix+"holdfast")))
		}
		p.locks = holdfast.Open(redlock.New(nodes, redlock.WithDelayedRestart(0)))
		return p, nil
	},
}

type redlockProcess struct {
	holdfastProcess
	of servers
}

func (p *redlockProcess) Close() error { return errors.Join(p.locks.Close(), p.of.Close()) }

// RedsyncThree is github.com/go-redsync/redsync over three servers.
var RedsyncThree = Contender{
	Name:  "redsync of three",
	Role:  Peer,
	Setup: "three pools on go-redis; WithRetryDelay(1 ms) and no limit of tries",
	Sends: Redsync.Sends,
	Open: func(_ context.Context, s *Stage) (Process, error) {
		p := &redsyncThree{prefix: s.Prefix + "redsync:"}
		var pools []redsyncredis.Pool
		for _, addr := range s.three() {
			rdb := redis.NewClient(&redis.Options{Addr: addr})
			p.servers = append(p.servers, rdb)
			pools = append(pools, goredis.NewPool(rdb))
		}
		p.rs = redsync.New(pools...)
		return p, nil
	},
}

type redsyncThree struct {
	servers
	rs     *redsync.Redsync
	prefix string
}

func (p *redsyncThree) Mutex(_ context.Context, name string) (Locker, error) {
	return redsyncLocker{p.rs.NewMutex(p.prefix+name,
		redsync.WithExpiry(ttl), redsync.WithRetryDelay(retryDelay), redsync.WithTries(math.MaxInt))}, nil
}

// servers are clients of several.
type servers []*redis.Client

func (s servers) Close() error {
	var errs []error
	for _, rdb := range s {
		errs = append(errs, rdb.Close())
	}
	return errors.Join(errs...)
}

// Redlock are works where a lock is on a majority of three servers.
var Redlock = []Work{threeServers(1, 0), threeServers(8, time.Millisecond)}

func threeServers(n int, hold time.Duration) Work {
	st := mutexes(each(n)...)
	st.hold = hold
	return Work{
		Name:       fmt.Sprintf("Redlock/%d/hold=%v", n, hold),
		Title:      fmt.Sprintf("%d clients on one lock of three servers, held for %v", n, hold),
		About:      "The lock is on a majority of three servers of one machine, so each command takes time from all others.",
		Contenders: []Contender{HoldfastRedlock, RedsyncThree},
		Columns:    contended,
		Turns:      15,
		Time:       500 * time.Millisecond,
		Enter:      st.enter,
	}
}
