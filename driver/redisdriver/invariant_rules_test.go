package redisdriver_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// faults returns what is wrong with a lock, nothing if it is as it should be. It takes
// for granted that the server's clock was not set back.
func (r *record) faults() []string {
	if len(r.fields) == 0 {
		return r.wrong
	}
	r.checkForm()
	r.checkWeights()
	r.checkOwner()
	r.checkLeases()
	r.checkFences()
	r.checkTokens()
	r.checkWaiters()
	r.checkQueue()
	r.checkLife()
	return r.wrong
}

// A lock is thin when it is free and there is nothing else to remember.
func (r *record) checkForm() {
	if r.thin == "" && len(r.holders) == 0 && !r.has("head") && !r.has("dead") && !r.has("resized") {
		r.fault("a free lock with nothing to remember is fat")
	}
}

// The weight in use is the sum of the holders' weights, and no more than the limit.
func (r *record) checkWeights() {
	var sum int64
	for token, h := range r.holders {
		if sum += h.weight; r.has("owner") {
			sum = h.weight // they hold it together
		}
		whole := r.kind == driver.Mutex || r.kind == driver.RWMutex && h.weight == wholeLock
		switch {
		case h.weight < 1 || r.kind == driver.Mutex && h.weight != 1 || r.kind == driver.RWMutex && h.weight != 1 && !whole:
			r.fault("%s holds %d", token, h.weight)
		case whole && len(r.holders) > 1 && !r.has("owner"):
			r.fault("%s holds %d, beside %d others", token, h.weight, len(r.holders)-1)
		}
	}
	if r.has("shares") != (len(r.holders) > 1) {
		r.fault("shares is %q, of %d holders", r.fields["shares"], len(r.holders))
	}
	if r.has("shares") && (r.used != sum || r.count != int64(len(r.holders))) {
		r.fault("%d hold %d, the sum of %d holders is %d", r.count, r.used, len(r.holders), sum)
	}
	if sum > r.num("limit") && !r.has("resized") {
		r.fault("%d in use of %q", sum, r.fields["limit"])
	}
	if (len(r.holders)+len(r.waiters) > 0 || r.has("resized")) && r.num("limit") < 1 {
		r.fault("in use, or resized, with limit %q", r.fields["limit"])
	}
}

// wholeLock is what the writer of an RWMutex holds.
const wholeLock = 1 << 30

// If there is an owner, all holders are its: each holds everything, with the same fence.
func (r *record) checkOwner() {
	if !r.has("owner") {
		return
	}
	if len(r.holders) == 0 || r.kind == driver.Semaphore {
		r.fault("owner %q of a %s with %d holders", r.fields["owner"], r.kind, len(r.holders))
	}
	for token, h := range r.holders {
		for other, o := range r.holders {
			if other < token && (h.fence != o.fence || h.weight != o.weight) {
				r.fault("%s and %s of one owner have fences %d and %d, weights %d and %d", token, other, h.fence, o.fence, h.weight, o.weight)
			}
		}
		if h.weight != r.num("limit") {
			r.fault("%s of an owner holds %d of %q", token, h.weight, r.fields["limit"])
		}
	}
}

// No lease ends before the earliest, nor later than a whole lease from now.
func (r *record) checkLeases() {
	for token, h := range r.holders {
		if h.ttl < 1 || h.expires > r.now+h.ttl+graceOf(h.ttl) {
			r.fault("the lease of %s with TTL %d ends in %d ms", token, h.ttl, h.expires-r.now)
		}
		if h.since < 1 || h.since > r.now {
			r.fault("%s holds since %d, now is %d", token, h.since, r.now)
		}
		if r.has("shares") && h.expires < r.earliest {
			r.fault("the lease of %s ends %d ms before the earliest", token, r.earliest-h.expires)
		}
	}
	// Else expire would sweep at every look, taking the clock to be set back.
	if r.has("shares") && r.earliest > r.now+r.span {
		r.fault("the earliest end is in %d ms, the span of that lease %d", r.earliest-r.now, r.span)
	}
}

