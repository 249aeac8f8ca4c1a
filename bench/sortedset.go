package bench

import (
	"context"
	"crypto/rand"
	"math"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// SortedSet is what people write by hand where more than one may hold a lock.
var SortedSet = Contender{
	Name:  "sorted set",
	Role:  Limit,
	Setup: "go-redis; a script that adds its token to a sorted set with room, again after 1 ms; ZREM; no order of waiters",
	Sends: []string{"zrem", "eval", "evalsha"},
	Open: func(_ context.Context, s *Stage) (Process, error) {
		return &sortedSetProcess{s.client(), s.Prefix + "set:"}, nil
	},
}

type sortedSetProcess struct {
	rdb    redis.UniversalClient
	prefix string
}

func (p *sortedSetProcess) Close() error { return p.rdb.Close() }

func (p *sortedSetProcess) Mutex(ctx context.Context, name string) (Locker, error) {
	return p.Semaphore(name, 1), nil
}

func (p *sortedSetProcess) Semaphore(name string, limit int64) Locker {
	return &sortedSetLocker{p.rdb, []string{p.prefix + name}, rand.Text(), limit}
}

// RWMutex has readers only.
func (p *sortedSetProcess) RWMutex(_ context.Context, name string) (read, write Locker, err error) {
	return p.Semaphore(name, math.MaxInt32), nil, nil
}

type sortedSetLocker struct {
	rdb   redis.UniversalClient
	keys  []string
	token string
	limit int64
}

var sortedSetAcquire = redis.NewScript(`
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1`)

func (l *sortedSetLocker) Lock(ctx context.Context) error {
	for {
		n, err := sortedSetAcquire.Run(ctx, l.rdb, l.keys, l.token, l.limit, strconv.FormatInt(ttl.Milliseconds(), 10)).Int()
		if err != nil || n == 1 {
			return err
		}
		if err := sleep(ctx, retryDelay); err != nil {
			return err
		}
	}
}

func (l *sortedSetLocker) Unlock(ctx context.Context) error {
	return l.rdb.ZRem(ctx, l.keys[0], l.token).Err()
}
