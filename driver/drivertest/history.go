package drivertest

import (
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

var readerHistoryCases = []property{
	{"ReadersAndWritersAreServedInOrderWhateverHappens", func(t *test) {
		t.needs(Queue)
		t.history(manyReaders, readingMostly)
	}},
	{"ReadersAndWritersArePushedInOrderWhateverHappens", func(t *test) {
		t.needs(Push)
		t.history(manyReaders, readingMostly)
	}},
}

var permitHistoryCases = []property{
	{"WeightsAreServedInOrderWhateverHappens", func(t *test) {
		t.needs(Queue)
		t.history(0, weighingAny)
	}},
	{"WeightsArePushedInOrderWhateverHappens", func(t *test) {
		t.needs(Push)
		t.history(0, weighingAny)
	}},
}

// manyReaders is more than a history has: there is no limit to them.
const manyReaders = 1000

// history is a run of random steps and what the contract says of the lock after each:
// who holds it, and who waits. No lease ends by itself in it.
type history struct {
	t       *test
	drivers []driver.Driver
	want    func(*driver.Request) // what new tokens want

	limit   int64 // 0 if it is for the next request to say
	settled bool  // that it will be no more
	holds   []*contender
	weight  map[*contender]int64 // of holders, which a downgrade lowers
	queue   []*contender
	fence   int64 // the last one
}

// history takes random steps and requires after each that the store has done what the
// contract says, neither more nor less. Where grants are pushed nobody needs to ask for it.
func (t *test) history(limit int64, want func(*driver.Request)) {
	t.Helper()
	h := &history{t: t, want: want, limit: limit, settled: limit > 0, weight: map[*contender]int64{}}
	h.drivers = []driver.Driver{t.driver(), t.driver(), t.driver()}
	steps := []func(){h.try, h.wait, h.wait, h.release, h.release, h.withdraw}
	if t.has(Downgrade) {
		steps = append(steps, h.downgrade)
	}
	if limit == 0 && t.has(Resize) {
		steps = append(steps, h.resize)
	}
	for range 150 {
		if len(h.queue) > 6 {
			h.release()
		}
		steps[rand.IntN(len(steps))]()
	}
	for len(h.holds)+len(h.queue) > 0 {
		h.withdraw()
		h.release()
	}
}

// token returns a new one.
func (h *history) token(mods ...func(*driver.Request)) *contender {
	h.t.Helper()
	c := h.t.contender(h.drivers[rand.IntN(len(h.drivers))], append(mods, h.want, lasting(time.Minute))...)
	h.t.Logf("%s: shared %v, weight %d, waiting %v", c.req.Token[:16], c.req.Shared, c.req.Weight, c.req.Wait)
	return c
}

// left is how much nobody holds. It is negative after the limit was lowered.
func (h *history) left() int64 {
	sum := int64(0)
	for _, w := range h.weight {
		sum += w
	}
	return h.limit - sum
}

// room is how much of the limit a token wants.
func (h *history) room(c *contender) int64 {
	if c.req.Kind == driver.RWMutex && !c.req.Shared {
		return h.limit
	}
	return max(1, c.req.Weight)
}

// fits tells whether there is room for a token that nobody is ahead of.
func (h *history) fits(c *contender) bool { return h.room(c) <= h.left() }

func (h *history) try() {
	h.t.Helper()
	h.come(h.token(), driver.Busy)
}

func (h *history) wait() {
	h.t.Helper()
	h.come(h.token(waiting), driver.Queued)
}

// come has a new token ask. If it cannot have the lock at once, kept is its answer.
func (h *history) come(c *contender, kept driver.Status) {
	h.t.Helper()
	if h.limit == 0 {
		h.limit = c.req.Limit
	}
	switch {
	case h.room(c) > h.limit:
		c.denied(driver.ErrLimitExceeded)
		return
	case len(h.queue) == 0 && h.fits(c):
		c.lock()
		h.granted(c)
		return
	}
	h.answered(c, kept)
	if c.req.Wait {
		h.queue = append(h.queue, c)
	}
}

// answered has a token ask that must not have the lock now. It is foul if it has it all the same,
// unless the machine was so late that a lease may have ended, or the place of a waiter.
func (h *history) answered(c *contender, want driver.Status) {
	h.t.Helper()
	g := c.askOnce()
	punctual := true
	for _, other := range h.holds {
		punctual = punctual && other.trusts()
	}
	for _, other := range h.queue {
		punctual = punctual && (other == c || time.Since(other.sent[len(other.sent)-1]) < other.ttl())
	}
	switch {
	case g.Status != driver.Granted:
		require.Equal(h.t, want, g.Status, "the answer to a token that another is before")
	case punctual:
		require.Fail(h.t, foul+"the lock was granted to a token that another is before")
	default:
		h.t.late.Store(true)
		require.Fail(h.t, "a token that another is before has the lock, but leases have ended")
	}
}

// granted notes a new holder.
func (h *history) granted(c *contender) {
	h.t.Helper()
	h.holds, h.weight[c] = append(h.holds, c), h.room(c)
	if c.grant.Fence > 0 { // a driver need not have any
		require.Greater(h.t, c.grant.Fence, h.fence, foul+"a fence does not grow")
		h.fence = c.grant.Fence
	}
}

func (h *history) release() {
	h.t.Helper()
	if c := pick(&h.holds); c != nil {
		h.t.Logf("%s is released", c.req.Token[:16])
		c.release()
		delete(h.weight, c)
		h.settle()
	}
}

func (h *history) withdraw() {
	h.t.Helper()
	if c := pick(&h.queue); c != nil {
		h.t.Logf("%s is withdrawn", c.req.Token[:16])
		c.release()
		h.settle()
	}
}

func (h *history) downgrade() {
	h.t.Helper()
	if len(h.holds) > 0 {
		c := h.holds[rand.IntN(len(h.holds))]
		weight := 1 + rand.Int64N(whole)
		h.t.Logf("%s is downgraded to %d", c.req.Token[:16], weight)
		c.downgrade(weight)
		if c.req.Kind == driver.RWMutex {
			weight = 1
		}
		h.weight[c] = min(h.weight[c], weight)
		h.settle()
	}
}

func (h *history) resize() {
	h.t.Helper()
	h.limit, h.settled = 4+rand.Int64N(whole), true
	h.t.Logf("resized to %d", h.limit)
	h.t.contender(h.drivers[0]).resize(h.limit)
	h.settle()
}

// settle requires that the tokens that can have the lock now have it, and no others.
func (h *history) settle() {
	h.t.Helper()
	var kept, refused []*contender
	for _, c := range h.queue {
		switch {
		case h.room(c) > h.limit:
			refused = append(refused, c)
		case len(kept) == 0 && h.fits(c):
			if h.t.push {
				c.pushed()
			}
			c.lock()
			h.granted(c)
		default:
			kept = append(kept, c)
			c.unwoken()
			h.answered(c, driver.Queued)
		}
	}
	h.queue = kept
	for _, c := range refused {
		c.unwoken()
		c.denied(driver.ErrLimitExceeded)
	}
	for _, c := range h.holds {
		require.NoError(h.t, c.renew())
	}
	if len(h.holds) == 0 && !h.settled {
		h.limit = 0
	}
}

// pick takes one of a list, at random.
func pick(list *[]*contender) *contender {
	if len(*list) == 0 {
		return nil
	}
	i := rand.IntN(len(*list))
	c := (*list)[i]
	*list = append((*list)[:i:i], (*list)[i+1:]...)
	return c
}
