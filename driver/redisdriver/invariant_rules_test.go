package redisdriver_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// faults returns what is wrong with a lock, nothing if it is as it should be. It takes
// for granted that the server's clock was not set back.
func (r *record) faults() []string {
	if len(r.fields) == 0 {
		return nil
	}
	r.checkWeights()
	r.checkLeases()
	r.checkOwner()
	r.checkFences()
	r.checkSeats()
	r.checkQueue()
	r.checkTokens()
	r.checkLife()
	return r.wrong
}

// What is held is the sum of what the holders have, and no more than there is.
func (r *record) checkWeights() {
	if r.kind == driver.Mutex {
		for _, field := range []string{"expires", "ttl", "holder"} {
			if r.has(field) != r.has("token") {
				r.fault("a mutex with token %q has %s %q", r.fields["token"], field, r.fields[field])
			}
		}
		return
	}
	var sum int64
	for token, h := range r.holders {
		sum += h.weight
		if h.weight < 1 {
			r.fault("%s holds nothing", token)
		}
		if r.kind == driver.RWMutex && h.weight != 1 && (h.weight != wholeLock || len(r.holders) > 1) {
			r.fault("%s holds %d, beside %d others", token, h.weight, len(r.holders)-1)
		}
	}
	if r.num("used") != sum || r.has("used") != (len(r.holders) > 0) {
		r.fault("used is %q, the sum of %d holders %d", r.fields["used"], len(r.holders), sum)
	}
	if sum > r.num("limit") && !r.has("resized") {
		r.fault("%d in use of %q", sum, r.fields["limit"])
	}
	if len(r.holders)+len(r.waiters) > 0 && r.num("limit") < 1 {
		r.fault("in use, with limit %q", r.fields["limit"])
	}
	if r.has("resized") && (r.fields["resized"] != "1" || !r.has("limit")) {
		r.fault("resized is %q, limit %q", r.fields["resized"], r.fields["limit"])
	}
}

// wholeLock is what the writer of an RWMutex holds.
const wholeLock = 1 << 30

// No lease ends before the earliest, nor later than a whole lease from now.
func (r *record) checkLeases() {
	for token, h := range r.holders {
		if h.ttl < 1 || h.expires > r.now+h.ttl+graceOf(h.ttl) {
			r.fault("the lease of %s with TTL %d ends in %d ms", token, h.ttl, h.expires-r.now)
		}
		if r.kind != driver.Mutex && h.expires < r.num("earliest") {
			r.fault("the lease of %s ends %d ms before the earliest", token, r.num("earliest")-h.expires)
		}
	}
	if r.kind == driver.Mutex {
		return
	}
	for _, field := range []string{"earliest", "span"} {
		if r.has(field) != r.has("used") {
			r.fault("used is %q, %s %q", r.fields["used"], field, r.fields[field])
		}
	}
	// Else expire would sweep at every look, taking the clock to be set back.
	if r.has("used") && r.num("earliest") > r.now+r.num("span") {
		r.fault("the earliest end is in %d ms, the span of that lease %d", r.num("earliest")-r.now, r.num("span"))
	}
}

// Fences are distinct, none is ahead of the clock by more than grants take, and the last is
// known.
func (r *record) checkFences() {
	last := r.num("fence") + cmp.Or(r.num("reserved"), 1) - 1
	if last > (r.now+1)*1000+256 {
		r.fault("fence %d is %d us ahead of the clock", last, last-r.now*1000)
	}
	for token, h := range r.holders {
		if h.fence < 1 || h.fence > h.granted || h.granted > h.last || h.last > last {
			r.fault("%s has fences %d to %d, and to %d, the last was %d", token, h.fence, h.granted, h.last, last)
		}
		for other, o := range r.holders {
			if other < token && h.fence <= o.granted && o.fence <= h.granted {
				r.fault("%s and %s both have fence %d", token, other, max(h.fence, o.fence))
			}
		}
	}
	if r.has("reserved") && r.num("reserved") < 1 {
		r.fault("reserved is %q", r.fields["reserved"])
	}
}

// Each waiter's record leads to its token and back.
func (r *record) checkSeats() {
	seats := 0
	for field := range r.fields {
		if field[:min(2, len(field))] == "s:" {
			seats++
		}
	}
	if seats != len(r.waiters) {
		r.fault("%d waiters and %d ways back to them", len(r.waiters), seats)
	}
	for place, w := range r.waiters {
		if back := "s:" + w.token; !r.has(back) || r.num(back) != place {
			r.fault("%s waits in place %d, and is said to be in %q", w.token, place, r.fields[back])
		}
		if w.alive > r.now+w.ttl*2/3 {
			r.fault("waiter %s is alive for %d ms, with TTL %d", w.token, w.alive-r.now, w.ttl)
		}
		if w.vote < 1 || w.vote > 3 || w.ask < 1 || w.weight < 1 || w.ttl < 1 || w.fences < 1 {
			r.fault("waiter %+v", w)
		}
	}
}

// The head comes before all who wait, and they before the tail. It may be the place of
// one who left. Before skip are only those whose client had nobody listening.
func (r *record) checkQueue() {
	places := slices.Sorted(maps.Keys(r.waiters))
	head, tail, skip := r.num("head"), r.num("tail"), r.num("skip")
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
		if place < skip && r.waiters[place].vote != 2 {
			r.fault("place %d was passed over, with vote %d", place, r.waiters[place].vote)
		}
	}
	if _, ok := r.waiters[head]; r.has("skip") && (!ok || skip <= head || skip > tail+1) {
		r.fault("skip %d, head %q, tail %d, waiters in %v", skip, r.fields["head"], tail, places)
	}
}

// A token is one thing: holder, waiter or dead.
func (r *record) checkTokens() {
	for _, w := range r.waiters {
		if _, ok := r.holders[w.token]; ok {
			r.fault("%s holds and waits", w.token)
		}
		if _, ok := r.dead[w.token]; ok {
			r.fault("%s waits and is dead", w.token)
		}
	}
	for token := range r.holders {
		if _, ok := r.dead[token]; ok {
			r.fault("%s holds and is dead", token)
		}
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
	if r.has("fence") {
		late("its fences", (r.num("fence")+cmp.Or(r.num("reserved"), 1))/1000)
	}
}

// An owner holds for as long as the token of it whose lease ends last, and nobody has a
// part in what no owner holds.
func (r *record) checkOwner() {
	var last int64
	for token, p := range r.parts {
		last = max(last, p.expires)
		if p.expires > r.now+p.ttl+graceOf(p.ttl) {
			r.fault("the part of %s ends in %d ms, with TTL %d", token, p.expires-r.now, p.ttl)
		}
		if _, dead := r.dead[token]; dead && p.expires >= r.now {
			r.fault("%s has a part and is dead", token)
		}
		for _, w := range r.waiters {
			if w.token == token && p.expires >= r.now {
				r.fault("%s has a part and waits", token)
			}
		}
	}
	owned := false
	for who, h := range r.holders {
		if strings.HasPrefix(who, " ") {
			owned = true
			if h.expires != last || len(r.holders) > 1 {
				r.fault("%q holds until %d, its tokens until %d, beside %d others", who, h.expires, last, len(r.holders)-1)
			}
		}
	}
	if len(r.parts) > 0 && !owned {
		r.fault("%d parts in what no owner holds", len(r.parts))
	}
}
