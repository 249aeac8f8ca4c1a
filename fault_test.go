package holdfast_test

import (
	"bytes"
	"context"
	"errors"
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

// open returns a client on rdb that is closed when the test ends.
func (l *lab) open(rdb redis.UniversalClient, opts ...holdfast.Option) *holdfast.Client {
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
		return len(channels) == n
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
	require.NotNil(l.t, info.Holder, "nobody holds the lock")
	require.Equal(l.t, lease.Fence(), info.Holder.Fence, "somebody else holds the lock")
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
	ctx, cancel := context.WithCancelCause(l.t.Context())
	l.t.Cleanup(func() { cancel(nil) })
	p := &pending{l: l, cancel: cancel, done: make(chan struct{})}
	mu := c.Mutex(name, opts...)
	go func() {
		defer close(p.done)
		p.lease, p.err = mu.Lease(ctx)
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
		return !strings.Contains(stack, "github.com/holdfast-go/holdfast.")
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

func TestGrantWhoseReplyIsLostIsTheSameWhenAskedAgain(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		far, near := l.far(), l.near()
		l.ready(far)
		lost := l.link.DropReply(l.askingFirst("x"))
		w := l.wait(far, "x")
		l.untilStruck(lost)
		granted := l.inspect("x").Holder
		require.NotNil(t, granted)

		lease := w.granted(soon)
		assert.Equal(t, granted.Fence, lease.Fence())
		l.holds(lease)
		_, err := near.Mutex("x").TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		require.NoError(t, lease.Release(t.Context()))
		assert.Greater(t, l.free(near, "x"), lease.Fence())
	})
}

func TestLockWhoseReplyIsLostIsLockedOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		far, near := l.far(), l.near()
		l.ready(far)
		mu := far.Mutex("x")
		lost := l.link.DropReply(l.askingFirst("x"))
		promptly(t, soon, func() error { mu.Lock(); return nil })
		l.untilStruck(lost)
		_, err := near.Mutex("x").TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		mu.Unlock()
		l.free(near, "x")
	})
}

func TestGrantToTryLockWhoseReplyIsLostIsNotLeftBehind(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		l.remember()
		far, near := l.far(), l.near()
		l.ready(far)
		lost := l.link.DropReply(l.askingFirst("x"))
		locked := promptly(t, soon, far.Mutex("x").TryLock)
		l.untilStruck(lost)
		if locked {
			far.Mutex("x").Unlock()
		}
		l.soonFree(near, "x")
	})
}

func TestWaiterWhoseReplyIsLostQueuesOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		far, near := l.far(), l.near()
		l.ready(far)
		queued := 0
		// The first time a client may look at the lock before it queues.
		for _, name := range []string{"x", "y"} {
			held := l.lease(near, name)
			asks := l.count(l.asking(name))
			lost := l.link.DropReply(l.asking(name))
			w := l.wait(far, name)
			l.untilStruck(lost)
			was := len(l.inspect(name).Queue)
			assert.LessOrEqual(t, was, 1)
			queued += was
			l.until("it asked again", func() bool { return asks.Load() > 1 })
			l.untilListening(1)
			l.untilQueue(name, 1)

			require.NoError(t, held.Release(t.Context()))
			lease := w.granted(soon)
			assert.Greater(t, lease.Fence(), held.Fence())
			l.holds(lease)
			require.NoError(t, lease.Release(t.Context()))
			l.free(near, name)
		}
		assert.Positive(t, queued, "no ask that queued has lost its reply")
	})
}

func TestHeartbeatThatIsGrantedMayLoseItsReply(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		far, near := l.far(holdfast.WithTTL(900*time.Millisecond)), l.near()
		l.ready(far)
		l.link.DropPush(func(string, string) bool { return true })
		var released atomic.Bool
		lost := l.link.DropReply(func(cmd []string) bool { return released.Load() && l.asking("x")(cmd) })
		for try := 1; ; try++ {
			held := l.lease(near, "x")
			w := l.wait(far, "x")
			l.untilQueue("x", 1)
			require.NoError(t, held.Release(t.Context()))
			released.Store(true)
			granted := l.inspect("x").Holder
			require.NotNil(t, granted)
			lease := w.granted(900*time.Millisecond/3 + l.slack)
			l.holds(lease)
			assert.Equal(t, granted.Fence, lease.Fence())
			require.NoError(t, lease.Release(t.Context()))
			l.free(near, "x")
			select {
			case <-lost:
				return
			default: // a heartbeat was faster than released
			}
			require.Less(t, try, 20, "the fault did not strike")
			released.Store(false)
		}
	})
}

func TestRenewalWhoseReplyIsLostKeepsTheLease(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		const ttl = time.Second
		far, near := l.far(holdfast.WithTTL(ttl)), l.near()
		l.ready(far)
		lease := l.lease(far, "x")
		for range 2 {
			l.untilStruck(l.link.DropReply(l.renewing("x")))
		}
		l.keeps(lease, ttl)
		require.NoError(t, lease.Release(t.Context()))
		l.free(near, "x")
	})
}

