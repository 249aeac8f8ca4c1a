package holdfast_test

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
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// nest acquires a lock with the context of a lease on it.
func (l *lab) nest(outer *holdfast.Lease, lease leasing) *holdfast.Lease {
	l.t.Helper()
	inner, err := lease(outer.Context())
	require.NoError(l.t, err)
	return inner
}

func TestNestedLeasesAreOneHold(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c, other := l.far(), l.near()
		mu := c.Mutex("x", holdfast.WithReentrancy())
		for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}} {
			leases := []*holdfast.Lease{l.take(mu.Lease)}
			sent := l.count(l.on(driver.Mutex, "x"))
			for i, lease := range []leasing{mu.Lease, mu.TryLease, mu.Lease} {
				leases = append(leases, l.nest(leases[i], lease))
			}
			for _, lease := range leases {
				assert.Equal(t, leases[0].Fence(), lease.Fence())
				assert.Equal(t, leases[0].Token(), lease.Token())
				assert.Equal(t, leases[0].Deadline(), lease.Deadline())
			}
			for n, i := range order[:3] {
				l.giveBack(leases[i])
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
			l.giveBack(leases[order[3]])
			l.free(other, "x")
		}
	})
}

func TestNestedLeaseIsRenewedAfterItsOuterOneWasReleased(t *testing.T) {
	withPatience(t, func(t *testing.T, l *lab) {
		const ttl = 1500 * time.Millisecond
		mu := l.far(holdfast.WithTTL(ttl)).Mutex("x", holdfast.WithReentrancy())
		outer := l.take(mu.Lease)
		inner := l.nest(outer, mu.Lease)
		l.giveBack(outer)
		l.keeps(inner, 2*ttl)
		require.NoError(t, inner.Renew(t.Context()))
		l.giveBack(inner)
	})
}

func TestALossEndsAllNestedLeases(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.far()
		mu := c.Mutex("x", holdfast.WithReentrancy())
		outer := l.take(mu.Lease)
		first, second := l.nest(outer, mu.Lease), l.nest(outer, mu.Lease)
		l.giveBack(outer)
		require.NoError(t, mu.ForceUnlock(t.Context()))
		require.ErrorIs(t, first.Renew(t.Context()), holdfast.ErrLost)
		l.loses(first, soon)
		l.loses(second, soon)
		require.ErrorIs(t, outer.Err(), holdfast.ErrNotHeld, "it had been released before")
		assert.ErrorIs(t, first.Release(t.Context()), holdfast.ErrLost)
		assert.ErrorIs(t, second.Release(t.Context()), holdfast.ErrLost)
		next := l.lease(c, "x")
		_, err := mu.Lease(first.Context())
		require.ErrorIs(t, err, holdfast.ErrLost, "a context that is over counts for nothing")
		l.holds(next)
		l.giveBack(next)
		l.untilLogged("x", 1)
	})
}

// Who may nest is told by the handle that is asked, and by nothing else.
func TestOnlyAReentrantHandleNests(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.near()
		plain, reentrant := c.Mutex("x"), c.Mutex("x", holdfast.WithReentrancy())
		outer := l.take(plain.Lease)
		inner := l.nest(outer, reentrant.Lease)
		for _, ctx := range []context.Context{outer.Context(), inner.Context()} {
			_, err := plain.Lease(ctx)
			require.ErrorIs(t, err, holdfast.ErrDeadlock)
		}
		ctx, cancel := context.WithCancel(inner.Context())
		cancel()
		_, err := reentrant.Lease(ctx)
		require.ErrorIs(t, err, context.Canceled, "a context that has ended never acquires")
		l.giveBack(outer, inner)
		l.isClean(driver.Mutex, "x")
	})
}

func TestReentrancyOfDo(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.near(holdfast.WithReentrancy())
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
		l.free(c, "x")
		l.free(c, "y")
	})
}

func TestReaderIsNestedInAWriterAndNotTheOtherWayRound(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		rw, other := l.far().RWMutex("x", holdfast.WithReentrancy()), l.near().RWMutex("x")
		writer := l.take(rw.Lease)
		reader := l.nest(writer, rw.RLease)
		assert.Equal(t, writer.Fence(), reader.Fence())
		l.giveBack(writer)
		assert.False(t, other.TryRLock(), "it is a part of the write lock")
		again := l.nest(reader, rw.TryLease)
		l.giveBack(reader, again)

		reader = l.take(rw.RLease)
		second := l.nest(reader, rw.RLease)
		for _, lease := range []leasing{rw.Lease, rw.TryLease} {
			_, err := lease(second.Context())
			require.ErrorIs(t, err, holdfast.ErrDeadlock)
		}
		assert.Len(t, l.look(other).Holders, 1)
		l.giveBack(reader, second)
		l.isClean(driver.RWMutex, "x")
	})
}

