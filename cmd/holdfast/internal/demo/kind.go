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
	name   string
	story  [2]string
	next   string // what there is to see
	rule   string // what must hold, besides the count of the file
	excess [2]string
	rare   int    // one turn of so many has more weight than 1; 0 is none
	roles  []role // of the weights from 1 on; the last one is that of all larger ones, too
}

// role is what a turn of some weight does, and how it looks.
type role struct {
	writes       bool
	holds, waits look   // that of a holder without a glyph is its weight
	wait         string // what its waits are called in the summary
}

type look struct{ glyph, word, style string }

const (
	alone      = maxWorkers + 1 // the limit of an rwmutex, so the weight of a writer: readers are never so many
	maxPermits = 9              // of a semaphore: a digit shows how many are in use
)

var (
	waiting    = look{"┄", "waits", yellow}
	waitingBig = look{"━", "waits", yellow}
	overlap    = [2]string{"turn overlaps", "turns overlap"} // one, and many

	mutex = &kind{"mutex", [2]string{
		"Each asks for the lock, holds it 5 to 40 ms to add 1 to a counter in a file by",
		"read, pause and write, and gives it back. Two at once would lose counts.",
	}, "one holder at a time", "one holder at a time, fences increase", overlap, 0, []role{
		{true, look{"█", "HOLDS", green}, waiting, "wait"},
	}}
	rwmutex = &kind{"rwmutex", [2]string{
		"Readers ▒ hold together and read a counter in a file twice. Writers █ add 1 to",
		"it, alone. A writer that waits ━ goes before readers that come later ┄.",
	}, "readers together, or one writer", "writers are alone, reads see no change, fences increase", overlap, 5, []role{
		{false, look{"▒", "reads", cyan}, waiting, "read wait"},
		{true, look{"█", "WRITES", green}, waitingBig, "write wait"},
	}}
	semaphore = &kind{"semaphore", [2]string{
		"Each asks for 1 permit, at times for several, and holds them 5 to 40 ms.",
		"Waits for several ━ come before waits that begin later ┄. Digits show permits.",
	}, "as many as there are permits", "no more permits in use than there are, fences increase",
		[2]string{"turn exceeds the limit", "turns exceed the limit"}, 4, []role{
			{false, look{"", "HOLDS", cyan}, waiting, "wait for 1"},
			{false, look{"", "HOLDS", green}, waitingBig, "for more"},
		}}
	kinds = []*kind{mutex, rwmutex, semaphore}
)

func kindNamed(name string) *kind {
	return kinds[slices.IndexFunc(kinds, func(k *kind) bool { return k.name == name })]
}

// pick is the weight of the next turn.
func (k *kind) pick(limit int64) int64 {
	switch {
	case k.rare == 0 || limit == 1 || rand.N(k.rare) > 0:
		return 1
	case k == rwmutex:
		return limit
	}
	return 2 + rand.N(limit-1)
}

// open returns what waits for that lock.
func (k *kind) open(c *holdfast.Client, name string, limit int64) func(ctx context.Context, weight int64) (*holdfast.Lease, error) {
	if k == semaphore {
		return c.Semaphore(name, limit).Lease
	}
	mu, rw := c.Mutex(name), c.RWMutex(name)
	return func(ctx context.Context, weight int64) (*holdfast.Lease, error) {
		switch {
		case k == mutex:
			return mu.Lease(ctx)
		case weight == 1:
			return rw.RLease(ctx)
		}
		return rw.Lease(ctx)
	}
}

func (k *kind) role(weight int64) *role { return &k.roles[min(max(weight, 1), int64(len(k.roles)))-1] }

// look is how a worker is shown that does so, in a turn of that weight.
func (k *kind) look(s state, weight int64) look {
	l := [...]look{{" ", "idle", faint}, k.role(weight).waits, k.role(weight).holds, {"×", "ended", red}}[s]
	if l.glyph == "" {
		l.glyph = strconv.FormatInt(weight, 10)
	}
	return l
}
