package holdfast_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// A lab is a server, a link to it that may fail, and clients on both ends of it.
type lab struct {
	t       *testing.T
	s       *redistest.Server
	link    *redistest.Proxy
	direct  *redis.Client // past the link
	virtual bool          // in a bubble
	slack   time.Duration // how late the machine may be

	retention time.Duration
	log       labLog
	watcher   *holdfast.Client
	scripts   scripts
}

const (
	// ages is a TTL that no test waits for: what depends on it is stuck.
	ages = 30 * time.Second
	// soon is far less than that, and enough for whatever needs no timeout.
	soon = 5 * time.Second
)

// newLab returns a lab whose clients leave nothing behind: when the test ends, none
// of its keys is without TTL, all are gone after the retention unless that is long,
// and no token stands in the log.
func newLab(t *testing.T, s *redistest.Server) *lab {
	t.Helper()
	l := &lab{t: t, s: s, retention: 200 * time.Millisecond, slack: 1500 * time.Millisecond}
	if s.Mini() != nil {
		// Its clock goes on in the middle of a script. A key must not be near its end
		// when it is used again.
		l.remember()
	}
	t.Cleanup(func() {
		s.RequireTTLs(t, s.Prefix())
		if l.retention < time.Minute {
			s.RequireNoKeys(t, s.Prefix(), l.retention+soon)
		}
		requireNoToken(t, l.log.String())
	})
	l.direct = s.Client(t)
	l.link = redistest.NewProxy(t, s)
	return l
}

// everywhere runs body over miniredis, a real Redis and, in virtual time, in a bubble.
func everywhere(t *testing.T, body func(*testing.T, *lab)) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) { body(t, newLab(t, s)) })
	inBubble(t, body)
}

// withPatience is everywhere for tests that wait for time to pass: in the bubble over
// miniredis, and beside other tests over a real Redis.
func withPatience(t *testing.T, body func(*testing.T, *lab)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		body(t, newLab(t, redistest.Shared(t)))
	})
	inBubble(t, body)
}

func inBubble(t *testing.T, body func(*testing.T, *lab)) {
	t.Helper()
	t.Run("bubble", func(t *testing.T) {
		redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
			l := newLab(t, s)
			l.virtual, l.slack, l.retention = true, 20*time.Millisecond, 2*time.Second
			body(t, l)
		})
	})
}

// remember is for tests where asks may come late: on a busy machine, later than the
// tombstones of a short retention last. In a bubble nothing is late.
func (l *lab) remember() {
	if !l.virtual {
		l.retention = time.Minute
	}
}

// open returns a client on rdb that is closed when the test ends. Its waiters each go to the
// store, since that is what most tests look at.
func (l *lab) open(rdb redis.UniversalClient, opts ...holdfast.Option) *holdfast.Client {
	l.t.Helper()
	return l.start(rdb, append([]holdfast.Option{holdfast.WithStrictFIFO()}, opts...)...)
}

// mates returns a client beside the server whose waiters wait together.
func (l *lab) mates(opts ...holdfast.Option) *holdfast.Client {
	l.t.Helper()
	return l.start(l.s.Client(l.t), opts...)
}

func (l *lab) start(rdb redis.UniversalClient, opts ...holdfast.Option) *holdfast.Client {
	l.t.Helper()
	opts = append([]holdfast.Option{
		holdfast.WithTTL(ages), holdfast.WithLogger(slog.New(slog.NewTextHandler(&l.log, nil))),
	}, opts...)
	c := holdfast.Open(redisdriver.New(rdb,
		redisdriver.WithPrefix(l.s.Prefix()), redisdriver.WithRetention(l.retention)), opts...)
	l.t.Cleanup(func() {
		assert.NoError(l.t, promptly(l.t, 15*time.Second, c.Close))
	})
	return c
}

// near and far return a client beside the server, and one at the end of the link.
func (l *lab) near(opts ...holdfast.Option) *holdfast.Client { return l.open(l.s.Client(l.t), opts...) }
func (l *lab) far(opts ...holdfast.Option) *holdfast.Client {
	return l.open(l.link.Client(l.t), opts...)
}

// ready returns when c has open connections, and the server knows all scripts.
func (l *lab) ready(c *holdfast.Client) {
	l.t.Helper()
	if l.scripts == (scripts{}) {
		l.learn()
	}
	lease := l.lease(c, "ready")
	require.NoError(l.t, lease.Renew(l.t.Context()))
	require.NoError(l.t, lease.Release(l.t.Context()))
}

func (l *lab) key(name string) string { return l.s.Prefix() + ":1:mutex:" + name }