func TestManualRenewalWhoseReplyIsLostKeepsTheLease(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		far, near := l.far(), l.near()
		l.ready(far)
		lease := l.lease(far, "x", holdfast.WithoutRenewal(), holdfast.WithTTL(10*time.Second))
		lost := l.link.DropReply(l.renewing("x"))
		err := promptly(t, soon, func() error { return lease.Renew(t.Context()) })
		l.untilStruck(lost)
		if err != nil {
			require.NotErrorIs(t, err, holdfast.ErrLost)
			require.NotErrorIs(t, err, holdfast.ErrNotHeld)
		}
		l.holds(lease)
		require.NoError(t, lease.Renew(t.Context()))
		l.holds(lease)
		require.NoError(t, lease.Release(t.Context()))
		l.free(near, "x")
	})
}

func TestReleaseWhoseReplyIsLostSucceeds(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		far, near := l.far(), l.near()
		l.ready(far)
		lease := l.lease(far, "x")
		lost := l.link.DropReply(l.releasing("x"))
		require.NoError(t, promptly(t, soon, func() error { return lease.Release(t.Context()) }))
		l.untilStruck(lost)
		l.free(near, "x")

		far.Mutex("x").Lock()
		lost = l.link.DropReply(l.releasing("x"))
		far.Mutex("x").Unlock()
		l.untilStruck(lost)
		l.free(near, "x")
	})
}

func TestReleaseWhoseReplyIsLostHandsOverOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		far, near := l.far(), l.near()
		l.ready(far)
		lease := l.lease(far, "x")
		first := l.wait(near, "x")
		l.untilQueue("x", 1)
		second := l.wait(near, "x")
		l.untilQueue("x", 2)

		lost := l.link.DropReply(l.releasing("x"))
		require.NoError(t, promptly(t, soon, func() error { return lease.Release(t.Context()) }))
		l.untilStruck(lost)
		next := first.granted(soon)
		l.holds(next)
		assert.Greater(t, next.Fence(), lease.Fence())
		assert.Len(t, l.inspect("x").Queue, 1, "the repeated release gave away what it did not hold")
		require.NoError(t, next.Release(t.Context()))
		require.NoError(t, second.granted(soon).Release(t.Context()))
		l.free(near, "x")
	})
}

// A straggler is an ask that arrives when its waiter has long given up.
func TestStragglingAskTakesNothing(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	type scene struct {
		*lab
		far, near *holdfast.Client
		deliver   func()
		lost      *holdfast.Lease
	}
	// catch holds the next ask for x on its way.
	catch := func(s *scene) <-chan struct{} {
		caught, deliver := s.link.HoldRequest(s.asking("x"))
		s.deliver = deliver
		s.t.Cleanup(deliver)
		return caught
	}
	for name, play := range map[string]func(*testing.T, *scene){
		"of a waiter who gave up": func(t *testing.T, s *scene) {
			caught := catch(s)
			w := s.wait(s.far, "x")
			s.untilStruck(caught)
			w.cancel(gone)
			require.ErrorIs(t, w.failed(soon), gone)
		},
		"of a waiter who saw the connection break, and gave up": func(t *testing.T, s *scene) {
			s.link.Refuse(true)
			defer s.link.Refuse(false)
			caught := catch(s)
			w := s.wait(s.far, "x")
			s.untilStruck(caught)
			s.link.Cut()
			w.cancel(gone)
			require.ErrorIs(t, w.failed(soon), gone)
		},
		"of a waiter whose time was over": func(t *testing.T, s *scene) {
			caught := catch(s)
			w := s.wait(s.far, "x", holdfast.WithWait(200*time.Millisecond))
			s.untilStruck(caught)
			require.ErrorIs(t, w.failed(soon), context.DeadlineExceeded)
		},
		"of TryLease": func(t *testing.T, s *scene) {
			caught := catch(s)
			ctx, cancel := context.WithCancelCause(t.Context())
			errs := make(chan error, 1)
			go func() {
				_, err := s.far.Mutex("x").TryLease(ctx)
				errs <- err
			}()
			s.untilStruck(caught)
			cancel(gone)
			require.ErrorIs(t, <-errs, gone)
		},
		"of one who had waited long": func(t *testing.T, s *scene) {
			held := s.lease(s.near, "x")
			w := s.wait(s.far, "x", holdfast.WithTTL(600*time.Millisecond))
			s.untilQueue("x", 1)
			s.untilListening(1)
			s.untilStruck(catch(s))
			w.cancel(gone)
			require.ErrorIs(t, w.failed(soon), gone)
			require.NoError(t, held.Release(t.Context()))
		},
		"of one who was granted the lock, and has released it": func(t *testing.T, s *scene) {
			held := s.lease(s.near, "x")
			w := s.wait(s.far, "x", holdfast.WithTTL(600*time.Millisecond))
			s.untilQueue("x", 1)
			s.untilListening(1)
			s.untilStruck(catch(s))
			require.NoError(t, held.Release(t.Context()))
			require.NoError(t, w.granted(soon).Release(t.Context()))
		},
		"of one from whom the lock was taken": func(t *testing.T, s *scene) {
			held := s.lease(s.near, "x")
			w := s.wait(s.far, "x", holdfast.WithTTL(600*time.Millisecond))
			s.untilQueue("x", 1)
			s.untilListening(1)
			s.untilStruck(catch(s))
			require.NoError(t, held.Release(t.Context()))
			s.lost = w.granted(soon)
			require.NoError(t, s.near.Mutex("x").ForceUnlock(t.Context()))
			s.loses(s.lost, soon)
		},
	} {
		t.Run(name, func(t *testing.T) {
			withPatience(t, func(t *testing.T, l *lab) {
				l.remember()
				s := &scene{lab: l, far: l.far(), near: l.near()}
				l.ready(s.far)
				undone := l.count(l.releasing("x"))
				play(t, s)
				// The undo is on its way. If it is not, so much the worse: go on.
				for deadline := time.Now().Add(time.Second); s.lost == nil && undone.Load() == 0 && time.Now().Before(deadline); {
					time.Sleep(time.Millisecond)
				}
				l.soonFree(s.near, "x")
				promptly(t, 2*soon, func() error { s.deliver(); return nil })
				assert.Nil(t, l.inspect("x").Holder, "the straggler has taken the lock")
				l.free(s.near, "x")
				if s.lost != nil {
					require.ErrorIs(t, s.lost.Release(t.Context()), holdfast.ErrLost)
				}
			})
		})
	}
}

