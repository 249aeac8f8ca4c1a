package reentry_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/internal/test/referee"
)

func TestNestedLeasesAreOneHold(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c, other := l.Far(), l.Near()
		mu := c.Mutex("x", holdfast.WithReentrancy())
		for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}} {
			leases := []*holdfast.Lease{l.Take(mu.Lease)}
			sent := l.Count(l.On(driver.Mutex, "x"))
			for i, lease := range []lab.Leasing{mu.Lease, mu.TryLease, mu.Lease} {
				leases = append(leases, l.Nest(leases[i], lease))
			}
			for _, lease := range leases {
				assert.Equal(t, leases[0].Fence(), lease.Fence())
				assert.Equal(t, leases[0].Token(), lease.Token())
				assert.Equal(t, leases[0].Deadline(), lease.Deadline())
			}
			for n, i := range order[:3] {
				l.GiveBack(leases[i])
				require.ErrorIs(t, leases[i].Err(), holdfast.ErrNotHeld)
				require.ErrorIs(t, leases[i].Context().Err(), context.Canceled)
				require.ErrorIs(t, leases[i].Release(t.Context()), holdfast.ErrNotHeld)
				for _, j := range order[n+1:] {
					require.NoError(t, leases[j].Err())
					require.NoError(t, leases[j].Context().Err())
				}
			}
			assert.Zero(t, sent.Load(), "the store was asked")
			_, err := other.Mutex("x").TryLease(t.Context())
			require.ErrorIs(t, err, holdfast.ErrLocked)
			l.GiveBack(leases[order[3]])
			l.Free(other, "x")
		}
	})
}

func TestNestedLeaseIsRenewedAfterItsOuterOneWasReleased(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		const ttl = 1500 * time.Millisecond
		mu := l.Far(holdfast.WithTTL(ttl)).Mutex("x", holdfast.WithReentrancy())
		outer := l.Take(mu.Lease)
		inner := l.Nest(outer, mu.Lease)
		l.GiveBack(outer)
		l.Keeps(inner, 2*ttl)
		require.NoError(t, inner.Renew(t.Context()))
		l.GiveBack(inner)
	})
}

func TestALossEndsAllNestedLeases(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Far()
		mu := c.Mutex("x", holdfast.WithReentrancy())
		outer := l.Take(mu.Lease)
		first, second := l.Nest(outer, mu.Lease), l.Nest(outer, mu.Lease)
		l.GiveBack(outer)
		require.NoError(t, mu.ForceUnlock(t.Context()))
		require.ErrorIs(t, first.Renew(t.Context()), holdfast.ErrLost)
		l.Loses(first, lab.Soon)
		l.Loses(second, lab.Soon)
		require.ErrorIs(t, outer.Err(), holdfast.ErrNotHeld, "it had been released before")
		assert.ErrorIs(t, first.Release(t.Context()), holdfast.ErrLost)
		assert.ErrorIs(t, second.Release(t.Context()), holdfast.ErrLost)
		next := l.Lease(c, "x")
		_, err := mu.Lease(first.Context())
		require.ErrorIs(t, err, holdfast.ErrLost, "a context that is over counts for nothing")
		l.Holds(next)
		l.GiveBack(next)
		l.UntilLogged("x", 1)
	})
}

// Whether a caller may nest is told by the handle that is asked, and by nothing else.
func TestOnlyAReentrantHandleNests(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Near()
		plain, reentrant := c.Mutex("x"), c.Mutex("x", holdfast.WithReentrancy())
		outer := l.Take(plain.Lease)
		inner := l.Nest(outer, reentrant.Lease)
		for _, ctx := range []context.Context{outer.Context(), inner.Context()} {
			_, err := plain.Lease(ctx)
			require.ErrorIs(t, err, holdfast.ErrDeadlock)
		}
		ctx, cancel := context.WithCancel(inner.Context())
		cancel()
		_, err := reentrant.Lease(ctx)
		require.ErrorIs(t, err, context.Canceled, "a context that has ended never acquires")
		l.GiveBack(outer, inner)
		l.IsClean(driver.Mutex, "x")
	})
}

func TestReentrancyOfDo(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Near(holdfast.WithReentrancy())
		mu, other := c.Mutex("x"), c.Mutex("y")
		work := errors.New("the innermost")
		err := mu.Do(t.Context(), func(ctx context.Context) error {
			return other.Do(ctx, func(ctx context.Context) error {
				return mu.Do(ctx, func(ctx context.Context) error {
					return errors.Join(other.Do(ctx, func(context.Context) error { return work }), ctx.Err())
				})
			})
		})
		require.ErrorIs(t, err, work)
		l.Free(c, "x")
		l.Free(c, "y")
	})
}

