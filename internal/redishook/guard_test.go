package redishook_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// What the guard sees and what it cannot.

// An AutoPipeline sends commands of many callers at once, with a context of its own. The
// guard does not see where they come from, as its documentation says.
func TestGuardDoesNotSeeWhatAnAutoPipelineSends(t *testing.T) {
	s := redistest.Shared(t)
	l := lab.New(t, s)
	rdb := s.Client(t)
	rdb.AddHook(holdfast.GuardHook())
	lease := l.Lease(l.Open(rdb), "x")
	l.GiveBack(lease)
	held := context.WithoutCancel(lease.Context())
	key := s.Prefix() + ":value"
	require.ErrorIs(t, rdb.Set(held, key, "plain", time.Second).Err(), holdfast.ErrLost)

	pipe, err := rdb.AutoPipeline()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, pipe.Close()) })
	require.NoError(t, pipe.Set(held, key, "unguarded", time.Second).Err())
	assert.Equal(t, "unguarded", l.Direct.Get(t.Context(), key).Val())
	// So who uses one asks the lease.
	require.ErrorIs(t, lease.Err(), holdfast.ErrNotHeld)
	l.Until("the value is gone", func() bool { return l.Direct.Exists(t.Context(), key).Val() == 0 })
}

// The lease is over by the clock before anybody has noticed: the guard looks at the clock.
func TestGuardLooksAtTheClock(t *testing.T) {
	hook := holdfast.GuardHook().ProcessHook(func(context.Context, redis.Cmder) error { return nil })
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		lease := l.Lease(l.Near(), "x", holdfast.WithTTL(time.Second), holdfast.WithoutRenewal())
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
	c := lab.WithPuppet(t, lab.Puppet{})
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
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		const ttl = time.Second
		rdb := l.Server.Client(t)
		rdb.AddHook(holdfast.GuardHook())
		c := l.Open(rdb, holdfast.WithTTL(ttl))
		outer := l.Lease(c, "outer")
		inner, err := c.Mutex("inner").Lease(outer.Context())
		require.NoError(t, err)
		l.GiveBack(outer)
		l.Keeps(inner, 2*ttl)
		require.NoError(t, inner.Renew(inner.Context()))
		l.GiveBack(inner)
	})
}

// The guard itself costs next to nothing, with a lease or without.
func TestGuardAllocatesNothing(t *testing.T) {
	c := lab.WithPuppet(t, lab.Puppet{})
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

func TestGuardRefusesCommandsOfALeaseThatIsOver(t *testing.T) {
	redistest.OverCluster(t, func(t *testing.T, open func(func(*redis.Client)) redis.UniversalClient) {
		rdb := open(func(c *redis.Client) { c.AddHook(holdfast.GuardHook()) })
		locks := holdfast.New(rdb)
		defer locks.Close()
		ctx := t.Context()
		for name, end := range map[string]func(*holdfast.Lease){
			"released": func(l *holdfast.Lease) { require.NoError(t, l.Release(ctx)) },
			"lost": func(l *holdfast.Lease) {
				require.NoError(t, locks.Mutex("x").ForceUnlock(ctx))
				require.ErrorIs(t, l.Renew(ctx), holdfast.ErrLost)
			},
		} {
			l, err := locks.Mutex("x").Lease(ctx)
			require.NoError(t, err)
			held := context.WithoutCancel(l.Context()) // it is the lease that counts
			require.NoError(t, rdb.Set(held, "value", "held", 0).Err(), name)
			inner, err := locks.Mutex("inner").Lease(held)
			require.NoError(t, err)
			within := context.WithoutCancel(inner.Context())
			end(l)

			require.ErrorIs(t, rdb.Set(held, "value", name, 0).Err(), holdfast.ErrLost)
			require.ErrorIs(t, rdb.Set(within, "value", name, 0).Err(), holdfast.ErrLost, "also within another")
			cmds, err := rdb.Pipelined(held, func(p redis.Pipeliner) error {
				p.Set(held, "value", name, 0)
				p.Get(held, "value")
				return nil
			})
			require.ErrorIs(t, err, holdfast.ErrLost)
			for _, cmd := range cmds {
				require.ErrorIs(t, cmd.Err(), holdfast.ErrLost)
			}
			_, err = rdb.TxPipelined(held, func(p redis.Pipeliner) error { return p.Set(held, "value", name, 0).Err() })
			require.ErrorIs(t, err, holdfast.ErrLost)
			err = rdb.Watch(held, func(tx *redis.Tx) error { return tx.Set(held, "value", name, 0).Err() }, "value")
			require.ErrorIs(t, err, holdfast.ErrLost)

			assert.Equal(t, "held", rdb.Get(ctx, "value").Val(), "nothing was sent")
			require.NoError(t, inner.Release(within), "the library's own commands are not refused")
			again, err := locks.Mutex("x").Lease(held)
			require.NoError(t, err)
			require.NoError(t, again.Release(held))
		}
	})
}