func TestStragglingRenewalAndReleaseTouchNobodyElse(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		far, near := l.far(), l.near()
		l.ready(far)

		lease := l.lease(far, "x", holdfast.WithTTL(900*time.Millisecond))
		caught, deliver := l.link.HoldRequest(l.renewing("x"))
		l.untilStruck(caught)
		require.NoError(t, lease.Release(t.Context()))
		next := l.lease(near, "x")
		deliver()
		l.holds(next)
		require.NoError(t, next.Release(t.Context()))

		lease = l.lease(far, "x")
		caught, deliver = l.link.HoldRequest(l.releasing("x"))
		released := make(chan error, 1)
		go func() { released <- lease.Release(t.Context()) }()
		l.untilStruck(caught)
		l.link.Cut()
		require.NoError(t, promptly(t, soon, func() error { return <-released }))
		next = l.lease(near, "x")
		deliver()
		l.holds(next)
		require.NoError(t, next.Release(t.Context()))
	})
}

// The holder may be wrong about the lock, but only in one direction.
func TestHolderThatIsCutOffStopsBeforeTheStoreLetsAnotherIn(t *testing.T) {
	t.Parallel()
	for name, blackHole := range map[string]func(*redistest.Proxy, bool){
		"both ways":    (*redistest.Proxy).BlackHole,
		"its requests": (*redistest.Proxy).BlackHoleRequests,
		"its replies":  (*redistest.Proxy).BlackHoleReplies,
	} {
		t.Run(name, func(t *testing.T) {
			withPatience(t, func(t *testing.T, l *lab) {
				l.remember()
				const ttl = 800 * time.Millisecond
				far, near := l.far(holdfast.WithTTL(ttl)), l.near()
				l.ready(far)
				lease := l.lease(far, "x")
				w := l.wait(near, "x")
				l.untilQueue("x", 1)
				l.keeps(lease, ttl/2)

				blackHole(l.link, true)
				select {
				case <-lease.Done():
				case <-w.done:
					if l.virtual {
						t.Fatal("two held the lock")
					}
				}
				// Err looks at the clock: it must be right even where the machine was too
				// busy to end the context in time.
				require.ErrorIs(t, lease.Err(), holdfast.ErrLost)
				l.loses(lease, l.slack)
				if l.virtual {
					assert.Positive(t, l.leaseLeft("x"), "the store was first")
				}
				next := w.granted(2*ttl + l.slack)
				assert.Greater(t, next.Fence(), lease.Fence())

				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				err := promptly(t, 1100*time.Millisecond+l.slack, func() error { return lease.Release(ctx) })
				assert.ErrorIs(t, err, holdfast.ErrLost)
				blackHole(l.link, false)
				l.link.Cut()
				l.holds(next)
				require.NoError(t, next.Release(t.Context()))
				l.soonFree(near, "x")
			})
		})
	}
}

