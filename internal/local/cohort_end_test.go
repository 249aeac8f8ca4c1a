package local_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/local"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// How waiting in a client's own queue ends without the lock, and what that means for those
// who wait behind.

func TestMateThatIsCancelledIsPassedOver(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c := l.Mates()
		held := l.Lease(c, "x")
		ws := l.Queue(3, c.Mutex("x").Lease)
		gone := errors.New("gone")
		ws[1].Cancel(gone)
		err := ws[1].Failed(lab.Soon)
		require.ErrorIs(t, err, gone)
		require.ErrorIs(t, err, holdfast.ErrLocked)
		waits(l, ws[0], ws[2])
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, ws[0].Granted(lab.Soon).Release(t.Context()))
		require.NoError(t, ws[2].Granted(lab.Soon).Release(t.Context()))
		l.Free(l.Near(), "x")
		assert.Zero(t, inUse(c))
	})
}

// Its mates go on from its place, however many of them give up.
func TestPlaceInTheStoresQueueIsPassedOn(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c, other := l.Mates(), l.Near()
		held := l.Lease(other, "x")
		ws := l.Queue(4, c.Mutex("x").Lease)
		l.UntilQueue("x", 1)
		later := l.Wait(other, "x")
		l.UntilQueue("x", 2)
		for _, i := range []int{0, 2, 1} {
			ws[i].Cancel(nil)
			require.ErrorIs(t, ws[i].Failed(lab.Soon), context.Canceled)
			l.Settle()
			require.Len(t, l.Inspect("x").Queue, 2)
		}
		require.NoError(t, held.Release(t.Context()))
		heir := ws[3].Granted(lab.Soon)
		waits(l, later)
		l.Keeps(heir, 2*lab.Ages)
		require.NoError(t, heir.Release(t.Context()))
		require.NoError(t, later.Granted(lab.Soon).Release(t.Context()))
		l.Free(other, "x")
	})
}

func TestLastOneToGiveUpLeavesTheStoresQueue(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c, other := l.Mates(), l.Near()
		held := l.Lease(other, "x")
		// All at the same moment, so that each heir is gone, too.
		ws := l.Queue(3, c.Mutex("x", holdfast.WithWait(time.Second)).Lease)
		l.UntilQueue("x", 1)
		behind := l.Queue(1, c.Mutex("x", holdfast.WithTTL(2*lab.Ages)).Lease)[0] // cannot inherit the place
		for _, w := range ws {
			err := w.Failed(lab.Soon)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, holdfast.ErrLocked)
		}
		l.UntilQueue("x", 1)
		waits(l, behind)
		behind.Cancel(nil)
		require.Error(t, behind.Failed(lab.Soon))
		l.UntilQueue("x", 0)
		require.Zero(t, inUse(c))
		l.Holds(held)
		require.NoError(t, held.Release(t.Context()))
		l.Free(other, "x")
	})
}

// A heartbeat of who gives up ends with its context, and may not end the wait of its heir.
func TestAskThatEndsWithItsContextIsNoRefusalOfTheHeir(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		store := memdriver.New()
		c := holdfast.Open(&hesitant{Driver: store}, holdfast.WithTTL(lab.Ages))
		defer c.Close()
		other := holdfast.Open(store, holdfast.WithTTL(lab.Ages))
		defer other.Close()
		held := l.Lease(other, "x")
		ws := l.Queue(2, c.Mutex("x").Lease)
		time.Sleep(lab.Ages / 2) // the heartbeat is under way
		ws[0].Cancel(nil)
		require.Error(t, ws[0].Failed(lab.Soon))
		waits(l, ws[1])
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, ws[1].Granted(lab.Soon).Release(t.Context()))
	})
}

// hesitant does not carry out the second ask of a token.
type hesitant struct{ driver.Driver }

func (h *hesitant) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if r.Ask != 2 {
		return h.Driver.Acquire(ctx, r)
	}
	<-ctx.Done()
	return driver.Grant{}, fmt.Errorf("%w: %w", driver.ErrNotExecuted, ctx.Err())
}

func (h *hesitant) Unwrap() driver.Driver { return h.Driver }

// away is a store that nobody reaches.
type away struct{ driver.Driver }

