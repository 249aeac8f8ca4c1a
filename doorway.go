package holdfast

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
)

// door names the place where the goroutines of a client queue for a lock.
type door struct {
	kind driver.Kind
	name string
}

// of is the door for those who lock on behalf of an owner: what they hold is not for others
// to unlock. It is a kind of its own, which leaves nothing to remember for most.
func (d door) of(owner string) door {
	if owner != "" {
		d.kind += driver.Kind(" of " + owner)
	}
	return d
}

// owned reports whether it is the door of an owner.
func (d door) owned() bool { return strings.Contains(string(d.kind), " of ") }

// doorway is what a client knows of a lock. It exists only while somebody uses it.
type doorway struct {
	door    door
	line    line
	trouble atomic.Pointer[error]  // what the store says to who asks it; nil if it answers
	ahead   atomic.Pointer[string] // carrier of who has the lock instead; nil if not known

	// The rest is guarded by Client.mu.
	users int    // calls under way, terms and holds
	plain *holds // nil before the first
	party *party // of readers, which others may join; nil if there is none
}

// holds are the leases that the forms of package sync left in a doorway.
type holds struct {
	all   []hold // in the order of their grants
	room  [1]hold
	freed chan struct{} // closed when one of them goes; nil if nobody waits for that
}

// hold is what is left of a lease, in permits; a lock has one, or one for each reader of a
// party. The forms of package sync return nothing to release, so their leases stay here
// until somebody goes out who knows no more than the name.
type hold struct {
	lease *Lease
	left  int64
}

// approach returns the doorway, with one more user, unless the client is closed.
func (c *Client) approach(d door) *doorway {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	return c.used(d)
}

// used returns the doorway, with one more user. The caller holds mu.
func (c *Client) used(d door) *doorway {
	w := c.doors[d]
	if w == nil {
		w = &doorway{door: d}
		c.doors[d] = w
	}
	w.users++
	return w
}

// known reports whether anybody uses the doorway.
func (c *Client) known(d door) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.doors[d] != nil
}

func (c *Client) withdraw(w *doorway) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unused(w)
}

// unused takes a user away. The caller holds mu.
func (c *Client) unused(w *doorway) {
	if w.users--; w.users == 0 {
		delete(c.doors, w.door)
	}
}

// barred returns nil if no hold keeps others out, of the lock or from reading; else a
// channel that is closed when one goes. Those that are good have their leases for that:
// it matters here if the lease is lost, for a hold lasts until it is undone. So with
// lost they alone count.
func (c *Client) barred(w *doorway, shared, lost bool) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.plain == nil || w.door.owned() { // the store lets an owner in beside himself
		return nil
	}
	for _, h := range w.plain.all {
		together := shared && h.lease.a.req.Shared
		if !together && (!lost || h.lease.ended() != nil) {
			if w.plain.freed == nil {
				w.plain.freed = make(chan struct{})
			}
			return w.plain.freed
		}
	}
	return nil
}

// hold puts down the lease of a user, who goes, unless Close has released it.
func (c *Client) hold(w *doorway, l *Lease) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		c.unused(w)
		return false
	}
	if w.plain == nil {
		w.plain = &holds{}
		w.plain.all = w.plain.room[:0]
	}
	w.plain.all = append(w.plain.all, hold{l, max(1, l.a.req.Weight)})
	return true
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
	if w == nil || w.plain == nil {
		return nil, false
	}
	var lost, same, rest []int
	var sum int64
	for i, h := range w.plain.all {
		switch {
		case h.lease.a.req.Shared != shared:
			continue
		case h.lease.ended() != nil || h.lease.expired():
			lost = append(lost, i)
		case h.left == n && !shared: // of readers' leases the oldest goes first: nobody joins it
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
		h := &w.plain.all[i]
		part := min(n, h.left)
		if part == 0 {
			break
		}
		h.left -= part
		n -= part
		taken = append(taken, *h)
	}
	before := len(w.plain.all)
	w.plain.all = slices.DeleteFunc(w.plain.all, func(h hold) bool { return h.left == 0 })
	c.gone(w, before-len(w.plain.all))
	return taken, true
}

// unholdOne is unhold of 1. Mostly there is only one hold.
func (c *Client) unholdOne(d door, shared bool) (h hold, ok bool) {
	c.mu.Lock()
	if w := c.doors[d]; w != nil && w.plain != nil && len(w.plain.all) == 1 && w.plain.all[0].lease.a.req.Shared == shared {
		w.plain.all[0].left--
		if h = w.plain.all[0]; h.left == 0 {
			w.plain.all = w.plain.all[:0]
			c.gone(w, 1)
		}
		c.mu.Unlock()
		return h, true
	}
	c.mu.Unlock()
	taken, ok := c.unhold(d, shared, 1)
	if ok {
		h = taken[0]
	}
	return h, ok
}

// gone notes that n holds are undone. The caller holds mu.
func (c *Client) gone(w *doorway, n int) {
	if n > 0 && w.plain.freed != nil {
		close(w.plain.freed)
		w.plain.freed = nil
	}
	for range n {
		c.unused(w)
	}
}