// leaseLeft is how long the lease still lasts on the server.
func (l *lab) leaseLeft(name string) time.Duration {
	l.t.Helper()
	expires, err := l.direct.HGet(l.t.Context(), l.key(name), "expires").Int64()
	require.NoError(l.t, err)
	now, err := l.direct.Time(l.t.Context()).Result()
	require.NoError(l.t, err)
	return time.UnixMilli(expires).Sub(now)
}

func TestLossIsReportedThoughTheLinkIsDead(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		l.remember()
		far := l.far(holdfast.WithTTL(300 * time.Millisecond))
		l.ready(far)
		heal := func() { l.link.BlackHole(false); l.link.Cut() }

		// Do, whose context has ended as well.
		ctx, cancel := context.WithCancel(t.Context())
		err := promptly(t, 2*soon, func() error {
			return far.Mutex("do").Do(ctx, func(ctx context.Context) error {
				l.link.BlackHole(true)
				<-ctx.Done()
				assert.ErrorIs(t, context.Cause(ctx), holdfast.ErrLost)
				cancel()
				return nil
			})
		})
		assert.ErrorIs(t, err, holdfast.ErrLost)
		heal()

		// Release that may take all the time it wants, which is a while.
		if l.virtual {
			lease := l.lease(far, "release")
			l.link.BlackHole(true)
			l.loses(lease, 300*time.Millisecond+l.slack)
			err := promptly(t, 3*soon, func() error { return lease.Release(context.Background()) })
			assert.ErrorIs(t, err, holdfast.ErrLost)
			heal()
		}

		// Lock cannot return it, but it stays locked here, and says so in the log.
		mu := far.Mutex("lock")
		mu.Lock()
		l.link.BlackHole(true)
		l.until("the loss is in the log", func() bool { return strings.Contains(l.log.String(), "lock=lock") })
		assert.False(t, mu.TryLock())
		promptly(t, time.Second+l.slack, func() error { mu.Unlock(); return nil })
		heal()
		promptly(t, soon, func() error { mu.Lock(); mu.Unlock(); return nil })
	})
}

// While Redis does not answer, a caller who has had enough can leave.
func TestCancelReturnsAtOnceThoughTheLinkIsDead(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	for name, scene := range map[string]struct {
		fresh  bool // the client has never been answered
		queued bool // the waiter is in the queue already
		hole   func(*redistest.Proxy, bool)
	}{
		"before it ever answered":              {true, false, (*redistest.Proxy).BlackHole},
		"before it answered this":              {false, false, (*redistest.Proxy).BlackHole},
		"after it granted without being heard": {false, false, (*redistest.Proxy).BlackHoleReplies},
		"in the queue":                         {false, true, (*redistest.Proxy).BlackHole},
		"in the queue, unheard":                {false, true, (*redistest.Proxy).BlackHoleReplies},
	} {
		t.Run(name, func(t *testing.T) {
			withPatience(t, func(t *testing.T, l *lab) {
				l.remember()
				near := l.near()
				l.ready(near)
				// The machine may be busy once, not every time.
				fastest := time.Hour
				for range 3 {
					far := l.far()
					if !scene.fresh {
						l.ready(far)
					}
					var held *holdfast.Lease
					if scene.queued {
						held = l.lease(near, "x")
					}
					before := l.link.Swallowed()
					if !scene.queued {
						scene.hole(l.link, true)
					}
					w := l.wait(far, "x")
					if scene.queued {
						l.untilQueue("x", 1)
						l.untilListening(1)
						l.ready(far) // by now it has heard that it is in the queue
						scene.hole(l.link, true)
					} else {
						l.until("something is under way", func() bool { return l.link.Swallowed() > before })
					}
					began := time.Now()
					w.cancel(gone)
					err := w.failed(soon)
					fastest = min(fastest, w.at.Sub(began))
					assert.ErrorIs(t, err, gone)
					if scene.queued {
						assert.ErrorIs(t, err, holdfast.ErrLocked)
					}

					scene.hole(l.link, false)
					l.link.Cut()
					if held != nil {
						require.NoError(t, held.Release(t.Context()))
					}
					l.soonFree(near, "x")
					require.NoError(t, promptly(t, 2*soon, far.Close))
					l.untilListening(0)
				}
				limit := 50 * time.Millisecond
				if l.virtual {
					limit = time.Millisecond
				}
				assert.Less(t, fastest, limit)
			})
		})
	}
}

func TestUnlockAndTryLockWaitASecondForADeadLink(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		l.remember()
		far, near := l.far(), l.near()
		l.ready(far)
		mu := far.Mutex("x")
		mu.Lock()
		l.link.BlackHole(true)
		promptly(t, time.Second+l.slack, func() error { mu.Unlock(); return nil })
		assert.False(t, promptly(t, time.Second+l.slack, mu.TryLock))
		l.link.BlackHole(false)
		l.link.Cut()
		l.soonFree(near, "x")
		promptly(t, soon, func() error { mu.Lock(); mu.Unlock(); return nil })
	})
}

