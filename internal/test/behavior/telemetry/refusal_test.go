package telemetry_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

var errRefused = errors.New("refused by a hook")

// refusals is a hook that refuses what it is told to.
type refusals struct{ acquire, release, renew atomic.Bool }

func (r *refusals) hook() holdfast.Hook {
	return lab.Meddler{
		Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			if r.acquire.Load() {
				return nil, errRefused
			}
			return next(ctx, op)
		},
		Release: func(next holdfast.ReleaseFunc, ctx context.Context, op *holdfast.ReleaseOp) error {
			if r.release.Load() {
				return errRefused
			}
			return next(ctx, op)
		},
		Renew: func(next holdfast.RenewFunc, ctx context.Context, op *holdfast.RenewOp) []error {
			if r.renew.Load() {
				return slices.Repeat([]error{errRefused}, len(op.Leases))
			}
			return next(ctx, op)
		},
	}
}

func TestLeaseWhoseReleaseIsRefusedIsHeldOn(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		var r refusals
		c := l.Near()
		c.AddHook(r.hook())
		lease := l.Lease(c, "x")
		r.release.Store(true)
		require.ErrorIs(t, lease.Release(t.Context()), errRefused)
		l.Holds(lease)
		require.NoError(t, lease.Renew(t.Context()))
		_, err := l.Near().Mutex("x").TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		r.release.Store(false)
		require.NoError(t, lease.Release(t.Context()))
		l.Free(l.Near(), "x")
	})
}

// Unlock cannot tell that it was refused, and nobody has the lease to try again. Nor can
// Release of a semaphore, nor Do. So it is carried out.
func TestUnlockAndDoCannotBeRefused(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		var r refusals
		c := l.Near()
		c.AddHook(r.hook())
		mu := c.Mutex("x")
		mu.Lock()
		r.release.Store(true)
		mu.Unlock()
		require.Contains(t, l.Log.String(), "a hook refused a release")
		require.Panics(t, mu.Unlock, "it is unlocked")
		l.Free(l.Near(), "x")
		require.ErrorIs(t, mu.Do(t.Context(), func(context.Context) error { return nil }), errRefused)
		l.Free(l.Near(), "x")
		sem := c.Semaphore("x", 3)
		require.NoError(t, sem.Acquire(t.Context(), 3))
		sem.Release(2)
		require.True(t, l.Near().Semaphore("x", 3).TryAcquire(2))
		sem.Release(1)
	})
}

func TestLeaseWhoseRenewalsAreRefusedIsLostWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		var r refusals
		const ttl = time.Second
		c := l.Near(holdfast.WithTTL(ttl))
		c.AddHook(r.hook())
		lease := l.Lease(c, "x")
		l.Keeps(lease, 2*ttl)
		r.renew.Store(true)
		require.ErrorIs(t, lease.Renew(t.Context()), errRefused)
		l.Holds(lease)
		l.Loses(lease, ttl+l.Slack)
		assert.ErrorIs(t, lease.Err(), errRefused, "it says why")
	})
}

// Of three leases that are renewed at once one is refused: by ErrNotHeld, it is over at
// once; the others go on.
func TestRefusalOfOneRenewalLosesOnlyThatLease(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		const ttl = 900 * time.Millisecond
		c := l.Near(holdfast.WithTTL(ttl))
		var together atomic.Int64
		c.AddHook(lab.Meddler{Renew: func(next holdfast.RenewFunc, ctx context.Context, op *holdfast.RenewOp) []error {
			together.Store(max(together.Load(), int64(len(op.Leases))))
			errs := next(ctx, op)
			for i, lease := range op.Leases {
				if lease.Name() == "b" {
					errs[i] = holdfast.ErrNotHeld
				}
			}
			return errs
		}})
		a, b, d := l.Lease(c, "a"), l.Lease(c, "b"), l.Lease(c, "c")
		l.Loses(b, ttl/3+l.Slack)
		l.Keeps(a, 2*ttl)
		l.Holds(d)
		if l.Virtual { // and so at once
			assert.EqualValues(t, 3, together.Load())
		}
		l.GiveBack(a, d)
	})
}

