package drivertest

import (
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// Locks of different kinds never meet, even with one name.
var kindCases = []property{
	{"KindsOfOneNameDoNotMeet", func(t *test) {
		kinds := t.kinds()
		for _, a := range kinds {
			a.lock()
			t.same(a).busy()
		}
		holds(kinds...)
		for i, a := range kinds {
			a.release()
			a.releasesNothing()
			for _, other := range kinds[i+1:] {
				t.same(other).busy()
			}
			t.same(a).lock()
		}
	}},
	{"TokenOfOneKindHoldsNothingOfAnother", func(t *test) {
		kinds := t.kinds()
		for i, a := range kinds {
			a.lock()
			for j, b := range kinds {
				if i == j {
					continue
				}
				stray := t.same(b)
				stray.req.Token = a.req.Token
				stray.releasesNothing()
				stray.holdsNothing()
			}
			a.holds()
			a.release()
		}
	}},
	{"QueuesOfOneNameDoNotMeet", func(t *test) {
		t.needs(Queue)
		var holders, waiters []*contender
		for _, a := range t.kinds() {
			a.lock()
			w := t.same(a)
			w.req.Wait = true
			w.queue()
			holders, waiters = append(holders, a), append(waiters, w)
		}
		for i, a := range holders {
			a.release()
			waiters[i].lock()
			queue(waiters[i+1:]...)
		}
	}},
	{"ForceOfOneKindLeavesTheOthers", func(t *test) {
		t.needs(Force)
		kinds := t.kinds()
		lock(kinds...)
		for i, a := range kinds {
			require.NoError(t, a.force())
			a.holdsNothing()
			holds(kinds[i+1:]...)
		}
	}},
	{"InspectOfOneKindShowsNoOther", func(t *test) {
		t.needs(Inspect)
		kinds := t.kinds()
		for i, a := range kinds {
			a.lock()
			require.Len(t, t.inspect(a).Holders, 1)
			for _, other := range kinds[i+1:] {
				require.Empty(t, t.inspect(other).Holders)
			}
		}
	}},
}

// kinds returns a token for the lock of the test of each kind.
func (t *test) kinds() []*contender {
	t.needs(RWMutex, Semaphore)
	var all []*contender
	for _, f := range forms {
		all = append(all, t.contender(t.driver(), f.shape))
	}
	return all
}

// same returns another token that wants what c wants.
func (t *test) same(c *contender) *contender {
	return t.contender(t.driver(), func(r *driver.Request) {
		r.Kind, r.Shared, r.Weight, r.Limit = c.req.Kind, c.req.Shared, c.req.Weight, c.req.Limit
	})
}
