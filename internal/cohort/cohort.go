// Package cohort lets the goroutines of one client that want the same lock form one
// queue, of which only the first is at the store.
//
// What the store has granted, a [Term], passes from hand to hand within the process for
// as long as its turn lasts. Then the others, in other processes, get theirs: the term
// ends, and whoever is first in the queue asks the store for the next one. So a lock is
// handed over in about the time that it takes to wake a goroutine, instead of a trip to
// the store, and nobody else waits longer than for one turn of each process before them.
package cohort

import (
	"slices"
	"sync"
	"time"
)

// Term is a grant of the store.
type Term[K any] interface {
	comparable

	// Suits reports whether a waiter with that key may have the term after somebody
	// else, now: it was asked for alike, it is still to be trusted, and its turn is not
	// over.
	Suits(key *K) bool
	// Pass notes that somebody else gets it.
	Pass()
	// Stays reports whether the term is to be kept although nobody wants it now.
	Stays() bool
	// Ends is when the turn is over, unless it is extended; zero if that depends on
	// something else than time, until Review.
	Ends() time.Time
}

// Cohort is the queue for one lock. The zero value is one without anybody.
type Cohort[T Term[K], K comparable] struct {
	mu      sync.Mutex
	waiting []*Waiter[T, K] // first in, first out
	asking  *K              // the key of who is at the store; nil if nobody is
	term    T               // in somebody's hands, or idle; the zero value for none
	idle    bool            // kept although nobody holds it
	alarm   *time.Timer     // rings when the turn of the term is over; nil if nobody waits for that
}

// Fate is what becomes of a term.
type Fate int

// The fates.
const (
	Over   Fate = iota + 1 // it has to be given up
	Passed                 // the first in the queue has it
	Kept                   // nobody has it, for now
)

// Waiter is somebody who wants the lock and has to wait for it.
type Waiter[T Term[K], K comparable] struct {
	key  *K
	news chan News[T] // has room for one; a waiter is told one thing
}

// News is what becomes of somebody who wants the lock.
type News[T any] struct {
	Status Status
	// Term is the lock if it is Held; or else the attempt of somebody who gave up, which
	// is to be gone on with because it has a place in the store's queue; or the zero value.
	Term T
}

// Status says what somebody who wants the lock has to do.
type Status int

// The answers.
const (
	Wait Status = iota + 1 // for the news of the waiter
	Busy                   // go away: others are there
	Ask                    // go to the store; then call Won, Bequeath or Failed
	Held                   // nothing: they have the term
)

// News returns the channel on which a waiter is told its news, once.
func (w *Waiter[T, K]) News() <-chan News[T] { return w.news }

// NewWaiter returns a waiter. It can be used again when it is not in a queue.
func NewWaiter[T Term[K], K comparable]() *Waiter[T, K] {
	return &Waiter[T, K]{news: make(chan News[T], 1)}
}

// Join is how somebody comes to want the lock. Terms pass only between those that suit each
// other by their keys, which are
// not changed afterwards. Only if the answer is Wait is the waiter in the queue. ended is a
// term that was idle and does not suit; it has to be given up.
func (c *Cohort[T, K]) Join(w *Waiter[T, K], key *K, wait bool) (news News[T], ended T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var none T
	if c.idle {
		if c.term.Suits(key) {
			c.idle = false
			c.term.Pass()
			return News[T]{Held, c.term}, none
		}
		ended = c.term
		c.drop()
	}
	switch {
	case c.asking == nil && c.term == none && len(c.waiting) == 0:
		c.asking = key
		return News[T]{Status: Ask}, ended
	case !wait:
		return News[T]{Status: Busy}, ended
	}
	w.key = key
	c.waiting = append(c.waiting, w)
	c.advance()
	return News[T]{Status: Wait}, ended
}

// Won notes that the waiter that was at the store was granted a term. An earlier one is
// over.
func (c *Cohort[T, K]) Won(t T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop()
	c.term, c.asking = t, nil
	c.advance()
}

