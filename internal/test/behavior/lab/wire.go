package lab

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// What the scripts look like on the wire:
//
//	EVALSHA sha 1 key channels retention token …
//
// Acquire goes on with the number of the ask, and the place in the queue.

// scripts has the hash of each by its purpose.
type scripts struct{ acquire, renew, release string }

func (l *Lab) evalsha(sha *string, name string) func([]string) bool {
	l.T.Helper()
	require.NotEmpty(l.T, *sha, "ready was not called")
	want, key := *sha, l.Key(name)
	return func(cmd []string) bool {
		return len(cmd) > 7 && strings.EqualFold(cmd[0], "evalsha") && cmd[1] == want && cmd[3] == key
	}
}

// Asking, Renewing and Releasing match the scripts that work on a mutex.
func (l *Lab) Asking(name string) func([]string) bool    { return l.evalsha(&l.scripts.acquire, name) }
func (l *Lab) Renewing(name string) func([]string) bool  { return l.evalsha(&l.scripts.renew, name) }
func (l *Lab) Releasing(name string) func([]string) bool { return l.evalsha(&l.scripts.release, name) }

// AskingFirst matches the first ask of each token.
func (l *Lab) AskingFirst(name string) func([]string) bool {
	asking := l.Asking(name)
	return func(cmd []string) bool { return asking(cmd) && strings.HasPrefix(cmd[7], "1 ") }
}

// On matches the scripts that work on a key.
func (l *Lab) On(kind driver.Kind, name string) func([]string) bool {
	key := l.KeyOf(kind, name)
	return func(cmd []string) bool {
		return len(cmd) > 3 && strings.EqualFold(cmd[0], "evalsha") && cmd[3] == key
	}
}

// learn finds out the hashes of the scripts, and lets the server know them all, so
// that from now on each command is an EVALSHA that it carries out.
func (l *Lab) learn() {
	l.T.Helper()
	var mu sync.Mutex
	var shas []string
	var rest atomic.Bool
	l.Tap(func(cmd []string) {
		mu.Lock()
		defer mu.Unlock()
		if !rest.Load() && strings.EqualFold(cmd[0], "evalsha") {
			shas = append(shas, cmd[1])
		}
	})
	lease := l.Lease(l.Far(), "learn")
	require.NoError(l.T, lease.Renew(l.T.Context()))
	require.NoError(l.T, lease.Release(l.T.Context()))
	rest.Store(true)
	mu.Lock()
	defer mu.Unlock()
	require.Len(l.T, shas, 3)
	l.scripts = scripts{acquire: shas[0], renew: shas[1], release: shas[2]}
}

// Tap calls see for each command that passes the link.
func (l *Lab) Tap(see func(cmd []string)) {
	l.Link.DropReply(func(cmd []string) bool { see(cmd); return false })
}

// Count counts the commands that pass the link from now on.
func (l *Lab) Count(match func(cmd []string) bool) *atomic.Int64 {
	n := new(atomic.Int64)
	l.Tap(func(cmd []string) {
		if match(cmd) {
			n.Add(1)
		}
	})
	return n
}