func TestNestedWriterIsNotMadeAReader(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		rw, other := l.near().RWMutex("x", holdfast.WithReentrancy()), l.near().RWMutex("x")
		outer := l.take(rw.Lease)
		inner := l.nest(outer, rw.Lease)
		require.ErrorIs(t, outer.Downgrade(t.Context()), holdfast.ErrLocked)
		assert.False(t, other.TryRLock())
		l.giveBack(inner)
		require.NoError(t, outer.Downgrade(t.Context()))
		_, err := rw.Lease(outer.Context())
		require.ErrorIs(t, err, holdfast.ErrDeadlock, "it only reads now")
		read := l.nest(outer, rw.RLease)
		require.True(t, other.TryRLock())
		other.RUnlock()
		l.giveBack(outer, read)
	})
}

// The guard looks at what is held, not at which of the nested leases was released.
func TestGuardKnowsNestedLeases(t *testing.T) {
	s := redistest.Shared(t)
	l := newLab(t, s)
	rdb := s.Client(t)
	rdb.AddHook(holdfast.GuardHook())
	c := l.near()
	mu, between := c.Mutex("x", holdfast.WithReentrancy()), c.Mutex("between")
	set := func(lease *holdfast.Lease) error {
		return rdb.Set(context.WithoutCancel(lease.Context()), s.Prefix()+"value", "v", 100*time.Millisecond).Err()
	}
	outer := l.take(mu.Lease)
	middle := l.nest(outer, between.Lease)
	inner := l.nest(middle, mu.Lease)
	l.giveBack(outer)
	require.NoError(t, set(inner))
	require.ErrorIs(t, set(outer), holdfast.ErrLost)
	l.giveBack(middle)
	require.ErrorIs(t, set(inner), holdfast.ErrLost, "another lock that it comes from is over")
	l.giveBack(inner)
	err := rdb.Get(inner.WithContext(t.Context()), s.Prefix()+"value").Err()
	require.ErrorIs(t, err, holdfast.ErrLost)
	require.NotErrorIs(t, err, redis.Nil)
}

func TestCloseReleasesNestedLeases(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c, other := l.near(), l.near()
		mu := c.Mutex("x", holdfast.WithReentrancy())
		outer := l.take(mu.Lease)
		inner := l.nest(outer, mu.Lease)
		require.NoError(t, c.Close())
		for _, lease := range []*holdfast.Lease{outer, inner} {
			require.ErrorIs(t, lease.Err(), holdfast.ErrNotHeld)
			require.ErrorIs(t, lease.Context().Err(), context.Canceled)
		}
		l.free(other, "x")
	})
}

// Whatever is nested in whatever order: the lock is held from the first to the last and
// by nobody else.
func TestNestingAtRandom(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		clients := []*holdfast.Client{l.near(holdfast.WithReentrancy()), l.near(holdfast.WithReentrancy())}
		r := &referee{limit: 1}
		var all sync.WaitGroup
		for i := range 4 {
			mu := clients[i%2].Mutex("x")
			all.Go(func() {
				for range 10 {
					l.family(mu, r)
				}
			})
		}
		promptly(t, 6*soon, func() error { all.Wait(); return nil })
		l.free(clients[0], "x")
	})
}

// family takes a lock, lets others come in beside at the same time, and goes when the
// last of them has gone.
func (l *lab) family(mu *holdfast.Mutex, r *referee) {
	outer, err := mu.Lease(l.t.Context())
	if !assert.NoError(l.t, err) {
		return
	}
	r.enter(1)
	var nested sync.WaitGroup
	leases := make([]*holdfast.Lease, 4)
	for i := range leases {
		nested.Go(func() {
			var err error
			leases[i], err = mu.Lease(outer.Context())
			assert.NoError(l.t, err)
		})
	}
	nested.Wait()
	leases = append(leases, outer)
	rand.Shuffle(len(leases), func(i, j int) { leases[i], leases[j] = leases[j], leases[i] })
	last := leases[4]
	for _, lease := range leases[:4] {
		nested.Go(func() { assert.NoError(l.t, lease.Release(l.t.Context())) })
	}
	nested.Wait()
	assert.NoError(l.t, last.Err())
	r.leave(1)
	assert.NoError(l.t, last.Release(l.t.Context()))
}

