package bench

import (
	"context"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// Redislock is github.com/bsm/redislock.
var Redislock = Contender{
	Name:  "redislock",
	Role:  Peer,
	Setup: "on go-redis; LinearBackoff(1 ms), a context with a deadline, without which it stops waiting after the TTL",
	Sends: scripts,
	Open: func(_ context.Context, s *Stage) (Process, error) {
		rdb := s.client()
		return &redislockProcess{rdb, redislock.New(rdb), s.Prefix + "redislock:"}, nil
	},
}

type redislockProcess struct {
	rdb    redis.UniversalClient
	locks  *redislock.Client
	prefix string
}

func (p *redislockProcess) Close() error { return p.rdb.Close() }

func (p *redislockProcess) Mutex(_ context.Context, name string) (Locker, error) {
	options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(retryDelay)}
	return &redislockLocker{locks: p.locks, key: p.prefix + name, options: options}, nil
}

type redislockLocker struct {
	locks   *redislock.Client
	key     string
	options *redislock.Options
	held    *redislock.Lock
}

func (l *redislockLocker) Lock(ctx context.Context) (err error) {
	l.held, err = l.locks.Obtain(ctx, l.key, ttl, l.options)
	return err
}

func (l *redislockLocker) Unlock(ctx context.Context) error { return l.held.Release(ctx) }
