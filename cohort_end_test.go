package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// How waiting in a client's own queue ends without the lock, and what that means for those
// who wait behind.

func TestMateThatIsCancelledIsPassedOver(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		c := l.mates()
		held := l.lease(c, "x")
		ws := l.queue(3, c.Mutex("x").Lease)
		gone := errors.New("gone")
		ws[1].cancel(gone)
		err := ws[1].failed(soon)
		require.ErrorIs(t, err, gone)
		require.ErrorIs(t, err, holdfast.ErrLocked)
		l.waits(ws[0], ws[2])
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, ws[0].granted(soon).Release(t.Context()))
		require.NoError(t, ws[2].granted(soon).Release(t.Context()))
		l.free(l.near(), "x")
		assert.Zero(t, c.Doors())
	})
}

// Its mates go on from its place, however many of them give up.
func TestPlaceInTheStoresQueueIsPassedOn(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		c, other := l.mates(), l.near()
		held := l.lease(other, "x")
		ws := l.queue(4, c.Mutex("x").Lease)
		l.untilQueue("x", 1)
		later := l.wait(other, "x")
		l.untilQueue("x", 2)
		for _, i := range []int{0, 2, 1} {
			ws[i].cancel(nil)
			require.ErrorIs(t, ws[i].failed(soon), context.Canceled)
			l.settle()
			require.Len(t, l.inspect("x").Queue, 2)
		}
		require.NoError(t, held.Release(t.Context()))
		heir := ws[3].granted(soon)
		l.waits(later)
		l.keeps(heir, 2*ages)
		require.NoError(t, heir.Release(t.Context()))
		require.NoError(t, later.granted(soon).Release(t.Context()))
		l.free(other, "x")
	})
}

func TestLastOneToGiveUpLeavesTheStoresQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		c, other := l.mates(), l.near()
		held := l.lease(other, "x")
		// All at the same moment, so that each heir is gone, too.
		ws := l.queue(3, c.Mutex("x", holdfast.WithWait(time.Second)).Lease)
		l.untilQueue("x", 1)
		behind := l.queue(1, c.Mutex("x", holdfast.WithTTL(2*ages)).Lease)[0] // cannot inherit the place
		for _, w := range ws {
			err := w.failed(soon)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, holdfast.ErrLocked)
		}
		l.untilQueue("x", 1)
		l.waits(behind)
		behind.cancel(nil)
		require.Error(t, behind.failed(soon))
		l.untilQueue("x", 0)
		require.Zero(t, c.Doors())
		l.holds(held)
		require.NoError(t, held.Release(t.Context()))
		l.free(other, "x")
	})
}

// Whoever wins, the lock must go on. With a TTL of 30 s one that is stuck cannot be missed.
func TestMateIsCancelledAtTheMomentOfThePass(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		l.remember()
		c := l.mates()
		granted, cancelled := 0, 0
		for range 300 {
			held := l.lease(c, "x")
			first, second := l.wait(c, "x"), l.wait(c, "x")
			time.Sleep(rand.N(200 * time.Microsecond))
			go first.cancel(nil)
			require.NoError(t, held.Release(t.Context()))
			<-first.done
			if first.err == nil {
				granted++
				require.NoError(t, first.lease.Release(t.Context()))
			} else {
				cancelled++
				require.ErrorIs(t, first.err, context.Canceled)
			}
			require.NoError(t, second.granted(soon).Release(t.Context()))
		}
		t.Logf("%d granted, %d cancelled", granted, cancelled)
		l.free(l.near(), "x")
		assert.Zero(t, c.Doors())
	})
}

// A heartbeat of who gives up ends with its context, and may not end the wait of its heir.
func TestAskThatEndsWithItsContextIsNoRefusalOfTheHeir(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		store := memdriver.New()
		c := holdfast.Open(&hesitant{Driver: store}, holdfast.WithTTL(ages))
		defer c.Close()
		other := holdfast.Open(store, holdfast.WithTTL(ages))
		defer other.Close()
		held := l.lease(other, "x")
		ws := l.queue(2, c.Mutex("x").Lease)
		time.Sleep(ages / 2) // the heartbeat is under way
		ws[0].cancel(nil)
		require.Error(t, ws[0].failed(soon))
		l.waits(ws[1])
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, ws[1].granted(soon).Release(t.Context()))
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

func TestNobodyEntersOnATermThatIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		const ttl = time.Second
		c, other := l.farMates(holdfast.WithTTL(ttl)), l.near()
		held := l.lease(c, "x")
		ws := l.queue(3, c.Mutex("x").Lease)
		l.link.BlackHole(true)
		select {
		case <-held.Done():
		case <-ws[0].done:
			t.Fatal("two held the lock")
		}
		l.loses(held, l.slack)
		l.waits(ws...)
		require.ErrorIs(t, held.Release(t.Context()), holdfast.ErrLost)
		next := l.wait(other, "x").granted(2 * ttl)
		l.waits(ws...)
		l.link.BlackHole(false)
		l.link.Cut()
		l.untilQueue("x", 1)
		require.NoError(t, next.Release(t.Context()))
		last := next.Fence()
		for _, w := range ws {
			lease := w.granted(2 * ttl)
			require.Greater(t, lease.Fence(), last)
			last = lease.Fence()
			require.NoError(t, lease.Err())
			require.NoError(t, lease.Release(t.Context()))
		}
		l.soonFree(other, "x")
	})
}

func TestForcedTermPassesToNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		c, other := l.mates(), l.near()
		held := l.lease(other, "x")
		ws := l.queue(4, c.Mutex("x").Lease) // the first hears the news from now on
		require.NoError(t, held.Release(t.Context()))
		first := ws[0].granted(soon)
		require.NoError(t, first.Release(t.Context()))
		second := ws[1].granted(soon)
		time.Sleep(time.Millisecond) // in which the clock shows fences for the third and the fourth
		require.NoError(t, other.Mutex("x").ForceUnlock(t.Context()))
		l.loses(second, soon)
		third := ws[2].granted(soon)
		require.Greater(t, third.Fence(), second.Fence())
		l.holds(third)
		require.ErrorIs(t, second.Release(t.Context()), holdfast.ErrLost)
		l.holds(third)
		l.waits(ws[3])
		require.NoError(t, third.Release(t.Context()))
		fourth := ws[3].granted(soon)
		require.Equal(t, third.Fence()+1, fourth.Fence())
		require.NoError(t, fourth.Release(t.Context()))
		l.free(other, "x")
	})
}

func TestCloseEndsAllOfTheQueue(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c, other := l.mates(), l.near()
		elsewhere := l.lease(other, "y")
		held := l.lease(c, "x")
		var ws []*pending
		for range 3 {
			ws = append(ws, l.wait(c, "x"), l.wait(c, "y"))
		}
		locks := []<-chan any{begin(c.Mutex("x").Lock), begin(c.Mutex("y").Lock)}
		l.untilQueue("y", 1)
		require.NoError(t, promptly(t, soon, c.Close))
		require.Error(t, held.Err())
		for _, w := range ws {
			require.ErrorIs(t, w.failed(soon), holdfast.ErrClosed)
		}
		for _, locked := range locks {
			assert.Contains(t, fmt.Sprint(promptly(t, soon, func() any { return <-locked })), "closed")
		}
		require.Empty(t, l.inspect("y").Queue)
		l.holds(elsewhere)
		require.NoError(t, elsewhere.Release(t.Context()))
		l.free(other, "x")
		l.free(other, "y")
		assert.Zero(t, c.Doors())
	})
}

// Who locked without a lease in hand cannot know of the loss. Others who lock so wait for
// the Unlock; those with leases are told of a loss and need not.
func TestLostLockKeepsMatesOutUntilItsUnlock(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		c, other := l.mates(), l.near()
		mu := c.Mutex("x")
		mu.Lock()
		second := begin(mu.Lock)
		l.settle()
		require.NoError(t, other.Mutex("x").ForceUnlock(t.Context()))
		time.Sleep(ages / 2) // a renewal has told of the loss
		lease := l.take(mu.Lease)
		l.holds(lease)
		l.stays(second)
		require.NoError(t, lease.Release(t.Context()))
		l.stays(second)
		mu.Unlock()
		l.ends(second)
		mu.Unlock()
		l.free(other, "x")
		assert.Zero(t, c.Doors())
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
	inBubble(t, func(t *testing.T, l *lab) {
		f := &fleeting{Driver: memdriver.New()}
		c := holdfast.Open(f, holdfast.WithTTL(ages))
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