// An outer lease may end just as another is nested in it.
func TestNestingMeetsARelease(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.near()
		mu := c.Mutex("x", holdfast.WithReentrancy())
		for range 50 {
			outer := l.take(mu.Lease)
			ctx := context.WithoutCancel(outer.Context())
			released := begin(func() { assert.NoError(t, outer.Release(t.Context())) })
			inner, err := mu.Lease(ctx) // nested, or a lease of its own
			require.NoError(t, err)
			l.ends(released)
			l.holds(inner)
			l.giveBack(inner)
		}
		l.free(c, "x")
	})
}

func TestNestingMeetsClose(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		other := l.near()
		for range 20 {
			c := l.near()
			mu := c.Mutex("x", holdfast.WithReentrancy())
			outer := l.take(mu.Lease)
			closed := begin(func() { assert.NoError(t, c.Close()) })
			inner, err := mu.Lease(context.WithoutCancel(outer.Context()))
			l.ends(closed)
			if err != nil {
				require.ErrorIs(t, err, holdfast.ErrClosed)
			} else {
				require.ErrorIs(t, inner.Err(), holdfast.ErrNotHeld)
			}
			l.free(other, "x")
		}
	})
}

func TestHooksSeeNestedLeases(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.far(holdfast.WithReentrancy())
		var reentrant []bool
		var renewed [][]*holdfast.Lease
		c.AddHook(meddler{
			acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
				lease, err := next(ctx, op)
				reentrant = append(reentrant, op.Reentrant)
				return lease, err
			},
			renew: func(next holdfast.RenewFunc, ctx context.Context, op *holdfast.RenewOp) []error {
				renewed = append(renewed, slices.Clone(op.Leases))
				return next(ctx, op)
			},
		})
		mu := c.Mutex("x")
		outer := l.take(mu.Lease)
		inner := l.nest(outer, mu.Lease)
		require.NoError(t, inner.Renew(t.Context()))
		l.giveBack(outer)
		require.NoError(t, inner.Renew(t.Context()))
		l.giveBack(inner)
		assert.Equal(t, []bool{false, true}, reentrant)
		assert.Equal(t, [][]*holdfast.Lease{{outer}, {inner}}, renewed, "one that is held speaks for all")
	})
}

// meanwhile has something happen between the moment when a nested lease is found possible
// and the one when it is there.
func meanwhile(c *holdfast.Client, happens func()) {
	var once sync.Once
	c.AddHook(meddler{
		acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
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
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.near(holdfast.WithReentrancy())
		outer := l.take(c.RWMutex("x").Lease)
		ctx := context.WithoutCancel(outer.Context())
		meanwhile(c, func() { l.giveBack(outer) })
		lease, err := c.RWMutex("x").Lease(ctx)
		require.NoError(t, err)
		assert.Greater(t, lease.Fence(), outer.Fence(), "a lease of its own")
		l.isHeldBy(c.RWMutex("x"), lease)
		l.giveBack(lease)

		outer = l.take(c.RWMutex("y").Lease)
		meanwhile(c, func() { require.NoError(t, outer.Downgrade(t.Context())) })
		_, err = c.RWMutex("y").Lease(outer.Context())
		require.ErrorIs(t, err, holdfast.ErrDeadlock, "it only reads now")
		l.giveBack(outer)
		l.isClean(driver.RWMutex, "y")
	})
}

func TestClientIsClosedWhileALeaseIsNested(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c, other := l.near(holdfast.WithReentrancy()), l.near()
		outer := l.take(c.Mutex("x").Lease)
		var closed <-chan any
		meanwhile(c, func() {
			closed = begin(func() { assert.NoError(t, c.Close()) })
			l.until("the client is closed", func() bool { return errors.Is(outer.Err(), holdfast.ErrNotHeld) })
		})
		_, err := c.Mutex("x").Lease(context.WithoutCancel(outer.Context()))
		require.ErrorIs(t, err, holdfast.ErrClosed)
		l.ends(closed)
		l.free(other, "x")
	})
}
