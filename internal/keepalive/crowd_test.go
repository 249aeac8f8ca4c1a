package keepalive_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
)

// crowd is many leases in care, and when each of them was renewed.
type crowd struct {
	store
	held    []*held
	renewed map[string][]time.Time
}

// gather takes n leases at one moment.
func (c *crowd) gather(k *keepalive.Keeper, n int) {
	for i := range n {
		c.take(k, fmt.Sprint(i))
	}
}

// take takes one lease. The others may be renewed meanwhile.
func (c *crowd) take(k *keepalive.Keeper, name string) {
	c.mu.Lock()
	if c.renewed == nil {
		c.renewed = map[string][]time.Time{}
	}
	c.renewed[name] = []time.Time{time.Now()}
	c.mu.Unlock()
	c.held = append(c.held, hold(k, name, time.Now()))
}

// note is renew of a store that always succeeds.
func (c *crowd) note(leases []driver.Lease) []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range leases {
		c.renewed[l.Name] = append(c.renewed[l.Name], time.Now())
	}
	return make([]error, len(leases))
}

// forget lets what was so far be gone.
func (c *crowd) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times, c.sizes = nil, nil
}

func (c *crowd) total() (sum int) {
	for _, n := range c.sizes {
		sum += n
	}
	return sum
}

// most returns how many renewals there were at most in a window of that length.
func (c *crowd) most(window time.Duration) (most int) {
	sum, from := 0, 0
	for i, at := range c.times {
		sum += c.sizes[i]
		for ; at.Sub(c.times[from]) >= window; from++ {
			sum -= c.sizes[from]
		}
		most = max(most, sum)
	}
	return most
}

// latest returns how long a lease was at most not renewed.
func (c *crowd) latest() (most time.Duration) {
	for _, times := range c.renewed {
		for i := range times[1:] {
			most = max(most, times[i+1].Sub(times[i]))
		}
		most = max(most, time.Since(times[len(times)-1]))
	}
	return most
}

func (c *crowd) leave(t *testing.T, k *keepalive.Keeper) {
	for _, h := range c.held {
		require.True(t, k.Remove(&h.Entry))
	}
}

const (
	throng = 10_000
	period = ttl / 3
	fair   = throng / 10 // in a tenth of a period, if they are spread evenly
)

// One batch after the other, evenly spread, in place of all of them at once or of
// thousands of small ones.
func TestLeasesTakenAtOnceAreRenewedInFullBatchesOneAfterTheOther(t *testing.T) {
	c := &crowd{}
	c.renew = c.note
	bubble(t, &c.store, func(t *testing.T, k *keepalive.Keeper) {
		c.gather(k, throng)
		const full = (throng + 255) / 256
		for round := range 6 {
			time.Sleep(period)
			synctest.Wait()
			t.Logf("round %d: %d renewals in %d batches, at most %d within TTL/30", round, c.total(), len(c.sizes), c.most(ttl/30))
			require.LessOrEqual(t, len(c.sizes), full*5/4)
			require.Less(t, c.most(ttl/30), 2*fair)
			require.LessOrEqual(t, c.most(ttl/300), 3*256, "one batch at a time")
			require.LessOrEqual(t, slices.Max(c.sizes), 256)
			require.Greater(t, c.total(), throng*9/10)
			require.Less(t, c.total(), throng*11/10)
			require.LessOrEqual(t, c.latest(), period)
			c.forget()
		}
		c.leave(t, k)
	})
}

// An outage, or a pause of the process, puts them together again.
func TestLeasesThatWereHeldUpTogetherAreSpreadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{}
		var back time.Time // when the store answers again
		c.renew = func(l []driver.Lease) []error {
			c.mu.Lock()
			frozen := time.Until(back)
			c.mu.Unlock()
			time.Sleep(frozen)
			return c.note(l)
		}
		k := c.keeper()
		defer k.Close()
		c.gather(k, throng)
		time.Sleep(2 * period)
		c.mu.Lock()
		back = time.Now().Add(period * 3 / 2)
		c.mu.Unlock()
		time.Sleep(3 * period)
		c.forget()
		time.Sleep(2 * period)
		synctest.Wait()
		t.Logf("%d renewals in %d batches, at most %d within TTL/30", c.total(), len(c.sizes), c.most(ttl/30))
		require.Less(t, c.most(ttl/30), 3*fair)
		c.leave(t, k)
	})
}

// A lease that is alone, or one of few, has no reason to be renewed earlier than it must.
func TestFewLeasesAreRenewedTogetherAndNoMoreOftenThanOne(t *testing.T) {
	c := &crowd{}
	c.renew = c.note
	bubble(t, &c.store, func(t *testing.T, k *keepalive.Keeper) {
		for i := range 20 {
			c.take(k, fmt.Sprint(i))
			time.Sleep(ttl / 30 / 25)
		}
		time.Sleep(10*period + period/2)
		synctest.Wait()
		require.Equal(t, 10, len(c.sizes), "one batch in a third of the TTL")
		require.Equal(t, 200, c.total())
		require.LessOrEqual(t, c.latest(), period)
		c.leave(t, k)
	})
}

func TestFixedLeaseIsNotRenewed(t *testing.T) {
	c := &crowd{}
	c.renew = c.note
	bubble(t, &c.store, func(t *testing.T, k *keepalive.Keeper) { // nor with others
		fixed := newHeld("fixed")
		fixed.Fixed = true
		k.Add(&fixed.Entry, fixed.lease, keepalive.NewTrust(time.Now(), ttl))
		time.Sleep(ttl / 6)
		c.take(k, "a") // is renewed shortly before the fixed one ends
		require.NoError(t, <-fixed.lost)
		require.Equal(t, trusted, time.Since(fixed.since))
		require.Empty(t, c.renewed["fixed"])
		c.leave(t, k)
	})
}

// A node that does not answer fills up, which must not make the batches of others small.
func TestBatchesStayLargeWhileAnotherNodeIsFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		thaw := make(chan struct{})
		c := &crowd{}
		c.node = func(name string) string { return name[len(name)-1:] } // ten nodes
		batches := 0
		c.renew = func(l []driver.Lease) []error {
			if c.node(l[0].Name) == "0" {
				<-thaw
				return make([]error, len(l))
			}
			c.mu.Lock()
			batches++
			c.mu.Unlock()
			return c.note(l)
		}
		k := c.keeper()
		defer k.Close()
		defer close(thaw)
		c.gather(k, throng)
		time.Sleep(2 * period)
		c.mu.Lock()
		defer c.mu.Unlock()
		t.Logf("%d batches for nine nodes", batches)
		// The leases that one node has to renew within TTL/30, a tenth of the period, go together.
		require.LessOrEqual(t, batches, 2*9*(10+1))
	})
}
