package interop_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// peer is another program that takes part.
type peer struct {
	name string
	// try makes one attempt to get the lock, and returns nil if it is taken.
	try func(ctx context.Context, rdb *redis.Client, name string, ttl time.Duration) (peerLock, error)
}

// peerLock is what a peer holds.
type peerLock interface {
	extend(ctx context.Context) error
	unlock(ctx context.Context) error
}

var errNotTheirs = errors.New("the peer does not hold the lock")

var peers = []peer{
	{"redsync", func(ctx context.Context, rdb *redis.Client, name string, ttl time.Duration) (peerLock, error) {
		m := redsync.New(goredis.NewPool(rdb)).NewMutex(name, redsync.WithExpiry(ttl))
		err := m.TryLockContext(ctx)
		var taken *redsync.ErrTaken
		if errors.As(err, &taken) {
			return nil, nil
		}
		return redsyncLock{m}, err
	}},
	{"redislock", func(ctx context.Context, rdb *redis.Client, name string, ttl time.Duration) (peerLock, error) {
		l, err := redislock.Obtain(ctx, rdb, name, ttl, nil)
		if errors.Is(err, redislock.ErrNotObtained) {
			return nil, nil
		}
		return redislockLock{l, ttl}, err
	}},
	{"documentation", func(ctx context.Context, rdb *redis.Client, name string, ttl time.Duration) (peerLock, error) {
		l := plainLock{rdb, name, fmt.Sprintf("%016x", rand.Uint64()), ttl}
		err := rdb.Do(ctx, "SET", name, l.value, "NX", "PX", ttl.Milliseconds()).Err()
		if errors.Is(err, redis.Nil) {
			return nil, nil
		}
		return l, err
	}},
}

// eachPeer runs body with every peer.
func eachPeer(t *testing.T, body func(*testing.T, peer)) {
	for _, p := range peers {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			body(t, p)
		})
	}
}

type redsyncLock struct{ m *redsync.Mutex }

func (l redsyncLock) extend(ctx context.Context) error { return theirs(l.m.ExtendContext(ctx)) }
func (l redsyncLock) unlock(ctx context.Context) error { return theirs(l.m.UnlockContext(ctx)) }

func theirs(ok bool, err error) error {
	if !ok {
		return fmt.Errorf("%w: %w", errNotTheirs, err)
	}
	return err
}

type redislockLock struct {
	l   *redislock.Lock
	ttl time.Duration
}

func (l redislockLock) extend(ctx context.Context) error {
	if err := l.l.Refresh(ctx, l.ttl, nil); !errors.Is(err, redislock.ErrNotObtained) {
		return err
	}
	return errNotTheirs
}

func (l redislockLock) unlock(ctx context.Context) error {
	if err := l.l.Release(ctx); !errors.Is(err, redislock.ErrLockNotHeld) {
		return err
	}
	return errNotTheirs
}

// plainLock is the pattern as the documentation of Redis has it.
type plainLock struct {
	rdb         *redis.Client
	name, value string
	ttl         time.Duration
}

func (l plainLock) extend(ctx context.Context) error {
	return l.eval(ctx, `return redis.call("pexpire",KEYS[1],ARGV[2])`, l.value, l.ttl.Milliseconds())
}

func (l plainLock) unlock(ctx context.Context) error {
	return l.eval(ctx, `return redis.call("del",KEYS[1])`, l.value)
}

func (l plainLock) eval(ctx context.Context, action string, args ...any) error {
	text := `if redis.call("get",KEYS[1]) == ARGV[1] then ` + action + ` else return 0 end`
	n, err := l.rdb.Eval(ctx, text, []string{l.name}, args...).Int64()
	if err == nil && n == 0 {
		return errNotTheirs
	}
	return err
}