func (a away) Acquire(context.Context, *driver.Request) (driver.Grant, error) {
	return driver.Grant{}, fmt.Errorf("connection refused: %w", errors.Join(driver.ErrTransient, driver.ErrNotExecuted))
}

// One end may end them all at once, also mates that cannot go on with the same token. The one that is at the
// store then has not asked yet. It is chance which of them is the first, so they try often.
func TestMatesWhoNeverCameToTheStoreAreToldThatItIsAway(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			c := holdfast.Open(away{memdriver.New()}, holdfast.WithTTL(lab.PlayTTL))
			ctx, cancel := context.WithCancel(t.Context())
			ws := []*lab.Waiter{lab.Wait(ctx, c.Mutex("x"))}
			synctest.Wait()
			for range 3 {
				ws = append(ws, lab.Wait(ctx, c.Mutex("x", holdfast.WithTTL(2*lab.PlayTTL))))
			}
			time.Sleep(5 * time.Second)
			cancel()
			for _, w := range ws {
				require.True(t, w.Returned())
				require.ErrorIs(t, w.Err, context.Canceled)
				require.ErrorIs(t, w.Err, holdfast.ErrUnavailable)
				require.NotErrorIs(t, w.Err, holdfast.ErrLocked)
			}
			require.NoError(t, c.Close())
		})
	}
}

func TestNobodyEntersOnATermThatIsLost(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		const ttl = time.Second
		c, other := l.FarMates(holdfast.WithTTL(ttl)), l.Near()
		held := l.Lease(c, "x")
		ws := l.Queue(3, c.Mutex("x").Lease)
		l.Link.BlackHole(true)
		select {
		case <-held.Done():
		case <-ws[0].Done:
			t.Fatal("two held the lock")
		}
		l.Loses(held, l.Slack)
		waits(l, ws...)
		require.ErrorIs(t, held.Release(t.Context()), holdfast.ErrLost)
		next := l.Wait(other, "x").Granted(2 * ttl)
		waits(l, ws...)
		l.Link.BlackHole(false)
		l.Link.Cut()
		l.UntilQueue("x", 1)
		require.NoError(t, next.Release(t.Context()))
		last := next.Fence()
		for _, w := range ws {
			lease := w.Granted(2 * ttl)
			require.Greater(t, lease.Fence(), last)
			last = lease.Fence()
			require.NoError(t, lease.Err())
			require.NoError(t, lease.Release(t.Context()))
		}
		l.SoonFree(other, "x")
	})
}

// Close, or a release, may have come just before: then there is nothing to hand over.
func TestHoldThatHasEndedIsNotDetached(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c := l.Mates()
		for _, end := range []func(*holdfast.Lease) error{
			func(lease *holdfast.Lease) error { return lease.Release(t.Context()) },
			func(*holdfast.Lease) error { return c.Close() },
		} {
			lease := l.Lease(c, "x")
			require.NoError(t, end(lease))
			require.ErrorIs(t, (*local.Hold)(lease).Detach(), holdfast.ErrNotHeld)
		}
	})
}

// The lock is lost after it was handed over, and before the goroutine that it was handed to
// has made a lease of it.
func TestLeaseThatIsLostBetweenTwoHandsIsNotUsed(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c, other := l.Mates(), l.Near()
		var lost []int64
		holds := 0
		c.AddHook(lab.Meddler{Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			op.Holding = func(ctx context.Context, fence int64) context.Context {
				if holds++; holds == 2 {
					lost = append(lost, fence)
					require.NoError(t, other.Mutex("x").ForceUnlock(context.Background()))
					time.Sleep(lab.Ages / 2) // a renewal finds that out
				}
				return ctx
			}
			return next(ctx, op)
		}})
		known(l, other.Mutex("x").Lease)
		held := l.Lease(c, "x")
		w := l.Queue(1, c.Mutex("x").Lease)[0]
		require.NoError(t, held.Release(t.Context()))
		lease := w.Granted(lab.Ages)
		require.Equal(t, 3, holds)
		require.Greater(t, lease.Fence(), lost[0])
		l.Holds(lease)
		require.NoError(t, lease.Release(t.Context()))
		l.Free(other, "x")
	})
}