func TestReleaseWithADoneContextWaitsASecondForADeadLink(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		l.remember()
		far, near := l.far(), l.near()
		l.ready(far)
		lease := l.lease(far, "x")
		l.link.BlackHole(true)
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		err := promptly(t, time.Second+l.slack, func() error { return lease.Release(ctx) })
		assert.ErrorIs(t, err, gone)
		assert.ErrorIs(t, lease.Err(), holdfast.ErrNotHeld)
		l.link.BlackHole(false)
		l.link.Cut()
		l.soonFree(near, "x")
	})
}

func TestEveryCallEndsWithItsContextThoughTheLinkIsDead(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		l.remember()
		far := l.far()
		l.ready(far)
		lease := l.lease(far, "x")
		l.link.BlackHole(true)
		gone := errors.New("gone")
		mu := far.Mutex("y")
		for what, call := range map[string]func(context.Context) error{
			"Lease":       func(ctx context.Context) error { _, err := mu.Lease(ctx); return err },
			"TryLease":    func(ctx context.Context) error { _, err := mu.TryLease(ctx); return err },
			"Do":          func(ctx context.Context) error { return mu.Do(ctx, nil) },
			"Inspect":     func(ctx context.Context) error { _, err := mu.Inspect(ctx); return err },
			"ForceUnlock": mu.ForceUnlock,
			"Renew":       lease.Renew,
		} {
			ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, gone)
			began := time.Now()
			err := promptly(t, 50*time.Millisecond+l.slack, func() error { return call(ctx) })
			cancel()
			assert.ErrorIs(t, err, gone, what)
			if l.virtual {
				assert.Equal(t, 50*time.Millisecond, time.Since(began), what)
			}
		}
		require.NoError(t, lease.Err())
		l.link.BlackHole(false)
		l.link.Cut()
		l.holds(lease)
		require.NoError(t, lease.Release(t.Context()))
		l.soonFree(l.near(), "y")
	})
}

func TestCloseGivesUpOnADeadLink(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		l := newLab(t, s)
		far, near := l.far(holdfast.WithTTL(time.Second)), l.near()
		l.ready(far)
		lease := l.lease(far, "x")
		l.link.BlackHole(true)
		began := time.Now()
		require.Error(t, promptly(t, 11*time.Second, far.Close))
		assert.Greater(t, time.Since(began), time.Second)
		require.Error(t, lease.Err())
		require.NoError(t, far.Close())
		l.soonFree(near, "x")
	})
}

func TestCloseEndsThoseWhoWaitOnADeadLink(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		l := newLab(t, s)
		l.virtual = true
		for _, fresh := range []bool{true, false} {
			far := l.far()
			if !fresh {
				l.ready(far)
			}
			l.link.BlackHole(true)
			w := l.wait(far, "x")
			background := make(chan error, 1)
			go func() {
				_, err := far.Mutex("x").Lease(context.Background())
				background <- err
			}()
			locked := make(chan any, 1)
			go func() {
				defer func() { locked <- recover() }()
				far.Mutex("x").Lock()
			}()
			time.Sleep(100 * time.Millisecond)
			closed := make(chan error, 1)
			go func() { closed <- far.Close() }()
			require.ErrorIs(t, w.failed(time.Millisecond), holdfast.ErrClosed)
			require.ErrorIs(t, promptly(t, 15*time.Second, func() error { return <-background }), holdfast.ErrClosed)
			assert.Contains(t, fmt.Sprint(promptly(t, 15*time.Second, func() any { return <-locked })), "closed")
			_ = promptly(t, 15*time.Second, func() error { return <-closed })
			l.link.BlackHole(false)
			l.link.Cut()
			l.soonFree(l.near(), "x")
		}
	})
}

// crowd are waiters of several clients that each take the lock for a moment.
type crowd struct {
	*lab
	inside, overlaps atomic.Int64
	served           sync.WaitGroup
	last             atomic.Int64 // the last fence
	unordered        atomic.Int64
}

func (l *lab) crowd(name string, each int, clients ...*holdfast.Client) *crowd {
	l.t.Helper()
	c := &crowd{lab: l}
	for _, client := range clients {
		for range each {
			c.served.Go(func() {
				lease, err := client.Mutex(name).Lease(l.t.Context())
				if !assert.NoError(l.t, err) {
					return
				}
				if c.inside.Add(1) > 1 {
					c.overlaps.Add(1)
				}
				if c.last.Swap(lease.Fence()) >= lease.Fence() {
					c.unordered.Add(1)
				}
				c.inside.Add(-1)
				assert.NoError(l.t, lease.Release(l.t.Context()))
			})
		}
	}
	return c
}