// Fences are distinct, none is ahead of the clock by more than grants take, and the last is
// known. The numbers of an extension may lie beyond those of others.
func (r *record) checkFences() {
	high := r.num("high")
	if high > (r.now+1)*1000+256 {
		r.fault("fence %d is %d us ahead of the clock", high, high-r.now*1000)
	}
	for token, h := range r.holders {
		if h.fence < 1 || h.fence > h.granted || h.granted > h.last || h.last > high {
			r.fault("%s has fences %d to %d, and to %d, the last was %d", token, h.fence, h.granted, h.last, high)
		}
		for other, o := range r.holders {
			if other >= token || r.has("owner") {
				continue
			}
			if h.fence <= o.granted && o.fence <= h.granted || h.last == o.last {
				r.fault("%s and %s both have fence %d, or %d", token, other, max(h.fence, o.fence), h.last)
			}
		}
	}
}

// A token is one thing, and t:<token> leads to where it stands: to a slot of those without a gap
// for a holder, to a place for a waiter.
func (r *record) checkTokens() {
	stands := map[string]string{}
	slots := map[int64]bool{}
	for token, h := range r.holders {
		stands[token], slots[h.slot] = fmt.Sprint("h", h.slot), true
		if _, ok := r.dead[token]; ok {
			r.fault("%s holds and is dead", token)
		}
	}
	for slot := range int64(len(r.holders)) {
		if !slots[slot+1] {
			r.fault("nobody is in slot %d of %d", slot+1, len(r.holders))
		}
	}
	for place, w := range r.waiters {
		if where, ok := stands[w.token]; ok {
			r.fault("%s waits in place %d and is in %s", w.token, place, where)
		}
		stands[w.token] = fmt.Sprint("w", place)
		if _, ok := r.dead[w.token]; ok {
			r.fault("%s waits and is dead", w.token)
		}
	}
	ways := 0
	for field, where := range r.fields {
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

func (r *record) checkWaiters() {
	for _, w := range r.waiters {
		if w.alive > r.now+w.ttl*2/3 {
			r.fault("waiter %s is alive for %d ms, with TTL %d", w.token, w.alive-r.now, w.ttl)
		}
		if w.heard > 1 || w.ask < 1 || w.weight < 1 || w.ttl < 1 || w.fences < 1 {
			r.fault("waiter %+v", w)
		}
	}
}

// The head comes before all who wait, and they before the tail. It may be the place of
// one who left. All are counted.
func (r *record) checkQueue() {
	places := slices.Sorted(maps.Keys(r.waiters))
	head, tail := r.num("head"), r.num("tail")
	if r.has("head") && (head < 1 || head > tail) {
		r.fault("head %d, tail %d", head, tail)
	}
	if (r.has("tail") != r.has("birth")) || r.has("tail") && tail < 1 {
		r.fault("tail %q, birth %q", r.fields["tail"], r.fields["birth"])
	}
	for _, place := range places {
		if !r.has("head") || place < head || place > tail {
			r.fault("a waiter in place %d, head %q, tail %d", place, r.fields["head"], tail)
		}
	}
	if n := r.num("waiting"); n != int64(len(places)) {
		r.fault("%d are said to wait, and %d do", n, len(places))
	}
}

// The key lasts as long as anything in it, and fences are remembered for a retention
// beyond them.
func (r *record) checkLife() {
	if r.ttl < 0 {
		r.fault("the key would stay for ever")
		return
	}
	end := r.now + r.ttl
	late := func(what string, until int64) {
		if end < until-r.margin {
			r.fault("the key ends %d ms before %s", until-end, what)
		}
	}
	for token, h := range r.holders {
		late("the lease of "+token, h.expires)
	}
	for _, w := range r.waiters {
		late("the patience with "+w.token, w.alive)
	}
	for token, until := range r.dead {
		late("the tombstone of "+token, until)
		if until > r.now+retained.Milliseconds() {
			r.fault("the tombstone of %s stays for %d ms", token, until-r.now)
		}
	}
	late("its fences", r.num("high")/1000+1)
	if r.thin != "" {
		return
	}
	late("it notes", r.num("life"))
	if end > r.num("life")+r.margin+1 {
		r.fault("the key ends %d ms after it notes", end-r.num("life"))
	}
}
