package memdriver

import (
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// claim is what one token holds, or waits for.
type claim struct {
	driver.Request
	weight int64
	until  time.Time // the end of the lease; of a waiter, of the patience with its silence
	since  time.Time
	fence  int64
	fences int64 // how many it was granted, from that on
	tag    string
}

// lock is the state of one lock: who holds it, and who waits for it.
type lock struct {
	limit   int64 // of the weights that are held
	resized bool  // what requests say of the limit does not count
	holders []*claim
	queue   []*claim
	last    *claim               // that was granted
	told    *claim               // the waiter that knows when the next lease ends
	dead    map[string]time.Time // tokens that were given up, and until when it is known
	used    time.Time
}

func find(claims []*claim, token string) *claim {
	for _, c := range claims {
		if c.Token == token {
			return c
		}
	}
	return nil
}

func (l *lock) idle() bool { return len(l.holders)+len(l.queue) == 0 }

// left is how much nobody holds. It is negative after the limit was lowered.
func (l *lock) left() int64 {
	left := l.limit
	for _, h := range l.holders {
		left -= h.weight
	}
	return left
}

// kin is a holder that lets c hold the lock beside it: one of the same owner.
func (l *lock) kin(c *claim) *claim {
	for _, h := range l.holders {
		if c.Owner != "" && h.Owner == c.Owner && c.Kind != driver.Semaphore && h.weight == l.limit && c.weight == l.limit {
			return h
		}
	}
	return nil
}

// may reports whether it is the turn of c, which waits or has just come.
func (l *lock) may(c *claim) bool {
	first := len(l.queue) == 0 || l.queue[0] == c
	return first && c.weight <= l.left() || l.kin(c) != nil
}

// expire drops the holders whose leases are over, and the waiters that have been silent
// for too long.
func (l *lock) expire(now time.Time) {
	over := func(c *claim) bool { return !now.Before(c.until) }
	l.holders = slices.DeleteFunc(l.holders, over)
	l.queue = slices.DeleteFunc(l.queue, over)
}

// drop takes from a token what it holds, or its place in the queue.
func (l *lock) drop(token string) (dropped bool) {
	is := func(c *claim) bool {
		dropped = dropped || c.Token == token
		return c.Token == token
	}
	l.holders = slices.DeleteFunc(l.holders, is)
	l.queue = slices.DeleteFunc(l.queue, is)
	return dropped
}

// bury remembers that a token was given up.
func (l *lock) bury(token string, now time.Time) {
	maps.DeleteFunc(l.dead, func(_ string, until time.Time) bool { return now.After(until) })
	l.dead[token] = now.Add(retention)
}

// extend lets a lease last its TTL from now on. It only lengthens: what comes late may
// speak of another TTL.
func (c *claim) extend(now time.Time, ttl time.Duration) {
	if end := now.Add(ttl); end.After(c.until) {
		c.until = end
	}
}

// granted is the answer to an ask that found the lock held by its token.
func (c *claim) granted(ask uint64) driver.Grant {
	return driver.Grant{Status: driver.Granted, Ask: ask, Fence: c.fence, Fences: c.fences}
}

// notice tells a holder that wants to know it if somebody waits.
func (l *lock) notice(h *claim) {
	if h.Notice && len(l.queue) > 0 {
		h.wake(driver.Grant{Status: driver.Wanted})
	}
}

func (c *claim) wake(g driver.Grant) {
	if c.Wake != nil {
		c.Wake(g)
	}
}

// inform tells the waiter that has become the first to ask, for nobody tells when a lease
// ends. That is not needed for a waiter that asks before that time anyway, nor for the one
// that is asking now.
func (l *lock) inform(asking string) {
	if len(l.queue) == 0 || len(l.holders) == 0 || l.queue[0] == l.told {
		return
	}
	l.told = l.queue[0]
	heartbeat := l.told.until.Add(l.told.TTL/3 - patience(l.told.TTL))
	if l.told.Token != asking && heartbeat.After(l.end()) {
		l.told.wake(driver.Grant{Status: driver.Queued})
	}
}

// end is when the next lease of a holder ends.
func (l *lock) end() time.Time {
	end := l.holders[0].until
	for _, h := range l.holders {
		if h.until.Before(end) {
			end = h.until
		}
	}
	return end
}

// patience is for how long a waiter may be silent.
func patience(ttl time.Duration) time.Duration { return ttl * 2 / 3 }

// answer is what a token is told that cannot have the lock now. The first waiter should ask
// when a lease ends, for nobody will tell it.
func (l *lock) answer(c *claim, s driver.Status, next bool, now time.Time) driver.Grant {
	g := driver.Grant{Status: s, Behind: c.weight <= l.left()}
	if next && len(l.holders) > 0 {
		g.RetryAfter = l.end().Sub(now)
	}
	for _, h := range l.holders {
		if h.tag != "" {
			g.HolderTag = h.tag
		}
	}
	if !g.Behind {
		g.Holder, g.HeldFor, g.HolderFence = l.holders[0].Holder, now.Sub(l.holders[0].since), l.holders[0].fence
	}
	return g
}