func TestRefusalOfAnAcquisitionLeavesNothing(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		var r refusals
		c := l.Near()
		c.AddHook(r.hook())
		r.acquire.Store(true)
		rw, sem := c.RWMutex("x"), c.Semaphore("x", 2)
		_, err := rw.RLease(t.Context())
		require.ErrorIs(t, err, errRefused)
		require.ErrorIs(t, sem.Acquire(t.Context(), 1), errRefused)
		require.ErrorIs(t, c.Mutex("x").Do(t.Context(), nil), errRefused)
		// As long as the store has not carried out any command, it is misuse.
		require.Panics(t, rw.Lock)
		require.Panics(t, func() { rw.TryRLock() })
		require.Panics(t, func() { sem.TryAcquire(1) })
		r.acquire.Store(false)
		require.True(t, lab.Promptly(t, lab.Soon, rw.TryLock), "the doorway is free")
		rw.Unlock()
		require.True(t, sem.TryAcquire(2))
		sem.Release(2)
		// From now on Lock waits the refusal out, and the others report it.
		r.acquire.Store(true)
		require.False(t, rw.TryRLock())
		require.False(t, sem.TryAcquire(1))
		locked := lab.Begin(rw.Lock)
		l.Stays(locked)
		r.acquire.Store(false)
		l.Ends(locked)
		rw.Unlock()
	})
}

// seen is a redis.Hook that notes the values which commands have in their context.
type seen struct {
	mu     sync.Mutex
	values map[string][]any // by what the command does
}

func (s *seen) note(ctx context.Context, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[what] = append(s.values[what], ctx.Value(contextKey{}))
}

func (s *seen) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *seen) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.note(ctx, "single")
		return next(ctx, cmd)
	}
}

func (s *seen) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.note(ctx, "pipeline")
		return next(ctx, cmds)
	}
}

func (s *seen) take(what string) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.values[what]
	delete(s.values, what)
	if len(all) != 1 {
		return all
	}
	return all[0]
}

// A value that a hook puts into the context arrives at the hooks of the Redis client.
func TestContextOfHooksReachesTheCommands(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		l := lab.New(t, s)
		rdb := s.Client(t)
		c := l.Open(rdb)
		l.Ready(c)
		commands := &seen{values: map[string][]any{}}
		rdb.AddHook(commands)
		with := func(ctx context.Context, v string) context.Context { return context.WithValue(ctx, contextKey{}, v) }
		c.AddHook(lab.Meddler{
			Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
				return next(with(ctx, "acquiring"), op)
			},
			Release: func(next holdfast.ReleaseFunc, ctx context.Context, op *holdfast.ReleaseOp) error {
				return next(with(ctx, "releasing"), op)
			},
			Renew: func(next holdfast.RenewFunc, ctx context.Context, op *holdfast.RenewOp) []error {
				assert.Equal(t, "asked", ctx.Value(contextKey{}), "the values of who calls Renew")
				return next(with(ctx, "renewing"), op)
			},
		})
		ctx := with(t.Context(), "asked")
		for range 2 { // the forms with a lease, and those of package sync
			lease, err := c.Mutex("x").Lease(ctx)
			require.NoError(t, err)
			assert.Equal(t, "acquiring", commands.take("single"))
			assert.Equal(t, "acquiring", lease.Context().Value(contextKey{}))
			require.NoError(t, lease.Renew(ctx))
			assert.Equal(t, "renewing", commands.take("pipeline"))
			require.NoError(t, lease.Release(ctx))
			assert.Equal(t, "releasing", commands.take("single"))
		}
		c.Mutex("x").Lock()
		assert.Equal(t, "acquiring", commands.take("single"))
		c.Mutex("x").Unlock()
		assert.Equal(t, "releasing", commands.take("single"))
	})
}

// A RenewHook that blocks for long keeps nobody else's lease from ending in time: it does
// not run where time is watched.
func TestRenewHookThatBlocksDelaysNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 3 * time.Second
		c := holdfast.Open(lab.Puppet{}, holdfast.WithTTL(ttl))
		blocked := make(chan struct{})
		c.AddHook(lab.Meddler{Renew: func(next holdfast.RenewFunc, ctx context.Context, op *holdfast.RenewOp) []error {
			<-blocked
			return next(ctx, op)
		}})
		began := time.Now()
		stuck, err := c.Mutex("stuck").Lease(t.Context())
		require.NoError(t, err)
		time.Sleep(ttl / 2)
		fixed, err := c.Mutex("fixed", holdfast.WithoutRenewal()).Lease(t.Context())
		require.NoError(t, err)

		<-stuck.Done()
		assert.InDelta(t, ttl.Seconds(), time.Since(began).Seconds(), .1, "its own lease, too")
		<-fixed.Done()
		assert.InDelta(t, (ttl + ttl/2).Seconds(), time.Since(began).Seconds(), .1)
		close(blocked)
		require.NoError(t, c.Close())
	})
}
