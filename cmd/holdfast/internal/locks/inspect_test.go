//go:build unix

package locks

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// lined returns a lock that somebody holds and a reader waits for.
func lined(t *testing.T, s *redistest.Server, name string) *holdfast.RWMutex {
	t.Helper()
	m := clitest.Held(t, s, name)
	ctx, giveUp := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = m.RLease(ctx)
	}()
	t.Cleanup(func() { giveUp(); <-gone })
	clitest.AwaitWaiter(t, m)
	return m
}

func TestInspectShowsHolderFenceAndQueue(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		info := clitest.Inspected(t, lined(t, s, "a lock"))
		h, q := info.Holders[0], info.Queue[0]

		p := clitest.Command(t, s, "inspect", "a lock")
		require.Equal(t, 0, p.Run())
		lines := strings.Split(p.Stdout.String(), "\n")
		require.Len(t, lines, 5)
		assert.Equal(t, `rwmutex "a lock": held, 1 waits`, lines[0])
		assert.Contains(t, lines[2], h.Holder)
		assert.Contains(t, lines[2], h.Since.Local().Format("2006-01-02 15:04:05"))
		assert.Contains(t, lines[2], strconv.FormatInt(h.Fence, 10))
		assert.Regexp(t, `^   1\. `+regexp.QuoteMeta(q.Holder)+` \(shared\) waits \d+s$`, lines[3])

		p = clitest.Command(t, s, "inspect", "a lock", "--json", "--kind", "rwmutex")
		require.Equal(t, 0, p.Run())
		var got lockJSON
		require.NoError(t, json.Unmarshal(p.Stdout.Bytes(), &got))
		assert.EqualValues(t, "rwmutex", got.Kind)
		assert.Equal(t, "a lock", got.Name)
		require.Len(t, got.Holders, 1)
		assert.Equal(t, h.Fence, got.Holders[0].Fence)
		assert.True(t, h.Since.Equal(got.Holders[0].Since))
		assert.Positive(t, got.Holders[0].TimeLeft)
		require.Len(t, got.Queue, 1)
		assert.WithinDuration(t, time.Now(), got.Queue[0].Since, time.Minute)
		got.Queue[0].Since = time.Time{}
		assert.Equal(t, []driver.Waiter{{Holder: q.Holder, Shared: true}}, got.Queue)
	})
}

// A program that reads one can read the other.
func TestJSONOfALockIsThatOfTheLibrary(t *testing.T) {
	since := time.Date(2026, 11, 22, 15, 30, 0, 0, time.UTC)
	text, err := json.Marshal(&found{kind: driver.Semaphore, Info: holdfast.Info{
		Name: "nightly", Limit: 3,
		Holders: []holdfast.Holder{{Holder: "web1:4242", Weight: 2, Owner: "o", Since: since, Fence: 7, LastFence: 8, TimeLeft: 9120 * time.Millisecond}},
		Queue:   []driver.Waiter{{Holder: "web2:77", Weight: 1}},
	}})
	require.NoError(t, err)
	assert.JSONEq(t, `{"kind":"semaphore","name":"nightly","limit":3,"holders":[{"holder":"web1:4242","permits":2,"owner":"o",
		"since":"2026-11-22T15:30:00Z","left_ns":9120000000,"fence":7,"last_fence":8}],"queue":[{"holder":"web2:77","permits":1}]}`, string(text))

	text, err = json.Marshal(&found{kind: driver.Mutex, Info: holdfast.Info{Name: "idle"}})
	require.NoError(t, err)
	assert.JSONEq(t, `{"kind":"mutex","name":"idle","holders":[],"queue":[]}`, string(text))
}

func TestInspectShowsEveryKindInUse(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		locks := clitest.LocksOf(t, s)
		mu, err := locks.Mutex("name").TryLease(t.Context())
		require.NoError(t, err)
		sem, err := locks.Semaphore("name", 5).TryLease(t.Context(), 3)
		require.NoError(t, err)

		p := clitest.Command(t, s, "inspect", "name")
		require.Equal(t, 0, p.Run())
		assert.Contains(t, p.Stdout.String(), `mutex "name": held, 0 wait`)
		assert.Contains(t, p.Stdout.String(), `semaphore "name": held, 3 of 5 permits in use, 0 wait`)
		assert.NotContains(t, p.Stdout.String(), "rwmutex")

		p = clitest.Command(t, s, "inspect", "--kind", "semaphore", "name")
		require.Equal(t, 0, p.Run())
		assert.NotContains(t, p.Stdout.String(), "mutex")

		require.NoError(t, mu.Release(t.Context()))
		require.NoError(t, sem.Release(t.Context()))
	})
}