func TestReaderIsNestedInAWriterAndNotTheOtherWayRound(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		rw, other := l.Far().RWMutex("x", holdfast.WithReentrancy()), l.Near().RWMutex("x")
		writer := l.Take(rw.Lease)
		reader := l.Nest(writer, rw.RLease)
		assert.Equal(t, writer.Fence(), reader.Fence())
		l.GiveBack(writer)
		assert.False(t, other.TryRLock(), "it is a part of the write lock")
		again := l.Nest(reader, rw.TryLease)
		l.GiveBack(reader, again)

		reader = l.Take(rw.RLease)
		second := l.Nest(reader, rw.RLease)
		for _, lease := range []lab.Leasing{rw.Lease, rw.TryLease} {
			_, err := lease(second.Context())
			require.ErrorIs(t, err, holdfast.ErrDeadlock)
		}
		assert.Len(t, l.Look(other).Holders, 1)
		l.GiveBack(reader, second)
		l.IsClean(driver.RWMutex, "x")
	})
}

func TestNestedWriterIsNotMadeAReader(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		rw, other := l.Near().RWMutex("x", holdfast.WithReentrancy()), l.Near().RWMutex("x")
		outer := l.Take(rw.Lease)
		inner := l.Nest(outer, rw.Lease)
		require.ErrorIs(t, outer.Downgrade(t.Context()), holdfast.ErrLocked)
		assert.False(t, other.TryRLock())
		l.GiveBack(inner)
		require.NoError(t, outer.Downgrade(t.Context()))
		_, err := rw.Lease(outer.Context())
		require.ErrorIs(t, err, holdfast.ErrDeadlock, "it only reads now")
		read := l.Nest(outer, rw.RLease)
		require.True(t, other.TryRLock())
		other.RUnlock()
		l.GiveBack(outer, read)
	})
}

// The guard looks at what is held, not at which of the nested leases was released.
func TestGuardKnowsNestedLeases(t *testing.T) {
	s := redistest.Shared(t)
	l := lab.New(t, s)
	rdb := s.Client(t)
	rdb.AddHook(holdfast.GuardHook())
	c := l.Near()
	mu, between := c.Mutex("x", holdfast.WithReentrancy()), c.Mutex("between")
	set := func(lease *holdfast.Lease) error {
		return rdb.Set(context.WithoutCancel(lease.Context()), s.Prefix()+"value", "v", 100*time.Millisecond).Err()
	}
	outer := l.Take(mu.Lease)
	middle := l.Nest(outer, between.Lease)
	inner := l.Nest(middle, mu.Lease)
	l.GiveBack(outer)
	require.NoError(t, set(inner))
	require.ErrorIs(t, set(outer), holdfast.ErrLost)
	l.GiveBack(middle)
	require.ErrorIs(t, set(inner), holdfast.ErrLost, "another lock that it comes from is over")
	l.GiveBack(inner)
	err := rdb.Get(inner.WithContext(t.Context()), s.Prefix()+"value").Err()
	require.ErrorIs(t, err, holdfast.ErrLost)
	require.NotErrorIs(t, err, redis.Nil)
}

func TestCloseReleasesNestedLeases(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c, other := l.Near(), l.Near()
		mu := c.Mutex("x", holdfast.WithReentrancy())
		outer := l.Take(mu.Lease)
		inner := l.Nest(outer, mu.Lease)
		require.NoError(t, c.Close())
		for _, lease := range []*holdfast.Lease{outer, inner} {
			require.ErrorIs(t, lease.Err(), holdfast.ErrNotHeld)
			require.ErrorIs(t, lease.Context().Err(), context.Canceled)
		}
		l.Free(other, "x")
	})
}

// Whatever is nested in whatever order: the lock is held from the first to the last and
// by nobody else.
func TestNestingAtRandom(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		clients := []*holdfast.Client{l.Near(holdfast.WithReentrancy()), l.Near(holdfast.WithReentrancy())}
		r := &referee.Referee{Limit: 1}
		var all sync.WaitGroup
		for i := range 4 {
			mu := clients[i%2].Mutex("x")
			all.Go(func() {
				for range 10 {
					family(l, mu, r)
				}
			})
		}
		lab.Promptly(t, 6*lab.Soon, func() error { all.Wait(); return nil })
		l.Free(clients[0], "x")
	})
}

