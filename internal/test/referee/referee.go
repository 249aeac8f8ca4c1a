package referee

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Referee judges the holds of one lock. A reader or a permit weighs 1, a writer as much
// as the limit.
type Referee struct {
	Limit   int64
	LimitOf func(inside []*Hold) int64 // instead of Limit: how much room there is when the last of them comes

	mu             sync.Mutex
	inside         []*Hold
	largest, alone *Hold // of the largest fence so far, and of the largest of a hold that is not shared
	given          map[int64]*Hold

	peak, entries int64
	fouls         []Breach
}

// Enter and Leave are called inside of what the lock guards.
func (r *Referee) Enter(weight int64) { r.EnterWith(weight, Unseen) }

// EnterWith is [Referee.Enter] of a holder with a fence. That of the last who had all is smaller.
func (r *Referee) EnterWith(weight, fence int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &Hold{Weight: weight, Fence: fence, Shared: weight < r.Limit}
	r.fouls = append(r.fouls, r.hear(h, r.before(h))...)
	r.fouls = append(r.fouls, r.enter(h)...)
	r.entries++
}

// Leave lets one of that weight out.
func (r *Referee) Leave(weight int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.inside, func(h *Hold) bool { return h.Weight == weight })
	r.inside = slices.Delete(r.inside, i, i+1)
}

// Fouls is how many rules were broken so far.
func (r *Referee) Fouls() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(len(r.fouls))
}

// Entries is how often somebody entered.
func (r *Referee) Entries() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.entries
}

// Peak is the most that was inside.
func (r *Referee) Peak() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peak
}

// RequireFair fails the test if ever a rule was broken, or somebody still is inside.
func (r *Referee) RequireFair(t testing.TB, entries int64) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.fouls) > 0 {
		t.Fatalf("FOUL: %d times, at first %v", len(r.fouls), r.fouls[0])
	}
	require.Empty(t, r.inside)
	require.Equal(t, entries, r.entries)
}