func (c *crowd) requireServed(limit time.Duration) {
	c.t.Helper()
	promptly(c.t, limit, func() error { c.served.Wait(); return nil })
	assert.Zero(c.t, c.overlaps.Load(), "two held the lock")
	assert.Zero(c.t, c.unordered.Load(), "fences went back")
}

func TestWaitersAreServedAfter(t *testing.T) {
	t.Parallel()
	const ttl = 900 * time.Millisecond
	for name, scene := range map[string]struct {
		strike   func(*lab)
		dataLost bool
	}{
		"SCRIPT FLUSH": {
			strike: func(l *lab) { require.NoError(l.t, l.direct.ScriptFlush(l.t.Context()).Err()) },
		},
		"a kill of all subscriptions": {
			strike: func(l *lab) {
				n, err := l.direct.ClientKillByFilter(l.t.Context(), "TYPE", "pubsub").Result()
				require.NoError(l.t, err)
				require.EqualValues(l.t, 3, n)
			},
		},
		"a cut of all connections": {
			strike: func(l *lab) { l.link.Cut() },
		},
		"a while without connections": {
			strike: func(l *lab) {
				l.link.Refuse(true)
				l.link.Cut()
				time.Sleep(ttl / 3)
				l.link.Refuse(false)
			},
		},
		"a pause of the server": {
			strike: func(l *lab) { l.s.Pause(); time.Sleep(ttl / 3); l.s.Resume() },
		},
		"a restart without the data": {
			strike:   func(l *lab) { l.s.Restart() },
			dataLost: true,
		},
		"FLUSHALL": {
			strike:   func(l *lab) { require.NoError(l.t, l.direct.FlushAll(l.t.Context()).Err()) },
			dataLost: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, redistest.Real(t))
			near := l.near(holdfast.WithTTL(ttl))
			far := make([]*holdfast.Client, 3)
			for i := range far {
				far[i] = l.far(holdfast.WithTTL(ttl))
			}
			held, other := l.lease(near, "x"), l.lease(far[0], "other")
			c := l.crowd("x", 3, far...)
			c.last.Store(held.Fence())
			l.untilQueue("x", 9)
			l.untilListening(3)

			scene.strike(l)
			if err := held.Release(t.Context()); scene.dataLost && err != nil {
				require.ErrorIs(t, err, holdfast.ErrLost)
			} else {
				require.NoError(t, err)
			}
			c.requireServed(ttl/3 + l.slack)
			l.free(near, "x")
			if scene.dataLost {
				l.loses(other, ttl+l.slack)
				return
			}
			l.keeps(other, ttl) // its renewals got through
			require.NoError(t, other.Release(t.Context()))
		})
	}
}

// After a black hole the connections stay silent for ever, and so does the subscription:
// no FIN, no RST.
func TestWaiterIsServedAfterItsConnectionsWentDead(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		l.remember()
		const ttl, readTimeout = 900 * time.Millisecond, 300 * time.Millisecond
		far := l.open(l.link.Client(t, func(o *redis.Options) { o.ReadTimeout = readTimeout }), holdfast.WithTTL(ttl))
		near := l.near()
		l.ready(far)
		for _, dead := range []time.Duration{ttl / 3, 2 * ttl} {
			held := l.lease(near, "x")
			w := l.wait(far, "x")
			l.untilQueue("x", 1)
			l.untilListening(1)
			l.link.BlackHole(true)
			time.Sleep(dead)
			l.link.BlackHole(false)
			require.NoError(t, held.Release(t.Context()))
			lease := w.granted(readTimeout + ttl/3 + l.slack)
			l.holds(lease)
			require.NoError(t, lease.Release(t.Context()))
			l.soonFree(near, "x")
			l.link.Cut()
		}
	})
}

func TestHolderOnAFrozenServerStopsInTime(t *testing.T) {
	t.Parallel()
	const ttl = 600 * time.Millisecond
	l := newLab(t, redistest.Real(t))
	a, b := l.near(holdfast.WithTTL(ttl)), l.near(holdfast.WithTTL(ttl))
	lease := l.lease(a, "x")
	w := l.wait(b, "x")
	l.untilQueue("x", 1)
	l.s.Pause()
	defer l.s.Resume()
	l.loses(lease, ttl+l.slack)
	l.s.Resume()
	// Whatever the server finds in its sockets now, only one gets the lock.
	next := w.granted(ttl + l.slack)
	assert.Greater(t, next.Fence(), lease.Fence())
	require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrLost)
	l.holds(next)
	require.NoError(t, next.Release(t.Context()))
	l.free(a, "x")
}

func TestLockWaitsOutAnOutage(t *testing.T) {
	t.Parallel()
	l := newLab(t, redistest.Real(t))
	mu := l.near().Mutex("x")
	mu.Lock()
	mu.Unlock()
	l.s.Stop()
	locked := make(chan struct{})
	go func() { mu.Lock(); close(locked) }()
	select {
	case <-locked:
		t.Fatal("locked without a server")
	case <-time.After(300 * time.Millisecond):
	}
	l.s.Restart()
	promptly(t, 2*soon, func() error { <-locked; return nil })
	mu.Unlock()
	l.free(l.near(), "x")
}