// family takes a lock, lets others come in beside at the same time, and goes when the
// last of them has gone.
func family(l *lab.Lab, mu *holdfast.Mutex, r *referee.Referee) {
	outer, err := mu.Lease(l.T.Context())
	if !assert.NoError(l.T, err) {
		return
	}
	r.Enter(1)
	var nested sync.WaitGroup
	leases := make([]*holdfast.Lease, 4)
	for i := range leases {
		nested.Go(func() {
			var err error
			leases[i], err = mu.Lease(outer.Context())
			assert.NoError(l.T, err)
		})
	}
	nested.Wait()
	leases = append(leases, outer)
	rand.Shuffle(len(leases), func(i, j int) { leases[i], leases[j] = leases[j], leases[i] })
	last := leases[4]
	for _, lease := range leases[:4] {
		nested.Go(func() { assert.NoError(l.T, lease.Release(l.T.Context())) })
	}
	nested.Wait()
	assert.NoError(l.T, last.Err())
	r.Leave(1)
	assert.NoError(l.T, last.Release(l.T.Context()))
}

func TestHooksSeeNestedLeases(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Far(holdfast.WithReentrancy())
		var reentrant []bool
		var renewed [][]*holdfast.Lease
		c.AddHook(lab.Meddler{
			Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
				lease, err := next(ctx, op)
				reentrant = append(reentrant, op.Reentrant)
				return lease, err
			},
			Renew: func(next holdfast.RenewFunc, ctx context.Context, op *holdfast.RenewOp) []error {
				renewed = append(renewed, slices.Clone(op.Leases))
				return next(ctx, op)
			},
		})
		mu := c.Mutex("x")
		outer := l.Take(mu.Lease)
		inner := l.Nest(outer, mu.Lease)
		require.NoError(t, inner.Renew(t.Context()))
		l.GiveBack(outer)
		require.NoError(t, inner.Renew(t.Context()))
		l.GiveBack(inner)
		assert.Equal(t, []bool{false, true}, reentrant)
		assert.Equal(t, [][]*holdfast.Lease{{outer}, {inner}}, renewed, "one that is held speaks for all")
	})
}

// meanwhile has something happen between the moment when a nested lease is found possible
// and the one when it is there.
func meanwhile(c *holdfast.Client, happens func()) {
	var once sync.Once
	c.AddHook(lab.Meddler{
		Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			op.Holding = func(ctx context.Context, _ int64) context.Context {
				if op.Reentrant {
					once.Do(happens)
				}
				return ctx
			}
			return next(ctx, op)
		},
	})
}

func TestOuterLeaseEndsWhileAnotherIsNested(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Near(holdfast.WithReentrancy())
		outer := l.Take(c.RWMutex("x").Lease)
		ctx := context.WithoutCancel(outer.Context())
		meanwhile(c, func() { l.GiveBack(outer) })
		lease, err := c.RWMutex("x").Lease(ctx)
		require.NoError(t, err)
		assert.Greater(t, lease.Fence(), outer.Fence(), "a lease of its own")
		l.IsHeldBy(c.RWMutex("x"), lease)
		l.GiveBack(lease)

		outer = l.Take(c.RWMutex("y").Lease)
		meanwhile(c, func() { require.NoError(t, outer.Downgrade(t.Context())) })
		_, err = c.RWMutex("y").Lease(outer.Context())
		require.ErrorIs(t, err, holdfast.ErrDeadlock, "it only reads now")
		l.GiveBack(outer)
		l.IsClean(driver.RWMutex, "y")
	})
}

func TestClientIsClosedWhileALeaseIsNested(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c, other := l.Near(holdfast.WithReentrancy()), l.Near()
		outer := l.Take(c.Mutex("x").Lease)
		var closed <-chan any
		meanwhile(c, func() {
			closed = lab.Begin(func() { assert.NoError(t, c.Close()) })
			l.Until("the client is closed", func() bool { return errors.Is(outer.Err(), holdfast.ErrNotHeld) })
		})
		_, err := c.Mutex("x").Lease(context.WithoutCancel(outer.Context()))
		require.ErrorIs(t, err, holdfast.ErrClosed)
		l.Ends(closed)
		l.Free(other, "x")
	})
}
