package drivertest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// verb is what a step does. One with a slot speaks of the token in use there, or if there is none, or
// the step is Late, of the one before.
type verb string

const (
	asks      verb = "asks"      // with a new token, or again
	straggles verb = "straggles" // the first ask of the token arrives again; or Late, of the last that is dead
	renews    verb = "renews"
	releases  verb = "releases"  // and the slot goes on with a new token
	unsettled verb = "unsettled" // the same, while an ask may be under way
	crashes   verb = "crashes"   // the slot goes on with a new token; the old one is left
	downgrade verb = "downgrades"
	attaches  verb = "attaches" // a new token in the slot takes over what the old one holds
	steals    verb = "steals"   // a new token in the slot takes the lock from all holders
	force     verb = "force"
	resize    verb = "resize"
	passes    verb = "passes" // time, so much of it or until the next lease ends
)

// step is one thing that happens. Its meaning depends on itself and the steps before, so that a list
// that has failed can be shortened.
type step struct {
	Do    verb
	Slot  int
	Late  bool
	Wait  bool
	Share bool
	Long  bool // the TTL
	Bound int64
	Owner string
	N     int64 // weight, new limit, or time
	Limit int64
	Fence int64 // how many
}

// String leaves out what is zero.
func (s step) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "{%s %d", s.Do, s.Slot)
	for _, f := range []struct {
		name  string
		value any
	}{{"late", s.Late}, {"waiting", s.Wait}, {"shared", s.Share}, {"long", s.Long}, {"bound", s.Bound}, {"owner", s.Owner},
		{"n", s.N}, {"limit", s.Limit}, {"fences", s.Fence}} {
		if text := fmt.Sprint(f.value); text != "0" && text != "false" && text != "" {
			fmt.Fprintf(&b, ", %s %s", f.name, text)
		}
	}
	return b.String() + "}"
}

// slots is how many tokens are in use at most, beside those that were left.
const slots = 6

// chances are how often each verb comes. In quiet games nothing happens that a store must remember:
// the lock is free again and again.
var chances = []struct {
	do          verb
	often, calm int
	needs       Ability
}{
	{asks, 10, 10, ""},
	{releases, 3, 6, ""},
	{unsettled, 2, 0, ""},
	{renews, 3, 1, ""},
	{straggles, 3, 1, ""},
	{crashes, 1, 0, ""},
	{passes, 3, 0, ""},
	{force, 1, 0, Force},
	{steals, 1, 0, Steal},
	{attaches, 1, 0, Attach},
	{downgrade, 2, 1, Downgrade},
	{resize, 4, 0, Resize},
}

// game returns random steps of a kind of lock, for a driver that has those abilities.
func game(random *rand.Rand, k driver.Kind, can map[Ability]bool, length int, quiet bool) (steps []step) {
	var verbs []verb
	for _, c := range chances {
		often := c.often
		if quiet {
			often = c.calm
		}
		unfit := c.do == downgrade && k == driver.Mutex || c.do == resize && k != driver.Semaphore ||
			c.do == steals && k == driver.Semaphore || c.do == passes && !virtual()
		if !unfit && (c.needs == "" || can[c.needs]) {
			verbs = append(verbs, slices.Repeat([]verb{c.do}, often)...)
		}
	}
	one := func(n int) bool { return random.IntN(n) == 0 }
	for range length {
		s := step{Do: verbs[random.IntN(len(verbs))], Slot: random.IntN(slots), Late: one(5)}
		if quiet {
			s.Slot /= 2
		}
		switch s.Do {
		case asks, steals, attaches:
			s.Late, s.Wait, s.Long, s.Fence = false, can[Queue] && !one(4), one(2), []int64{0, 1, 3, 2000}[random.IntN(4)]
			if s.Wait && one(6) {
				s.Bound = 1 + random.Int64N(3)
			}
			switch {
			case k == driver.Semaphore:
				s.N, s.Limit = []int64{1, 1, 2, 2, 3, 4, 5, 2, 3, 6}[random.IntN(10)], []int64{5, 5, 5, 5, 5, 5, 4}[random.IntN(7)]
			case k == driver.RWMutex && s.Do == asks && !one(3):
				s.Share = true
			case can[Owner] && one(2):
				s.Owner = []string{"o", "p"}[random.IntN(2)]
			}
		case downgrade:
			s.N = 1 + random.Int64N(3)
		case resize:
			s.Slot, s.Late, s.N = 0, false, 2+random.Int64N(6)
		case passes:
			s.Slot, s.Late, s.N = 0, false, max(0, random.Int64N(7)-2)
		case force:
			s.Slot, s.Late = 0, false
		case straggles:
			s.Late = one(2)
		case crashes:
			s.Late = false
		}
		steps = append(steps, s)
	}
	return steps
}

// shorten leaves out of a list that fails what is not needed for that.
func shorten(steps []step, fails func([]step) bool) []step {
	for size := max(1, len(steps)/2); size > 0; size /= 2 {
		for from := 0; from+size <= len(steps); {
			if rest := slices.Concat(steps[:from], steps[from+size:]); fails(rest) {
				steps = rest
			} else {
				from += size
			}
		}
	}
	return steps
}

func listing(steps []step) string {
	var b strings.Builder
	for _, s := range steps {
		fmt.Fprintf(&b, "\t%v\n", s)
	}
	return b.String()
}
