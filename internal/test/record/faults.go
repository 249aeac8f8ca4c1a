package record

import (
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// Faults returns what is wrong with a lock, nothing if it is as every script must leave it.
func (r *Record) Faults() []string {
	if len(r.Fields) > 0 {
		r.checkWeights()
		r.checkOwner()
		r.checkLeases()
		r.checkFences()
		r.checkTokens()
		r.checkQueue()
		r.checkLife()
	}
	return r.wrong
}

// wholeLock is what the writer of an RWMutex holds.
const wholeLock = 1 << 30

// The weight in use is the sum of the holders' weights, and no more than the limit.
func (r *Record) checkWeights() {
	var sum int64
	for token, h := range r.Holders {
		if sum += h.Weight; r.Has("owner") {
			sum = h.Weight // they hold it together
		}
		whole := r.Kind == driver.Mutex || r.Kind == driver.RWMutex && h.Weight == wholeLock
		switch {
		case h.Weight < 1 || r.Kind != driver.Semaphore && h.Weight != 1 && (r.Kind == driver.Mutex || !whole):
			r.fault("%s holds %d", token, h.Weight)
		case whole && len(r.Holders) > 1 && !r.Has("owner"):
			r.fault("%s holds %d, beside %d others", token, h.Weight, len(r.Holders)-1)
		}
	}
	if r.Has("shares") != (len(r.Holders) > 1) {
		r.fault("shares is %q, of %d holders", r.Fields["shares"], len(r.Holders))
	}
	if r.Has("shares") && (r.Shares[1] != sum || r.Shares[0] != int64(len(r.Holders))) {
		r.fault("%d hold %d, the sum of %d holders is %d", r.Shares[0], r.Shares[1], len(r.Holders), sum)
	}
	if sum > r.Num("limit") && !r.Has("resized") {
		r.fault("%d in use of %q", sum, r.Fields["limit"])
	}
	if (len(r.Holders)+len(r.Waiters) > 0 || r.Has("resized")) && r.Num("limit") < 1 {
		r.fault("in use, or resized, with limit %q", r.Fields["limit"])
	}
}

// If there is an owner, all holders are its: each holds everything, with the same fence.
func (r *Record) checkOwner() {
	if !r.Has("owner") {
		return
	}
	if len(r.Holders) == 0 || r.Kind == driver.Semaphore {
		r.fault("owner %q of a %s with %d holders", r.Fields["owner"], r.Kind, len(r.Holders))
	}
	for token, h := range r.Holders {
		for other, o := range r.Holders {
			if other < token && (h.Fence != o.Fence || h.Weight != o.Weight) {
				r.fault("%s and %s of one owner have fences %d and %d, weights %d and %d", token, other, h.Fence, o.Fence, h.Weight, o.Weight)
			}
		}
		if h.Weight != r.Num("limit") {
			r.fault("%s of an owner holds %d of %q", token, h.Weight, r.Fields["limit"])
		}
	}
}

// No lease ends before the earliest, nor later than a whole lease from now.
func (r *Record) checkLeases() {
	now := r.Now + r.Back
	for token, h := range r.Holders {
		if h.TTL < 1 || h.Expires > now+h.TTL+Grace(h.TTL) {
			r.fault("the lease of %s with TTL %d ends in %d ms", token, h.TTL, h.Expires-r.Now)
		}
		if h.Since < 1 || h.Since > now {
			r.fault("%s holds since %d, now is %d", token, h.Since, r.Now)
		}
		if r.Has("shares") && h.Expires < r.Shares[2] {
			r.fault("the lease of %s ends %d ms before the earliest", token, r.Shares[2]-h.Expires)
		}
	}
	// Else expire would sweep at every look, taking the clock to be set back.
	if r.Has("shares") && r.Shares[2] > now+r.Shares[3] {
		r.fault("the earliest end is in %d ms, the span of that lease %d", r.Shares[2]-r.Now, r.Shares[3])
	}
}

// Grace is how much longer than its TTL a lease lasts in the store.
func Grace(ttl int64) int64 { return min(500, max(5, ttl/20)) }

// Fences are distinct, none is ahead of the clock by more than grants take, and the last is
// known.
func (r *Record) checkFences() {
	high := r.Num("high")
	if high > (r.Now+r.Back+1)*1000+256 {
		r.fault("fence %d is %d us ahead of the clock", high, high-r.Now*1000)
	}
	for token, h := range r.Holders {
		if h.Fence < 1 || h.Fence > h.Last || h.Last > high {
			r.fault("%s has fences %d to %d, the last was %d", token, h.Fence, h.Last, high)
		}
		for other, o := range r.Holders {
			if other < token && !r.Has("owner") && h.Fence <= o.Last && o.Fence <= h.Last {
				r.fault("%s and %s both have fence %d", token, other, max(h.Fence, o.Fence))
			}
		}
	}
}

// A token is one thing, and t:<token> leads to where it stands: to a slot of those without a gap
// for a holder, to a place for a waiter.
func (r *Record) checkTokens() {
	stands := map[string]string{}
	slots := map[int64]bool{}
	for token, h := range r.Holders {
		stands[token], slots[h.Slot] = fmt.Sprint("h", h.Slot), true
		if _, ok := r.Dead[token]; ok {
			r.fault("%s holds and is dead", token)
		}
	}
	for slot := range int64(len(r.Holders)) {
		if !slots[slot+1] {
			r.fault("nobody is in slot %d of %d", slot+1, len(r.Holders))
		}
	}
	for place, w := range r.Waiters {
		if where, ok := stands[w.Token]; ok {
			r.fault("%s waits in place %d and is in %s", w.Token, place, where)
		}
		stands[w.Token] = fmt.Sprint("w", place)
		if _, ok := r.Dead[w.Token]; ok {
			r.fault("%s waits and is dead", w.Token)
		}
	}
	ways := 0
	for field, where := range r.Fields {
		if token, ok := strings.CutPrefix(field, "t:"); ok {
			if ways++; stands[token] != where {
				r.fault("%s is said to be in %q, and is in %q", token, where, stands[token])
			}
		}
	}
	if ways != len(stands) {
		r.fault("%d tokens and %d ways to them", len(stands), ways)
	}
}

// The head comes before all who wait, and they before the tail. It may be the place of
// one who left. All are counted.
func (r *Record) checkQueue() {
	head, tail := r.Num("head"), r.Num("tail")
	if r.Has("head") && (head < 1 || head > tail) {
		r.fault("head %d, tail %d", head, tail)
	}
	if (r.Has("tail") != r.Has("birth")) || r.Has("tail") && tail < 1 {
		r.fault("tail %q, birth %q", r.Fields["tail"], r.Fields["birth"])
	}
	for place, w := range r.Waiters {
		if !r.Has("head") || place < head || place > tail {
			r.fault("a waiter in place %d, head %q, tail %d", place, r.Fields["head"], tail)
		}
		if w.Alive > r.Now+r.Back+w.TTL*2/3 {
			r.fault("waiter %s is alive for %d ms, with TTL %d", w.Token, w.Alive-r.Now, w.TTL)
		}
		if w.Heard > 1 || w.Ask < 1 || w.Weight < 1 || w.TTL < 1 || w.Fences < 1 {
			r.fault("waiter %+v", w)
		}
	}
	if n := r.Num("waiting"); n != int64(len(r.Waiters)) {
		r.fault("%d are said to wait, and %d do", n, len(r.Waiters))
	}
}

// The key lasts as long as anything in it, and fences are remembered for a retention
// beyond them. A lock is thin when it is free and there is nothing else to remember.
func (r *Record) checkLife() {
	if r.Thin == "" && len(r.Holders)+len(r.Waiters) == 0 && !r.Has("dead") && !r.Has("resized") {
		r.fault("a free lock with nothing to remember is fat")
	}
	if r.TTL < 0 {
		r.fault("the key would stay for ever")
		return
	}
	end := r.Now + r.TTL
	late := func(what string, until int64) {
		if end < until-r.Margin {
			r.fault("the key ends %d ms before %s", until-end, what)
		}
	}
	for token, h := range r.Holders {
		late("the lease of "+token, h.Expires)
	}
	for _, w := range r.Waiters {
		late("the patience with "+w.Token, w.Alive)
	}
	for token, until := range r.Dead {
		late("the tombstone of "+token, until-r.Back)
		if until > r.Now+r.Back+r.Retention {
			r.fault("the tombstone of %s stays for %d ms", token, until-r.Now)
		}
	}
	late("its fences", r.Num("high")/1000+1)
	if r.Thin != "" {
		return
	}
	late("it notes", r.Num("life"))
	if end > r.Num("life")+r.Margin+1 {
		r.fault("the key ends %d ms after it notes", end-r.Num("life"))
	}
}
