package main

import (
	"slices"
	"strings"
	"time"
)

// Locks of some slots are stolen. A thief holds instead of those that held before, and these
// hear of it a little later. So a holder that was robbed counts no more from the moment on at
// which the thief asked, and then there is
//
//	no third holder    those that were not robbed are never too many
//	nobody deaf        a victim believes for no longer than its TTL after the thief had the lock
//	nobody slandered   the thief whom a victim names has stolen that lock, unless data were lost:
//	                   then a token can be granted again that was robbed before its process heard
//	nobody overtaken   waiters keep their places, see judgeOrder; a thief comes before them
//
// A theft that nobody confirmed, as of a thief that was killed, may have happened at any time
// until the last of its messages has arrived, and its lease is over.

const stealing = "steal" // a mode

// mayCome is how long after its end a theft that failed may still matter: a request of it can be
// late by two TTL, and its lease lasts for one.
const mayCome = int64(4 * ttl)

func (o *op) theft() bool { return o.mode == stealing }

// over is the last moment of which something is known of an operation.
func (o *op) over() int64 { return max(o.invoked, o.returned, o.believed, o.gives, o.gave) }

// thefts are those of one lock.
type thefts struct{ done, unclear []*op }

func theftsOf(ops []*op) (t thefts) {
	for _, o := range ops {
		switch {
		case o.theft() && o.granted():
			t.done = append(t.done, o)
		case o.theft():
			t.unclear = append(t.unclear, o)
		}
	}
	return t
}

// markRobbed notes since when holders may have been robbed.
func markRobbed(all []*op) {
	for _, ops := range byLock(all) {
		t := theftsOf(ops)
		for _, o := range ops {
			o.robbed = 0
			if o.granted() {
				o.robbed = t.since(o)
			}
		}
	}
}

// since returns the earliest moment at which the hold may have been stolen, or 0.
func (t thefts) since(o *op) (from int64) {
	see := func(thief *op) {
		if thief.id != o.id && thief.invoked < o.over() && (from == 0 || thief.invoked < from) {
			from = thief.invoked
		}
	}
	for _, thief := range t.done {
		if thief.fence > o.fence {
			see(thief)
		}
	}
	for _, thief := range t.unclear {
		if o.returned < thief.over()+mayCome {
			see(thief)
		}
	}
	return from
}

// namedIn returns the holder's text in a cause, such as worker-3.
func namedIn(cause string) (text string, ok bool) { return strings.CutPrefix(cause, "stolen:") }

// judgeThefts looks for victims that did not hear in time, and for causes that name somebody else.
func (f *findings) judgeThefts(all []*op, calms [][2]int64, unsafe windows) {
	for _, ops := range byLock(all) {
		t := theftsOf(ops)
		f.steals += len(t.done)
		for _, o := range ops {
			if o.granted() && o.robbed != 0 {
				f.judgeVictim(o, t, calms, unsafe)
			}
			by, named := namedIn(o.cause)
			if named && !unsafe.touch(o.invoked, o.gave) && !slices.ContainsFunc(append(t.done, t.unclear...), func(thief *op) bool {
				return thief.worker() == by && thief.invoked < o.gave && (!thief.granted() || thief.fence > o.fence)
			}) {
				f.slandered++
				f.example("slandered", "%v, stolen by %s", o, by)
			}
		}
	}
}

// judgeVictim judges a holder by the first that has surely stolen from it.
func (f *findings) judgeVictim(o *op, t thefts, calms [][2]int64, unsafe windows) {
	var thief *op
	for _, one := range t.done {
		surely := one.fence > o.fence && o.id != one.id && o.returned < one.invoked && one.returned < max(o.gives, o.believed)
		if surely && (thief == nil || one.fence < thief.fence) {
			thief = one
		}
	}
	if thief == nil {
		return
	}
	f.victims++
	if _, named := namedIn(o.cause); named {
		f.named++
	}
	late := time.Duration(o.believed - thief.returned)
	calm := slices.ContainsFunc(calms, func(c [2]int64) bool { return c[0] < thief.invoked && o.over() < c[1] })
	switch {
	case late > ttl && !unsafe.touch(thief.invoked, o.believed):
		f.deaf++
		f.example("deaf", "%v, stolen by %v", o, thief)
	case calm && o.released != "ok":
		f.heard = append(f.heard, max(0, late))
	}
}
