// Package referee judges who believed to hold a lock when, and knows nothing of locks: no more are inside
// than there is room for, and fences increase. The rig judges who may come before whom, since it
// knows who waits.
//
// A [Referee] hears from holders while they are inside, or is given what they wrote down, with times of one
// clock, and replays it.
package referee

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Hold is a time in which somebody believed to hold a lock.
type Hold struct {
	Weight int64
	Group  string // Holds of one group count as the first of them; "" is none.
	Fence  int64  // or [Unseen]
	Shared bool   // Its fence has an order only to those of holds that are not shared.

	Asked    time.Duration // when the lock was asked for
	From, To time.Duration // From is when the holder heard of it. It never believed if To is not later.

	By any // for who judges a [Breach]
}

// Unseen is the fence of a hold that tells nobody.
const Unseen = math.MinInt64

func (h *Hold) String() string {
	if h.By != nil {
		return fmt.Sprint(h.By)
	}
	if h.Fence == Unseen {
		return fmt.Sprintf("weight %d, held from %v to %v", h.Weight, h.From, h.To)
	}
	return fmt.Sprintf("weight %d, fence %d, held from %v to %v", h.Weight, h.Fence, h.From, h.To)
}

// Rule is what a breach breaks.
type Rule string

const (
	Room      Rule = "more are inside than there is room for"
	Order     Rule = "a fence is not beyond that of an earlier hold"
	Different Rule = "a fence was given twice"
)

// Breach is a hold that breaks a rule, and those without which it would not.
type Breach struct {
	Rule   Rule
	Hold   *Hold
	Others []*Hold
}

func (b Breach) Error() string {
	text := fmt.Sprintf("%s:\n    %v", b.Rule, b.Hold)
	for _, o := range b.Others {
		text += fmt.Sprintf("\n    %v", o)
	}
	return text
}

// Judge returns what is wrong with these holds.
func (r *Referee) Judge(holds []*Hold) (all []Breach) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// At the same moment holders leave before others ask, and these ask before others hear that they are in.
	const leave, ask, enter = 0, 1, 2
	type event struct {
		at   time.Duration
		what int
		hold *Hold
	}
	var events []event
	for _, h := range holds {
		events = append(events, event{h.Asked, ask, h}, event{h.From, enter, h})
		if h.To > h.From {
			events = append(events, event{h.To, leave, h})
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.what, b.what)) })
	before := map[*Hold]*Hold{}
	for _, e := range events {
		switch e.what {
		case leave:
			r.inside = slices.DeleteFunc(r.inside, func(h *Hold) bool { return h == e.hold })
		case ask:
			before[e.hold] = r.before(e.hold)
		case enter:
			r.entries++
			all = append(all, r.hear(e.hold, before[e.hold])...)
			if e.hold.To > e.hold.From {
				all = append(all, r.enter(e.hold)...)
			}
		}
	}
	r.fouls = append(r.fouls, all...)
	return all
}

// before returns the hold of the largest fence that h must be beyond if it is asked for now.
func (r *Referee) before(h *Hold) *Hold {
	if h.Shared {
		return r.alone
	}
	return r.largest
}

// hear judges the fence of a hold that was asked for after another one.
func (r *Referee) hear(h, before *Hold) (found []Breach) {
	if h.Fence == Unseen {
		return nil
	}
	together := func(other *Hold) bool { return h.Group != "" && h.Group == other.Group }
	if other := r.given[h.Fence]; other != nil && !together(other) {
		found = append(found, Breach{Different, h, []*Hold{other}})
	}
	if before != nil && (h.Fence < before.Fence || h.Fence == before.Fence && !together(before)) {
		found = append(found, Breach{Order, h, []*Hold{before}})
	}
	if r.given == nil {
		r.given = map[int64]*Hold{}
	}
	r.given[h.Fence] = h
	if r.largest == nil || h.Fence > r.largest.Fence {
		r.largest = h
	}
	if !h.Shared && (r.alone == nil || h.Fence > r.alone.Fence) {
		r.alone = h
	}
	return found
}

// enter judges whether there is room for one more.
func (r *Referee) enter(h *Hold) []Breach {
	r.inside = append(r.inside, h)
	used, limit := int64(0), r.Limit
	for i, o := range r.inside {
		if o.Group == "" || !slices.ContainsFunc(r.inside[:i], func(first *Hold) bool { return first.Group == o.Group }) {
			used += o.Weight
		}
	}
	r.peak = max(r.peak, used)
	if r.LimitOf != nil {
		limit = r.LimitOf(r.inside)
	}
	if used <= limit {
		return nil
	}
	return []Breach{{Room, h, slices.Clone(r.inside[:len(r.inside)-1])}}
}
