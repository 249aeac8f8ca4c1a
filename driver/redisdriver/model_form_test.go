package redisdriver_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// forms counts the forms that locks had in games, and how they went from one to another.
type forms struct {
	mu   sync.Mutex
	seen map[string]int
}

// allForms are what a game must come by. A fat lock becomes thin only when it is free.
var allForms = []string{
	"thin and free", "thin and held", "fat",
	"thin and free to fat", "thin and held to fat", "fat to thin and free",
	"thin and free to thin and held", "thin and held to thin and free",
}

// form says which form a lock has.
func (r *record) form() string {
	switch {
	case len(r.fields) == 0:
		return "none"
	case r.thin == "":
		return "fat"
	case strings.Contains(r.thin, " "):
		return "thin and held"
	}
	return "thin and free"
}

func (f *forms) note(before, now string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen == nil {
		f.seen = map[string]int{}
	}
	f.seen[now]++
	if before != now {
		f.seen[before+" to "+now]++
	}
}

// playUntilAll plays games until each form, and each change between two, was seen: at most a few
// times, in which it is all but certain.
func (f *forms) playUntilAll(t *testing.T, games func(round int)) {
	t.Helper()
	missing := allForms
	for round := range 4 {
		games(round)
		missing = slices.DeleteFunc(slices.Clone(missing), func(form string) bool { return f.seen[form] > 0 })
		if len(missing) == 0 {
			return
		}
	}
	require.Empty(t, missing, "these games prove nothing of it; seen were %v", f.seen)
}