// Bequeath passes the attempt of the waiter that is at the store, who gives up, to the
// next one, if that has the same key. It reports whether it did; else there is still Failed
// to be called.
func (c *Cohort[T, K]) Bequeath(t T) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 || *c.waiting[0].key != *c.asking {
		return false
	}
	c.send(t)
	return true
}

// Failed notes that the waiter that was at the store has given up.
func (c *Cohort[T, K]) Failed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asking = nil
	c.advance()
}

// Next says what follows when the term leaves somebody's hands. It is kept if it may stay
// and nobody waits. A term that is over already does not pass.
func (c *Cohort[T, K]) Next(t T) Fate {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.term != t:
		return Over
	// Whoever is at the store has been longer in the queue than those who are not.
	case c.asking == nil && len(c.waiting) > 0 && t.Suits(c.waiting[0].key):
		w := c.pop()
		next := len(c.waiting) > 0 && *c.waiting[0].key != *w.key
		t.Pass()
		w.news <- News[T]{Held, t} // from here on w is for its goroutine to use
		if next {
			c.advance()
		}
		return Passed
	case c.asking == nil && len(c.waiting) == 0 && t.Stays():
		c.idle = true
		return Kept
	}
	c.drop()
	c.advance()
	return Over
}

// Leave takes out a waiter that gives up. If it is too late for that, the news that it
// was told is returned, and the waiter must deal with it.
func (c *Cohort[T, K]) Leave(w *Waiter[T, K]) (news News[T], told bool) {
	c.mu.Lock()
	if i := slices.Index(c.waiting, w); i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
		c.advance()
		c.mu.Unlock()
		return news, false
	}
	c.mu.Unlock()
	return <-w.news, true
}

// Over notes that a term has come to its end, if it is the present one, or with idle only
// if it is in nobody's hands. It reports whether it was so.
func (c *Cohort[T, K]) Over(t T, idle bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.term != t || idle && !c.idle {
		return false
	}
	c.drop()
	c.advance()
	return true
}

// Evict takes a term away that is in nobody's hands, and returns it, or the zero value.
func (c *Cohort[T, K]) Evict() (ended T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle {
		ended = c.term
		c.drop()
	}
	return ended
}

// Review looks again whether the term suits the first in the queue, after something
// that this depends on has changed.
func (c *Cohort[T, K]) Review() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
}

// Term returns the present term, or the zero value.
func (c *Cohort[T, K]) Term() T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.term
}

// Wanted returns the present term if somebody waits for it, or the zero value.
func (c *Cohort[T, K]) Wanted() T {
	c.mu.Lock()
	defer c.mu.Unlock()
	var none T
	if len(c.waiting) == 0 {
		return none
	}
	return c.term
}

// advance sends the first in the queue to the store, if it cannot have the present term
// later: then its place in the store's queue should be as early as can be. The caller
// holds mu.
func (c *Cohort[T, K]) advance() {
	var none T
	if c.asking != nil || len(c.waiting) == 0 {
		return
	}
	if c.term == none || !c.term.Suits(c.waiting[0].key) {
		c.send(none)
		return
	}
	if c.alarm == nil && !c.term.Ends().IsZero() {
		c.watch(c.term)
	}
}

// watch has advance called when the turn of the term is over, since its holder may hold
// it for long. The caller holds mu.
func (c *Cohort[T, K]) watch(t T) {
	c.alarm = time.AfterFunc(time.Until(t.Ends()), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.term == t {
			c.alarm = nil
			c.advance()
		}
	})
}

// send makes the first in the queue the one who is at the store. The caller holds mu.
func (c *Cohort[T, K]) send(t T) {
	w := c.pop()
	c.asking = w.key
	w.news <- News[T]{Ask, t}
}

func (c *Cohort[T, K]) pop() *Waiter[T, K] {
	w := c.waiting[0]
	c.waiting[0] = nil
	c.waiting = c.waiting[1:]
	return w
}

func (c *Cohort[T, K]) drop() {
	var none T
	c.term, c.idle = none, false
	if c.alarm != nil {
		c.alarm.Stop()
		c.alarm = nil
	}
}
