package holdfast

import (
	"slices"

	"golang.org/x/sync/semaphore"

	"github.com/holdfast-go/holdfast/driver"
)

// door names the place where the goroutines of a client queue for a lock.
type door struct {
	kind  driver.Kind
	name  string
	owner string // what is held on behalf of one is not for others to unlock
}

// doorway is where goroutines that use the forms of package sync come in, first come,
// first served: one at a time, or readers together. These forms return nothing to
// release, so the leases stay here until somebody goes out who knows no more than the
// name. It exists only while somebody uses it.
type doorway struct {
	room  *semaphore.Weighted
	users int    // inside or waiting; under Client.mu, like holds
	holds []hold // in the order of their grants
	last  *Lease // of who went out last
}

// everyone is the size of a room: who comes alone takes all of it.
const everyone = 1 << 30

func width(shared bool) int64 {
	if shared {
		return 1
	}
	return everyone
}

// hold is what is left of a lease, in permits. A lock has one.
type hold struct {
	lease *Lease
	left  int64
}

// enter goes in, waiting if it may.
func (c *Client) enter(d door, shared, wait bool, op *AcquireOp) error {
	w := c.approach(d)
	if w != nil && d.owner != "" { // the store lets the same owner in beside itself
		return nil
	}
	if w != nil && w.room.TryAcquire(width(shared)) {
		return nil
	}
	if w != nil && op != nil {
		op.Contended = true
		op.block(c.inside(w)...)
	}
	switch {
	case w == nil:
		return ErrClosed
	case !wait:
		c.withdraw(d)
		return ErrLocked
	case w.room.Acquire(c.closing, width(shared)) != nil:
		c.withdraw(d)
		return ErrClosed
	case op != nil:
		op.block(c.before(w, shared))
	}
	return nil
}

// inside returns the carriers of those who are inside.
func (c *Client) inside(w *doorway) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var carriers []string
	for _, h := range w.holds {
		carriers = append(carriers, h.lease.a.carrier)
	}
	return carriers
}

// before returns the carrier of who went out just before somebody came in, unless both
// are readers, who are not in each other's way.
func (c *Client) before(w *doorway, shared bool) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.last == nil || shared && w.last.a.req.Shared {
		return ""
	}
	return w.last.a.carrier
}

// leave goes out, and lets the next ones in.
func (c *Client) leave(d door, shared bool) {
	if w := c.withdraw(d); d.owner == "" {
		w.room.Release(width(shared))
	}
}

// approach returns the doorway, with one more user, unless the client is closed.
func (c *Client) approach(d door) *doorway {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	w := c.doors[d]
	if w == nil {
		w = &doorway{room: semaphore.NewWeighted(everyone)}
		c.doors[d] = w
	}
	w.users++
	return w
}

func (c *Client) withdraw(d door) *doorway {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.doors[d]
	if w.users--; w.users == 0 {
		delete(c.doors, d)
	}
	return w
}

// hold puts down the lease of somebody inside.
func (c *Client) hold(d door, l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.doors[d]
	w.holds = append(w.holds, hold{l, max(1, l.a.req.Weight)})
}

// unhold takes n away from the holds that are shared, or are not, and returns them as
// they are then. It reports false, and takes nothing, if there is not as much.
//
// Nobody says which lease they mean, and those that are lost are as good as the others.
// They come first: to end a lease that is still good, for somebody who thinks of one
// that is lost, would let in a stranger beside its real owner. The clock is asked, too:
// just after a suspension nobody has been told yet what was lost meanwhile.
func (c *Client) unhold(d door, shared bool, n int64) ([]hold, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.doors[d]
	if w == nil {
		return nil, false
	}
	var lost, same, rest []int
	var sum int64
	for i, h := range w.holds {
		switch {
		case h.lease.a.req.Shared != shared:
			continue
		case h.lease.ended() != nil || h.lease.expired():
			lost = append(lost, i)
		case h.left == n:
			same = append(same, i)
		default:
			rest = append(rest, i)
		}
		sum += h.left
	}
	if sum < n {
		return nil, false
	}
	var taken []hold
	for _, i := range slices.Concat(lost, same, rest) {
		h := &w.holds[i]
		part := min(n, h.left)
		if part == 0 {
			break
		}
		h.left -= part
		n -= part
		taken = append(taken, *h)
		w.last = h.lease
	}
	w.holds = slices.DeleteFunc(w.holds, func(h hold) bool { return h.left == 0 })
	return taken, true
}