func TestForcedTermPassesToNobody(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c, other := l.Mates(), l.Near()
		held := l.Lease(other, "x")
		ws := l.Queue(4, c.Mutex("x").Lease) // the first hears the news from now on
		require.NoError(t, held.Release(t.Context()))
		first := ws[0].Granted(lab.Soon)
		require.NoError(t, first.Release(t.Context()))
		second := ws[1].Granted(lab.Soon)
		time.Sleep(time.Millisecond) // in which the clock shows fences for the third and the fourth
		require.NoError(t, other.Mutex("x").ForceUnlock(t.Context()))
		l.Loses(second, lab.Soon)
		third := ws[2].Granted(lab.Soon)
		require.Greater(t, third.Fence(), second.Fence())
		l.Holds(third)
		require.ErrorIs(t, second.Release(t.Context()), holdfast.ErrLost)
		l.Holds(third)
		waits(l, ws[3])
		require.NoError(t, third.Release(t.Context()))
		fourth := ws[3].Granted(lab.Soon)
		require.Equal(t, third.Fence()+1, fourth.Fence())
		require.NoError(t, fourth.Release(t.Context()))
		l.Free(other, "x")
	})
}

func TestCloseEndsAllOfTheQueue(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c, other := l.Mates(), l.Near()
		elsewhere := l.Lease(other, "y")
		held := l.Lease(c, "x")
		var ws []*lab.Pending
		for range 3 {
			ws = append(ws, l.Wait(c, "x"), l.Wait(c, "y"))
		}
		locks := []<-chan any{lab.Begin(c.Mutex("x").Lock), lab.Begin(c.Mutex("y").Lock)}
		l.UntilQueue("y", 1)
		require.NoError(t, lab.Promptly(t, lab.Soon, c.Close))
		require.Error(t, held.Err())
		for _, w := range ws {
			require.ErrorIs(t, w.Failed(lab.Soon), holdfast.ErrClosed)
		}
		for _, locked := range locks {
			assert.Contains(t, fmt.Sprint(lab.Promptly(t, lab.Soon, func() any { return <-locked })), "closed")
		}
		require.Empty(t, l.Inspect("y").Queue)
		l.Holds(elsewhere)
		require.NoError(t, elsewhere.Release(t.Context()))
		l.Free(other, "x")
		l.Free(other, "y")
		assert.Zero(t, inUse(c))
	})
}

// A caller without a lease in hand cannot know of the loss. Others who lock so wait for
// the Unlock; those with leases are told of a loss and need not.
func TestLostLockKeepsMatesOutUntilItsUnlock(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c, other := l.Mates(), l.Near()
		mu := c.Mutex("x")
		mu.Lock()
		second := lab.Begin(mu.Lock)
		l.Settle()
		require.NoError(t, other.Mutex("x").ForceUnlock(t.Context()))
		time.Sleep(lab.Ages / 2) // a renewal has told of the loss
		lease := l.Take(mu.Lease)
		l.Holds(lease)
		l.Stays(second)
		require.NoError(t, lease.Release(t.Context()))
		l.Stays(second)
		mu.Unlock()
		l.Ends(second)
		mu.Unlock()
		l.Free(other, "x")
		assert.Zero(t, inUse(c))
	})
}

// fleeting takes away what it grants before it is known.
type fleeting struct {
	driver.Driver
	on atomic.Bool
}

func (f *fleeting) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	g, err := f.Driver.Acquire(ctx, r)
	if f.on.Load() && g.Status == driver.Granted {
		_ = f.Driver.Release(ctx, driver.Lease{Kind: r.Kind, Name: r.Name, Token: r.Token, TTL: r.TTL})
		r.Wake(driver.Grant{Status: driver.Lost})
	}
	return g, err
}

func (f *fleeting) Unwrap() driver.Driver { return f.Driver }

func TestTermThatIsLostBeforeItIsKnownIsInNobodysWay(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		f := &fleeting{Driver: memdriver.New()}
		c := holdfast.Open(f, holdfast.WithTTL(lab.Ages))
		defer c.Close()
		f.on.Store(true)
		c.Mutex("x").Lock()
		f.on.Store(false)
		lease, err := c.Mutex("x").TryLease(t.Context())
		require.NoError(t, err, "the store has the lock for everybody")
		require.NoError(t, lease.Release(t.Context()))
		c.Mutex("x").Unlock()
	})
}
