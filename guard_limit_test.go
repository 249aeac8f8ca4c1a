package holdfast_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// What the guard sees and what it cannot.

// An AutoPipeline sends commands of many callers at once, with a context of its own. The
// guard does not see where they come from, as its documentation says.
func TestGuardDoesNotSeeWhatAnAutoPipelineSends(t *testing.T) {
	s := redistest.Shared(t)
	l := newLab(t, s)
	rdb := s.Client(t)
	rdb.AddHook(holdfast.GuardHook())
	lease := l.lease(l.open(rdb), "x")
	l.giveBack(lease)
	held := context.WithoutCancel(lease.Context())
	key := s.Prefix() + ":value"
	require.ErrorIs(t, rdb.Set(held, key, "plain", time.Second).Err(), holdfast.ErrLost)

	pipe, err := rdb.AutoPipeline()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, pipe.Close()) })
	require.NoError(t, pipe.Set(held, key, "unguarded", time.Second).Err())
	assert.Equal(t, "unguarded", l.direct.Get(t.Context(), key).Val())
	// So who uses one asks the lease.
	require.ErrorIs(t, lease.Err(), holdfast.ErrNotHeld)
	l.until("the value is gone", func() bool { return l.direct.Exists(t.Context(), key).Val() == 0 })
}

// The lease is over by the clock before anybody has noticed: the guard looks at the clock.
func TestGuardLooksAtTheClock(t *testing.T) {
	hook := holdfast.GuardHook().ProcessHook(func(context.Context, redis.Cmder) error { return nil })
	inBubble(t, func(t *testing.T, l *lab) {
		lease := l.lease(l.near(), "x", holdfast.WithTTL(time.Second), holdfast.WithoutRenewal())
		cmd := redis.NewStatusCmd(t.Context(), "set", "value", "1")
		// A timer for the same moment runs before or after that of the client; either way
		// the lease is over.
		time.Sleep(time.Until(lease.Deadline()) - time.Nanosecond)
		require.NoError(t, hook(lease.Context(), cmd))
		time.Sleep(time.Nanosecond)
		require.ErrorIs(t, hook(lease.Context(), cmd), holdfast.ErrLost)
		require.ErrorIs(t, cmd.Err(), holdfast.ErrLost, "the command knows, too")
	})
}

// A context made with WithContext, or one that comes from several leases, is that of all
// of them.
func TestGuardSeesEveryLeaseOfAContext(t *testing.T) {
	c := withPuppet(t, puppet{})
	hook := holdfast.GuardHook().ProcessHook(func(context.Context, redis.Cmder) error { return nil })
	pass := func(ctx context.Context) error { return hook(ctx, redis.NewStatusCmd(ctx, "ping")) }
	lease := func(ctx context.Context, name string) *holdfast.Lease {
		l, err := c.Mutex(name).Lease(ctx)
		require.NoError(t, err)
		return l
	}
	outer := lease(t.Context(), "outer")
	middle := lease(outer.Context(), "middle")
	other := lease(t.Context(), "other")
	ctx := other.WithContext(middle.Context())
	require.NoError(t, pass(ctx))
	require.NoError(t, outer.Release(ctx))
	err := pass(ctx)
	require.ErrorIs(t, err, holdfast.ErrLost)
	require.ErrorContains(t, err, `holdfast: guard mutex "outer": lock lost: the lease was released`)
	require.ErrorIs(t, pass(middle.Context()), holdfast.ErrLost)
	require.NoError(t, pass(other.Context()))
	require.NoError(t, other.Release(ctx))
	require.ErrorIs(t, pass(other.Context()), holdfast.ErrLost)
}

// A lease within another goes on when that is over: the guard sees to commands of the
// program, not to renewals.
func TestGuardDoesNotStopRenewals(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		const ttl = time.Second
		rdb := l.s.Client(t)
		rdb.AddHook(holdfast.GuardHook())
		c := l.open(rdb, holdfast.WithTTL(ttl))
		outer := l.lease(c, "outer")
		inner, err := c.Mutex("inner").Lease(outer.Context())
		require.NoError(t, err)
		l.giveBack(outer)
		l.keeps(inner, 2*ttl)
		require.NoError(t, inner.Renew(inner.Context()))
		l.giveBack(inner)
	})
}

// The guard itself costs next to nothing, with a lease or without.
func TestGuardAllocatesNothing(t *testing.T) {
	c := withPuppet(t, puppet{})
	l, err := c.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	process := holdfast.GuardHook().ProcessHook(func(context.Context, redis.Cmder) error { return nil })
	pipeline := holdfast.GuardHook().ProcessPipelineHook(func(context.Context, []redis.Cmder) error { return nil })
	cmd := redis.NewStatusCmd(t.Context(), "ping")
	cmds := []redis.Cmder{cmd}
	for name, ctx := range map[string]context.Context{"without a lease": t.Context(), "with one": l.Context()} {
		assert.Zero(t, testing.AllocsPerRun(100, func() { _ = process(ctx, cmd) }), name)
		assert.Zero(t, testing.AllocsPerRun(100, func() { _ = pipeline(ctx, cmds) }), name)
	}
	require.NoError(t, l.Release(t.Context()))
}