func TestWaiterWhosePushIsLostIsServedByItsHeartbeat(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		const ttl = 900 * time.Millisecond
		far, near := l.far(holdfast.WithTTL(ttl)), l.near()
		l.ready(far)
		for range 2 {
			held := l.lease(near, "x")
			w := l.wait(far, "x")
			l.untilQueue("x", 1)
			l.untilListening(1)
			var lost atomic.Int64
			l.link.DropPush(func(_, payload string) bool {
				return strings.HasPrefix(payload, "granted ") && lost.Add(1) == 1
			})
			began := time.Now()
			require.NoError(t, held.Release(t.Context()))
			lease := w.granted(ttl/3 + l.slack)
			if l.virtual {
				assert.LessOrEqual(t, w.at.Sub(began), ttl/3)
				assert.EqualValues(t, 1, lost.Load())
			}
			l.holds(lease)
			require.NoError(t, lease.Release(t.Context()))
			l.free(near, "x")
		}
	})
}

// A subscription whose connection is open but dead is worse than one that broke:
// nobody is told.
func TestHalfOpenSubscriptionIsFoundAndMadeAnew(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		const ttl = 900 * time.Millisecond
		far, near := l.far(), l.near()
		l.ready(far)
		subscribed := l.count(func(cmd []string) bool { return strings.EqualFold(cmd[0], "subscribe") })

		// As long as it is not found, the heartbeat serves.
		held := l.lease(near, "x")
		w := l.wait(far, "x", holdfast.WithTTL(ttl))
		l.untilQueue("x", 1)
		l.untilListening(1)
		l.link.DropPush(func(string, string) bool { return true })
		require.NoError(t, held.Release(t.Context()))
		lease := w.granted(ttl/3 + l.slack)
		require.NoError(t, lease.Release(t.Context()))

		// Here the heartbeat is 10 s away. The test hears of the new subscription by the
		// ask that follows it.
		held = l.lease(near, "x")
		was := subscribed.Load()
		var asked atomic.Bool
		l.tap(func(cmd []string) {
			if subscribed.Load() > was && l.asking("x")(cmd) {
				asked.Store(true)
			}
		})
		w = l.wait(far, "x")
		l.untilQueue("x", 1)
		l.until("the subscription is made anew", func() bool { return subscribed.Load() > was })
		l.link.DropPush(nil)
		l.until("the waiter has asked", asked.Load)
		began := time.Now()
		require.NoError(t, held.Release(t.Context()))
		lease = w.granted(soon)
		if l.virtual {
			assert.Less(t, w.at.Sub(began), 250*time.Millisecond)
		}
		require.NoError(t, lease.Release(t.Context()))

		// And pushes are heard again.
		held = l.lease(near, "x")
		w = l.wait(far, "x")
		l.untilQueue("x", 1)
		l.untilListening(1)
		time.Sleep(500 * time.Millisecond) // longer than the polls of who is not subscribed
		began = time.Now()
		require.NoError(t, held.Release(t.Context()))
		lease = w.granted(soon)
		if l.virtual {
			assert.Zero(t, w.at.Sub(began))
		}
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestDeletedLockIsLost(t *testing.T) {
	t.Parallel()
	const ttl = 900 * time.Millisecond
	for name, destroy := range map[string]func(*lab) error{
		"DEL":      func(l *lab) error { return l.direct.Del(l.t.Context(), l.key("x")).Err() },
		"FLUSHALL": func(l *lab) error { return l.direct.FlushAll(l.t.Context()).Err() },
	} {
		body := func(t *testing.T, l *lab) {
			far, near := l.far(holdfast.WithTTL(ttl)), l.near()
			lease := l.lease(far, "x")
			require.NoError(t, destroy(l))
			l.loses(lease, ttl/3+l.slack)
			next := l.lease(near, "x")
			assert.Greater(t, next.Fence(), lease.Fence())
			require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrLost)
			l.holds(next)
			require.NoError(t, next.Release(t.Context()))
			l.free(near, "x")
		}
		t.Run(name, func(t *testing.T) {
			t.Run("redis", func(t *testing.T) { body(t, newLab(t, redistest.Real(t))) })
			inBubble(t, body)
		})
	}
}

