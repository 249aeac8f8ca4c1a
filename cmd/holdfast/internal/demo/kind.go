package demo

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/holdfast-go/holdfast"
)

// kind is what differs between the demos of the kinds of lock. To the rest of the demo a
// lock is a number of permits, its limit. Each turn has some of them, its weight. A mutex
// is one permit, and a writer has all permits of an rwmutex.
type kind struct {
	name    string
	story   [2]string
	tags    string // says what tags mean
	permits bool   // whether to show how many are in use
	next    string // what there is to see
	rule    string // what must hold, besides the count of the file
	// What a turn did that had no room: one of them, and many.
	excess [2]string
	roles  []role // of the weights from 1 on; the last one is that of all larger ones, too

	limit func(workers int) int64 // unless the command line says it
	pick  func(limit int64) int64 // the weight of the next turn
	open  func(c *holdfast.Client, name string, limit int64) enterFunc
}

// enterFunc waits for a lock.
type enterFunc func(ctx context.Context, weight int64) (*holdfast.Lease, error)

// role is what a turn of some weight does, and how it looks.
type role struct {
	access access
	holds  look
	waits  look
	tag    string // of the worker in the log: a format for its number and its weight
	wait   string // what its waits are called in the summary
}

// access is what a turn does with the counter in the file.
type access int

const (
	nothing access = iota
	reads          // twice, with a pause between
	writes         // what it has read before a pause, plus 1
)

// look is how a state is shown.
type look struct{ glyph, word, style string }

var (
	waiting    = look{"┄", "waits", yellow}
	waitingBig = look{"━", "waits", yellow}
)

var overlap = [2]string{"turn overlaps", "turns overlap"}

// alone is the limit of an rwmutex, so the weight of a writer. Readers, of weight 1,
// are never so many.
const alone = maxWorkers + 1

// maxPermits is the largest limit of a semaphore: a digit shows how many are in use.
const maxPermits = 9

var kinds = []*kind{
	{
		name: "mutex",
		story: [2]string{
			"Each asks for the lock, holds it 5 to 40 ms to add 1 to a counter in a file by",
			"read, pause and write, and gives it back. Two at once would lose counts.",
		},
		next:   "one holder at a time",
		rule:   "one holder at a time, fences increase",
		excess: overlap,
		roles:  []role{{writes, look{"█", "HOLDS", green}, waiting, "%[1]d", "wait"}},
		limit:  func(int) int64 { return 1 },
		pick:   func(int64) int64 { return 1 },
		open: func(c *holdfast.Client, name string, _ int64) enterFunc {
			mu := c.Mutex(name)
			return func(ctx context.Context, _ int64) (*holdfast.Lease, error) { return mu.Lease(ctx) }
		},
	},
	{
		name: "rwmutex",
		story: [2]string{
			"Readers ▒ hold together and read a counter in a file twice. Writers █ add 1 to",
			"it, alone. A writer that waits ━ goes before readers that come later ┄.",
		},
		tags:   ", w writes",
		next:   "readers together, or one writer",
		rule:   "writers are alone, reads see no change, fences increase",
		excess: overlap,
		roles: []role{
			{reads, look{"▒", "reads", cyan}, waiting, "%[1]d", "read wait"},
			{writes, look{"█", "WRITES", green}, waitingBig, "%[1]dw", "write wait"},
		},
		limit: func(int) int64 { return alone },
		pick: func(limit int64) int64 {
			if rand.N(5) == 0 {
				return limit
			}
			return 1
		},
		open: func(c *holdfast.Client, name string, _ int64) enterFunc {
			rw := c.RWMutex(name)
			return func(ctx context.Context, weight int64) (*holdfast.Lease, error) {
				if weight == 1 {
					return rw.RLease(ctx)
				}
				return rw.Lease(ctx)
			}
		},
	},
	{
		name: "semaphore",
		story: [2]string{
			"Each asks for 1 permit, at times for several, and holds them 5 to 40 ms.",
			"Waits for several ━ come before waits that begin later ┄. Digits show permits.",
		},
		tags:    ", 1×2 is process 1 with 2 permits",
		next:    "as many as there are permits",
		permits: true,
		rule:    "no more permits in use than there are, fences increase",
		excess:  [2]string{"turn exceeds the limit", "turns exceed the limit"},
		roles: []role{
			{nothing, look{"", "HOLDS", cyan}, waiting, "%[1]d", "wait for 1"},
			{nothing, look{"", "HOLDS", green}, waitingBig, "%[1]d×%[2]d", "for more"},
		},
		limit: func(workers int) int64 { return min(int64(workers)/2+1, maxPermits) },
		pick: func(limit int64) int64 {
			if limit > 1 && rand.N(4) == 0 {
				return 2 + rand.N(limit-1)
			}
			return 1
		},
		open: func(c *holdfast.Client, name string, limit int64) enterFunc {
			return c.Semaphore(name, limit).Lease
		},
	},
}

func kindNamed(name string) *kind {
	for _, k := range kinds {
		if k.name == name {
			return k
		}
	}
	return nil
}

// index is which role has that weight.
func (k *kind) index(weight int64) int { return int(min(weight, int64(len(k.roles)))) - 1 }

func (k *kind) role(weight int64) role { return k.roles[k.index(weight)] }

// writes tells whether the file counts turns.
func (k *kind) writes() bool {
	return slices.ContainsFunc(k.roles, func(r role) bool { return r.access == writes })
}

// exclusive tells whether others wait for a turn of that weight, if any can.
func (k *kind) exclusive(weight int64) bool { return !k.writes() || k.role(weight).access == writes }

// look is how a worker in that pose is shown.
func (k *kind) look(p pose) look {
	switch p.state {
	case idle:
		return look{" ", "idle", faint}
	case ended:
		return look{"×", "ended", red}
	case waits:
		return k.role(p.weight).waits
	}
	l := k.role(p.weight).holds
	if l.glyph == "" {
		l.glyph = strconv.FormatInt(p.weight, 10)
	}
	return l
}
