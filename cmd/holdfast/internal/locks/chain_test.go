//go:build unix

package locks

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/deadlock"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// program holds a mutex and then wants another one, if any, and says so.
type program struct{ holder, holds, wants string }

// sightless is a store that shows a client nothing, so that it ends no circle.
type sightless struct{ driver.Driver }

func (s sightless) Unwrap() driver.Driver { return s.Driver }

func (s sightless) Inspect(context.Context, driver.Kind, string) (driver.Info, error) {
	return driver.Info{}, driver.ErrTransient
}

// start has programs hold what they hold, and then want what they want, one after the other.
func start(t *testing.T, s *redistest.Server, programs ...program) {
	t.Helper()
	rdb := s.Client(t)
	at := func() driver.Driver { return redisdriver.New(rdb, redisdriver.WithPrefix(s.Prefix())) }
	sees := holdfast.Open(at())
	t.Cleanup(func() { require.NoError(t, sees.Close()) })
	var clients []*holdfast.Client
	var leases []*holdfast.Lease
	for i, p := range programs {
		clients = append(clients, holdfast.Open(sightless{at()}, holdfast.WithHolder(p.holder)))
		clients[i].AddHook(deadlock.New(clients[i], deadlock.WithPause(10*time.Millisecond)))
		lease, err := clients[i].Mutex(p.holds).Lease(t.Context())
		require.NoError(t, err)
		leases = append(leases, lease)
		t.Cleanup(func() { _ = clients[i].Close() })
	}
	for i, p := range programs {
		if p.wants == "" {
			continue
		}
		ctx, giveUp := context.WithCancel(leases[i].Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = clients[i].Mutex(p.wants).Lease(ctx)
		}()
		t.Cleanup(func() { giveUp(); <-gone })
		clitest.Eventually(t, func() bool { return len(deadlock.Waits(clitest.Inspected(t, sees.Mutex(p.holds)).Holders[0])) == 1 }, "a note")
	}
}

// ran is what a command writes.
func ran(t *testing.T, s *redistest.Server, args ...string) string {
	t.Helper()
	p := clitest.Command(t, s, args...)
	require.Equal(t, 0, p.Run())
	return p.Stdout.String()
}

func TestInspectTellsWhatAHolderWaitsFor(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		start(t, s, program{"web-1", "a", ""}, program{"web-2", "b", "a"}, program{"web-3", "c", "b"})
		assert.Regexp(t, `\n  web-3 waits \d+s for mutex "b", held by web-2 for \d+s, which waits \d+s for mutex "a", held by web-1 for \d+s\n`,
			ran(t, s, "inspect", "c"))
		assert.NotRegexp(t, `for mutex`, ran(t, s, "inspect", "a"), "its holder waits for nothing")
	})
}

func TestLocksInACircleAreMarked(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		start(t, s, program{"web-1", "a", "b"}, program{"web-2", "b", "a"}, program{"web-3", "c", "b"})
		assert.Regexp(t, `\n  web-3 waits \d+s for mutex "b", held by web-2 for \d+s, which waits \d+s for mutex "a", `+
			`held by web-1 for \d+s, which waits \d+s for mutex "b", a circle\n`, ran(t, s, "inspect", "c"))
		lines := strings.Split(ran(t, s, "ls"), "\n")
		assert.Regexp(t, `^a .* 1, circle$`, lines[1])
		assert.Regexp(t, `^b .* 2, circle$`, lines[2])
		assert.Regexp(t, `^c .* 0$`, lines[3], "it leads into a circle, and is in none")

		var got lockJSON
		require.NoError(t, json.Unmarshal([]byte(ran(t, s, "ls", "b", "--json")), &got))
		assert.True(t, got.Circle, "the other one is not in the list")
	})
}

// The guide for operators shows what the commands write, in the place of a stuck lock.
func TestGuideShowsWhatTheCommandsWriteOfAStuckLock(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../../../docs/operations.md")
	require.NoError(t, err)
	_, page, _ := strings.Cut(string(guide), "\n## A lock is stuck\n")
	page, _, _ = strings.Cut(page, "\n## ")
	s := redistest.Real(t)
	start(t, s, program{"web-1:4711", "ledger", ""}, program{"web-2:4711", "orders:42", "ledger"}, program{"web-3:4711", "orders:17", "orders:42"})
	alike := func(text string) string { // without what differs each time
		text = regexp.MustCompile(`at [\w.-]+:\d+`).ReplaceAllString(text, "at SERVER")
		text = regexp.MustCompile(`\d+(m\d+)?(\.\d+)?s\b`).ReplaceAllString(text, "T")
		text = regexp.MustCompile(`\d{16}|[\d-]{10} [\d:]{8}`).ReplaceAllString(text, "N")
		return regexp.MustCompile(` +`).ReplaceAllString(text, " ")
	}
	shown := regexp.MustCompile(`(?m)^\$ holdfast (.+)\n((?:[^$\x60].*\n)+)`).FindAllStringSubmatch(page, -1)
	require.Len(t, shown, 4)
	for _, c := range shown {
		args := strings.Fields(c[1])
		want := alike(c[2])
		if args[0] == "ls" { // the next holder comes a moment later
			clitest.Eventually(t, func() bool { return alike(ran(t, s, args...)) == want }, "%s", want)
		} else {
			assert.Equal(t, want, alike(ran(t, s, args...)), c[1])
		}
	}
}
