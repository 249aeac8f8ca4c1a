package bench

import (
	"context"
	"math"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// Redsync is github.com/go-redsync/redsync.
var Redsync = Contender{
	Name:  "redsync",
	Role:  Peer,
	Setup: "one pool on go-redis; WithRetryDelay(1 ms) and no limit of tries",
	Sends: []string{"set", "setnx", "eval", "evalsha"},
	Open: func(_ context.Context, s *Stage) (Process, error) {
		rdb := s.client()
		return &redsyncProcess{rdb, redsync.New(goredis.NewPool(rdb)), s.Prefix + "redsync:"}, nil
	},
}

type redsyncProcess struct {
	rdb    redis.UniversalClient
	rs     *redsync.Redsync
	prefix string
}

func (p *redsyncProcess) Close() error { return p.rdb.Close() }

func (p *redsyncProcess) Mutex(_ context.Context, name string) (Locker, error) {
	return redsyncLocker{p.rs.NewMutex(p.prefix+name,
		redsync.WithExpiry(ttl), redsync.WithRetryDelay(retryDelay), redsync.WithTries(math.MaxInt))}, nil
}

type redsyncLocker struct{ m *redsync.Mutex }

func (l redsyncLocker) Lock(ctx context.Context) error { return l.m.LockContext(ctx) }

func (l redsyncLocker) Unlock(ctx context.Context) error {
	_, err := l.m.UnlockContext(ctx)
	return err
}