func (l *lab) inspect(name string) holdfast.Info {
	l.t.Helper()
	if l.watcher == nil {
		l.watcher = l.near()
	}
	info, err := l.watcher.Mutex(name).Inspect(l.t.Context())
	require.NoError(l.t, err)
	return info
}

// until polls for what the test has to wait for but is not about.
func (l *lab) until(what string, cond func() bool) {
	l.t.Helper()
	pause := 100 * time.Microsecond
	for deadline := time.Now().Add(2 * soon); !cond(); time.Sleep(pause) {
		if time.Now().After(deadline) {
			l.t.Fatalf("waited in vain until %s\n%s", what, stacks())
		}
		pause = min(2*pause, 10*time.Millisecond)
	}
}

func (l *lab) untilQueue(name string, n int) {
	l.t.Helper()
	l.until(fmt.Sprintf("%d are in the queue", n), func() bool { return len(l.inspect(name).Queue) == n })
}

// untilListening returns when n clients have subscribed to their news.
func (l *lab) untilListening(n int) {
	l.t.Helper()
	l.until(fmt.Sprintf("%d clients listen", n), func() bool {
		channels, err := l.direct.PubSubChannels(l.t.Context(), l.s.Prefix()+"*").Result()
		require.NoError(l.t, err)
		return len(channels) == 2*n // one of them for notices
	})
}

func (l *lab) untilStruck(fault <-chan struct{}) {
	l.t.Helper()
	select {
	case <-fault:
	case <-time.After(2 * soon):
		l.t.Fatalf("the fault did not strike\n%s", stacks())
	}
}

// lease takes a lock that is free, or will be soon.
func (l *lab) lease(c *holdfast.Client, name string, opts ...holdfast.LockOption) *holdfast.Lease {
	l.t.Helper()
	return l.wait(c, name, opts...).granted(soon)
}

// free takes the lock and gives it back. It must be there at once.
func (l *lab) free(c *holdfast.Client, name string) (fence int64) {
	l.t.Helper()
	lease, err := c.Mutex(name).TryLease(l.t.Context())
	require.NoError(l.t, err, "the lock is not free")
	assert.NoError(l.t, lease.Release(l.t.Context()))
	assert.Empty(l.t, l.inspect(name).Queue)
	return lease.Fence()
}

// soonFree is free for a lock that something in the background still has to give up.
func (l *lab) soonFree(c *holdfast.Client, name string) {
	l.t.Helper()
	l.until("the lock is free", func() bool {
		lease, err := c.Mutex(name).TryLease(l.t.Context())
		if err != nil {
			require.ErrorIs(l.t, err, holdfast.ErrLocked)
			return false
		}
		assert.NoError(l.t, lease.Release(l.t.Context()))
		return true
	})
	l.untilQueue(name, 0)
}

// holds checks that both the client and the store think that the lease is held.
func (l *lab) holds(lease *holdfast.Lease) {
	l.t.Helper()
	require.NoError(l.t, lease.Err())
	info := l.inspect(lease.Name())
	require.NotEmpty(l.t, info.Holders, "nobody holds the lock")
	require.Equal(l.t, lease.Fence(), info.Holders[0].Fence, "somebody else holds the lock")
}

// keeps checks that a lease is held for as long as d.
func (l *lab) keeps(lease *holdfast.Lease, d time.Duration) {
	l.t.Helper()
	select {
	case <-lease.Done():
		l.t.Fatalf("lost: %v", context.Cause(lease.Context()))
	case <-time.After(d):
	}
	l.holds(lease)
}

// loses waits for the end of a lease, and checks that it is one by loss.
func (l *lab) loses(lease *holdfast.Lease, limit time.Duration) {
	l.t.Helper()
	select {
	case <-lease.Done():
	case <-time.After(limit):
		l.t.Fatalf("still held after %v", limit)
	}
	require.ErrorIs(l.t, context.Cause(lease.Context()), holdfast.ErrLost)
	require.ErrorIs(l.t, lease.Err(), holdfast.ErrLost)
	requireNoToken(l.t, context.Cause(lease.Context()).Error())
}

// pending is a call of Lease that may not have returned.
type pending struct {
	l      *lab
	cancel context.CancelCauseFunc
	done   chan struct{}
	lease  *holdfast.Lease
	err    error
	at     time.Time // when it returned
}

func (l *lab) wait(c *holdfast.Client, name string, opts ...holdfast.LockOption) *pending {
	l.t.Helper()
	return l.ask(c.Mutex(name, opts...).Lease)
}

// ask is wait for any form of Lease of any lock.
func (l *lab) ask(lease leasing) *pending {
	l.t.Helper()
	ctx, cancel := context.WithCancelCause(l.t.Context())
	l.t.Cleanup(func() { cancel(nil) })
	p := &pending{l: l, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.lease, p.err = lease(ctx)
		p.at = time.Now()
	}()
	return p
}