func TestForceUnlockTellsAHolderThatListens(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		far, near := l.far(), l.near()
		// Having had to wait once, it listens.
		held := l.lease(near, "x")
		w := l.wait(far, "x")
		l.untilQueue("x", 1)
		l.untilListening(1)
		require.NoError(t, held.Release(t.Context()))
		lease := w.granted(soon)
		first := l.wait(near, "x")
		l.untilQueue("x", 1)

		require.NoError(t, near.Mutex("x").ForceUnlock(t.Context()))
		l.loses(lease, soon) // the next renewal is 10 s away
		next := first.granted(soon)
		assert.Greater(t, next.Fence(), lease.Fence())
		require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrLost)
		l.holds(next)
		require.NoError(t, next.Release(t.Context()))
		require.ErrorIs(t, near.Mutex("x").ForceUnlock(t.Context()), holdfast.ErrNotHeld)
		l.free(near, "x")
	})
}

func TestForceUnlockIsFoundByTheNextRenewal(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		const ttl = 900 * time.Millisecond
		far, near := l.far(holdfast.WithTTL(ttl)), l.near()
		lease := l.lease(far, "x")
		first := l.wait(near, "x")
		l.untilQueue("x", 1)
		second := l.wait(near, "x")
		l.untilQueue("x", 2)

		require.NoError(t, near.Mutex("x").ForceUnlock(t.Context()))
		next := first.granted(soon)
		l.loses(lease, ttl/3+l.slack)
		require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrLost)
		require.ErrorIs(t, lease.Renew(t.Context()), holdfast.ErrNotHeld)
		l.holds(next)
		require.NoError(t, next.Release(t.Context()))
		require.NoError(t, second.granted(soon).Release(t.Context()))
		l.free(near, "x")
	})
}

// The clocks of client and server have nothing to do with each other.
func TestServerClockMayBeWrong(t *testing.T) {
	t.Parallel()
	const ttl = 600 * time.Millisecond
	for _, offset := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(offset.String(), func(t *testing.T) {
			t.Parallel()
			s, clock := redistest.RealWithClock(t)
			clock.Set(offset)
			l := newLab(t, s)
			l.remember()
			a, b := l.near(holdfast.WithTTL(ttl)), l.near(holdfast.WithTTL(ttl))

			lease := l.lease(a, "x")
			assert.Less(t, time.Until(lease.Deadline()), ttl) // by the clock of this process
			w := l.wait(b, "x")
			l.untilQueue("x", 1)
			cancelled := l.wait(a, "x")
			l.untilQueue("x", 2)
			l.keeps(lease, 2*ttl)
			cancelled.cancel(nil)
			require.ErrorIs(t, cancelled.failed(soon), context.Canceled)
			l.untilQueue("x", 1)
			require.NoError(t, lease.Release(t.Context()))
			next := w.granted(soon)
			l.keeps(next, 2*ttl)
			require.NoError(t, next.Release(t.Context()))

			// Put right, by a little and by much, the fences nevertheless go on.
			last := next.Fence()
			for _, step := range []time.Duration{-time.Minute, -time.Hour} {
				clock.Set(offset + step)
				for range 3 {
					lease := l.lease(a, "x")
					assert.Greater(t, lease.Fence(), last)
					last = lease.Fence()
					w := l.wait(b, "x")
					l.untilQueue("x", 1)
					l.holds(lease)
					require.NoError(t, lease.Release(t.Context()))
					next := w.granted(soon)
					assert.Greater(t, next.Fence(), last)
					last = next.Fence()
					require.NoError(t, next.Release(t.Context()))
				}
			}
			l.free(a, "x")
		})
	}
}

func TestServerClockStepsBackWhileTheLockIsHeld(t *testing.T) {
	t.Parallel()
	const ttl = 600 * time.Millisecond
	for _, step := range []time.Duration{-time.Minute, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			s, clock := redistest.RealWithClock(t)
			l := newLab(t, s)
			l.remember()
			far, near := l.far(holdfast.WithTTL(ttl)), l.near(holdfast.WithTTL(ttl))

			// A holder that lives goes on, and hands over to who waited all the time.
			lease := l.lease(far, "alive")
			w := l.wait(near, "alive")
			l.untilQueue("alive", 1)
			crashed := l.lease(far, "crashed")
			l.keeps(lease, ttl/2)
			clock.Set(step)
			l.keeps(lease, 2*ttl)
			require.NoError(t, lease.Release(t.Context()))
			next := w.granted(ttl/3 + l.slack)
			assert.Greater(t, next.Fence(), lease.Fence())
			require.NoError(t, next.Release(t.Context()))

			// The lock of one that dies is free when its lease has ended, and not when
			// the clock has caught up.
			require.NoError(t, crashed.Err())
			clock.Set(2 * step)
			l.link.BlackHole(true)
			defer func() { l.link.BlackHole(false); l.link.Cut() }()
			successor := l.wait(near, "crashed").granted(ttl + ttl/20 + ttl/3 + l.slack)
			assert.Greater(t, successor.Fence(), crashed.Fence())
			require.ErrorIs(t, crashed.Err(), holdfast.ErrLost)
			require.NoError(t, successor.Release(t.Context()))
		})
	}
}