func TestInspectOfALockThatNobodyHasEndsWith1(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		useOnce(t, s, "used")
		for _, name := range []string{"used", "never used"} {
			p := clitest.Command(t, s, "inspect", name)
			assert.Equal(t, 1, p.Run())
			assert.Equal(t, "holdfast: nobody holds \""+name+"\" on Redis at "+s.Addr()+", or waits for it\n", p.Stderr.String())
			assert.Empty(t, p.Stdout.String())
			p = clitest.Command(t, s, "inspect", name, "--json")
			assert.Equal(t, 1, p.Run())
			assert.Empty(t, p.Stdout.String()+p.Stderr.String())
		}
	})
}

func TestWatchWritesEachChangeUntilCtrlC(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	p := clitest.Command(t, s, "inspect", "--watch", "watched").Start()
	p.AwaitOutput(`nobody holds "watched"`)
	looked := s.Mini().CommandCount()
	clitest.Eventually(t, func() bool { return s.Mini().CommandCount() >= looked+2*len(allKinds) }, "it looks again")
	locks := clitest.LocksOf(t, s)
	lease, err := locks.Mutex("watched").TryLease(t.Context())
	require.NoError(t, err)
	p.AwaitOutput(`mutex "watched": held, 0 wait`)
	require.NoError(t, lease.Release(t.Context()))
	p.AwaitOutput(`(?s)held, 0 wait.*nobody holds "watched"`)
	p.Signal(syscall.SIGINT)
	assert.Equal(t, 0, p.Wait())
	assert.Equal(t, 3, strings.Count(p.Stdout.String(), "watched"), "only changes are written")
}

func TestWatchGoesOnWhenTheStoreIsBack(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	p := clitest.Command(t, s, "inspect", "--watch", "watched").Start()
	p.AwaitOutput(`nobody holds "watched"`)
	for range 2 {
		before := strings.Count(p.Stderr.String(), "trying again\n")
		s.Kill()
		clitest.Eventually(t, func() bool { return strings.Count(p.Stderr.String(), "trying again\n") > before }, "it says that the store is away")
		s.Restart()
		clitest.Eventually(t, func() bool { return strings.Count(p.Stderr.String(), "answers again\n") > before }, "it says that the store is back")
	}
	assert.Regexp(t, `^(holdfast: .*Redis at .*; trying again\nholdfast: Redis at .* answers again\n){2}$`, p.Stderr.String())
	clitest.Held(t, s, "watched")
	p.AwaitOutput(`rwmutex "watched": held, 0 wait`)
	p.Signal(syscall.SIGINT)
	assert.Equal(t, 0, p.Wait())
	assert.Equal(t, 2, strings.Count(p.Stdout.String(), "watched"), "only changes are written")
}

func TestJSONOfANameCannotControlATerminal(t *testing.T) {
	var b strings.Builder
	name := "\u009b2J\u202e\x7fä\U000e0001"
	require.NoError(t, writeJSON(&b, []*found{{kind: driver.Mutex, Info: holdfast.Info{Name: name}}}))
	assert.Equal(t, `{"kind":"mutex","name":"\u009b2J\u202e\u007fä\udb40\udc01","holders":[],"queue":[]}`+"\n", b.String())
	var back struct{ Name string }
	require.NoError(t, json.Unmarshal([]byte(b.String()), &back))
	assert.Equal(t, name, back.Name)
}

// Whatever ls shows, the others can be told.
func TestEveryNameCanBeSaid(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	for _, name := range []string{"-x", "a\xff\x9b", "a\x00b"} {
		clitest.Held(t, s, name)
		p := clitest.Command(t, s, "ls", "--json", "--", name[:1])
		require.Equal(t, 0, p.Run())
		var shown struct {
			Name   string
			Base64 []byte `json:"name_base64"`
		}
		require.NoError(t, json.Unmarshal(p.Stdout.Bytes(), &shown))
		how := []string{"--", shown.Name}
		if len(shown.Base64) > 0 {
			how = []string{"--base64", base64.StdEncoding.EncodeToString(shown.Base64)}
		} else if name[0] != '-' {
			how = []string{"--base64", base64.StdEncoding.EncodeToString([]byte(shown.Name))}
		}
		require.Equal(t, 0, clitest.Command(t, s, append([]string{"inspect"}, how...)...).Run(), "%q", name)
		require.Equal(t, 0, clitest.Command(t, s, append([]string{"unlock", "--force", "--yes"}, how...)...).Run(), "%q", name)
	}
}

// Lines that have scrolled away would be drawn again and again.
func TestWatchedQueueFitsTheTerminal(t *testing.T) {
	text := strings.Repeat("line\n", 23)
	assert.Equal(t, text, fitted(text, 24))
	cut := fitted(text+"line\n", 24)
	assert.Equal(t, 23, strings.Count(cut, "\n"))
	assert.True(t, strings.HasSuffix(cut, "line\n... and 2 more lines\n"), cut)
	assert.Equal(t, "line\n... and 22 more lines\n", fitted(text, 1), "at least something")
}