func (p *pending) returned(limit time.Duration) {
	p.l.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.l.t.Fatalf("Lease has not returned after %v\n%s", limit, stacks())
	}
}

func (p *pending) granted(limit time.Duration) *holdfast.Lease {
	p.l.t.Helper()
	p.returned(limit)
	require.NoError(p.l.t, p.err)
	require.NoError(p.l.t, p.lease.Err())
	return p.lease
}

func (p *pending) failed(limit time.Duration) error {
	p.l.t.Helper()
	p.returned(limit)
	require.Error(p.l.t, p.err)
	require.Nil(p.l.t, p.lease)
	requireNoToken(p.l.t, p.err.Error())
	return p.err
}

// promptly returns what f returns, and fails the test if f hangs.
func promptly[T any](t *testing.T, limit time.Duration, f func() T) T {
	t.Helper()
	done := make(chan T, 1)
	go func() { done <- f() }()
	select {
	case v := <-done:
		return v
	case <-time.After(limit):
		t.Fatalf("has not returned after %v\n%s", limit, stacks())
		panic("unreachable")
	}
}

// stacks are those of the library.
func stacks() string {
	b := make([]byte, 1<<22)
	all := strings.Split(string(b[:runtime.Stack(b, true)]), "\n\n")
	return strings.Join(slices.DeleteFunc(all, func(stack string) bool {
		return !strings.Contains(stack, "github.com/holdfast-go/holdfast.") && !strings.Contains(stack, "holdfast/internal/claim.")
	}), "\n\n")
}

// labLog is where the clients of a lab log.
type labLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (g *labLog) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.b.Write(p)
}

func (g *labLog) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.b.String()
}

// number is what a part of a token looks like; TestTokensAreNeverShown holds it against
// one. The same without letters is a fence.
var number = regexp.MustCompile(`\b[0-9a-f]{16}\b`)

func showsToken(text string) bool {
	return slices.ContainsFunc(number.FindAllString(text, -1), func(n string) bool {
		return strings.ContainsAny(n, "abcdef")
	})
}

func requireNoToken(t *testing.T, text string) {
	t.Helper()
	require.False(t, showsToken(text), "a token is shown: %s", text)
}

// What the scripts look like on the wire:
//
//	EVALSHA sha 1 key token channels retention …
//
// Acquire goes on with the number of the ask.

// scripts has the hash of each by its purpose.
type scripts struct{ acquire, renew, release string }

func (l *lab) evalsha(sha *string, name string) func([]string) bool {
	l.t.Helper()
	require.NotEmpty(l.t, *sha, "ready was not called")
	want, key := *sha, l.key(name)
	return func(cmd []string) bool {
		return len(cmd) > 7 && strings.EqualFold(cmd[0], "evalsha") && cmd[1] == want && cmd[3] == key
	}
}

func (l *lab) asking(name string) func([]string) bool    { return l.evalsha(&l.scripts.acquire, name) }
func (l *lab) renewing(name string) func([]string) bool  { return l.evalsha(&l.scripts.renew, name) }
func (l *lab) releasing(name string) func([]string) bool { return l.evalsha(&l.scripts.release, name) }

func (l *lab) askingFirst(name string) func([]string) bool {
	asking := l.asking(name)
	return func(cmd []string) bool { return asking(cmd) && cmd[7] == "1" }
}

// learn finds out the hashes of the scripts, and lets the server know them all, so
// that from now on each command is an EVALSHA that it carries out.
func (l *lab) learn() {
	l.t.Helper()
	var mu sync.Mutex
	var shas []string
	var rest atomic.Bool
	l.tap(func(cmd []string) {
		mu.Lock()
		defer mu.Unlock()
		if !rest.Load() && strings.EqualFold(cmd[0], "evalsha") {
			shas = append(shas, cmd[1])
		}
	})
	lease := l.lease(l.far(), "learn")
	require.NoError(l.t, lease.Renew(l.t.Context()))
	require.NoError(l.t, lease.Release(l.t.Context()))
	rest.Store(true)
	mu.Lock()
	defer mu.Unlock()
	require.Len(l.t, shas, 3)
	l.scripts = scripts{acquire: shas[0], renew: shas[1], release: shas[2]}
}

// tap calls see for each command that passes the link.
func (l *lab) tap(see func(cmd []string)) {
	l.link.DropReply(func(cmd []string) bool { see(cmd); return false })
}

// count counts the commands that pass the link from now on.
func (l *lab) count(match func(cmd []string) bool) *atomic.Int64 {
	n := new(atomic.Int64)
	l.tap(func(cmd []string) {
		if match(cmd) {
			n.Add(1)
		}
	})
	return n
}
