package lab

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// Lab is a server, a link to it that may fail, and clients on both ends of it.
type Lab struct {
	T       *testing.T
	Server  *redistest.Server
	Link    *redistest.Proxy
	Direct  *redis.Client // past the link
	Virtual bool          // in a bubble
	Slack   time.Duration // how late the machine may be

	Retention time.Duration
	Log       Log
	watcher   *holdfast.Client
	scripts   scripts
}

const (
	// Ages is a TTL that no test waits for: what depends on it is stuck.
	Ages = 36 * time.Second
	// Soon is less than the third of it after which a heartbeat comes, and enough for whatever needs
	// no timeout, also on a machine that stands still for some seconds.
	Soon = 10 * time.Second
)

// New returns a lab whose clients leave nothing behind: when the test ends, none
// of its keys is without TTL, all are gone after the retention unless that is long,
// and no token stands in the log.
func New(t *testing.T, s *redistest.Server) *Lab {
	t.Helper()
	l := &Lab{T: t, Server: s, Retention: 200 * time.Millisecond, Slack: 4 * time.Second}
	if s.Mini() != nil {
		// Its clock goes on in the middle of a script. A key must not be near its end
		// when it is used again.
		l.Remember()
	}
	t.Cleanup(func() {
		s.RequireTTLs(t, s.Prefix())
		if l.Virtual {
			time.Sleep(l.Retention) // costs nothing; meanwhile go-redis ends what it does in the background
		}
		if l.Retention < time.Minute {
			s.RequireNoKeys(t, s.Prefix(), l.Retention+Soon)
		}
		RequireNoToken(t, l.Log.String())
	})
	l.Direct = s.Client(t)
	l.Link = redistest.NewProxy(t, s)
	return l
}

// Everywhere runs body over a real Redis and, in virtual time, in a bubble over miniredis. It is for
// tests that wait for no time to pass, else see [WithPatience] and [Lab.Time].
func Everywhere(t *testing.T, body func(*testing.T, *Lab)) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) { body(t, New(t, s)) })
	InBubble(t, body)
}

// WithPatience is [InBubble] for tests that wait for time to pass and can do so on a real Redis as
// well, with leases so short that a machine must not stand still: HOLDFAST_LEGS=all runs them there.
func WithPatience(t *testing.T, body func(*testing.T, *Lab)) {
	t.Helper()
	if redistest.Everywhere() {
		t.Run("redis", func(t *testing.T) {
			t.Parallel()
			body(t, New(t, redistest.Shared(t)))
		})
	}
	InBubble(t, body)
}

// InBubble runs body in virtual time over miniredis.
func InBubble(t *testing.T, body func(*testing.T, *Lab)) {
	t.Helper()
	if !redistest.Virtually() {
		t.Log("this part runs in virtual time; HOLDFAST_LEGS=real")
		return
	}
	t.Run("bubble", func(t *testing.T) {
		redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
			l := New(t, s)
			l.Virtual, l.Slack, l.Retention = true, 20*time.Millisecond, 2*time.Second
			body(t, l)
		})
	})
}

// Time is a time of a test: d in a bubble, where nothing is late, and ten times that on a server.
func (l *Lab) Time(d time.Duration) time.Duration {
	if l.Virtual {
		return d
	}
	return 10 * d
}

// Remember is for tests where asks may come late: on a busy machine, later than the
// tombstones of a short retention last. In a bubble nothing is late.
func (l *Lab) Remember() {
	if !l.Virtual {
		l.Retention = time.Minute
	}
}

// Open returns a client on rdb that is closed when the test ends. Its waiters each go to the
// store, since that is what most tests look at.
func (l *Lab) Open(rdb redis.UniversalClient, opts ...holdfast.Option) *holdfast.Client {
	l.T.Helper()
	return l.start(rdb, append([]holdfast.Option{holdfast.WithStrictFIFO()}, opts...)...)
}

// Mates returns a client beside the server whose waiters wait together.
func (l *Lab) Mates(opts ...holdfast.Option) *holdfast.Client {
	l.T.Helper()
	return l.start(l.Server.Client(l.T), opts...)
}

func (l *Lab) start(rdb redis.UniversalClient, opts ...holdfast.Option) *holdfast.Client {
	l.T.Helper()
	opts = append([]holdfast.Option{
		holdfast.WithTTL(Ages), holdfast.WithLogger(slog.New(mortal{slog.NewTextHandler(&l.Log, nil)})),
	}, opts...)
	c := holdfast.Open(redisdriver.New(rdb,
		redisdriver.WithPrefix(l.Server.Prefix()), redisdriver.WithRetention(l.Retention)), opts...)
	l.T.Cleanup(func() {
		assert.NoError(l.T, Promptly(l.T, 15*time.Second, c.Close))
	})
	return c
}

// Near returns a client beside the server.
func (l *Lab) Near(opts ...holdfast.Option) *holdfast.Client {
	return l.Open(l.Server.Client(l.T), opts...)
}

// Far returns a client at the end of the link.
func (l *Lab) Far(opts ...holdfast.Option) *holdfast.Client {
	return l.Open(l.Link.Client(l.T), opts...)
}

// FarMates returns such a client at the end of the link.
func (l *Lab) FarMates(opts ...holdfast.Option) *holdfast.Client {
	l.T.Helper()
	return l.start(l.Link.Client(l.T), opts...)
}

// Ready returns when c has open connections, and the server knows all scripts.
func (l *Lab) Ready(c *holdfast.Client) {
	l.T.Helper()
	if l.scripts == (scripts{}) {
		l.learn()
	}
	lease := l.Lease(c, "ready")
	require.NoError(l.T, lease.Renew(l.T.Context()))
	require.NoError(l.T, lease.Release(l.T.Context()))
}

// Lull is for how long a store must have been silent, so that no caller counts on a prompt
// answer and waits for it itself.
const Lull = 60 * time.Millisecond

// Key is the key of a mutex in Redis.
func (l *Lab) Key(name string) string { return l.Server.Prefix() + ":2:mutex:" + name }

// Inspect returns what the store knows of a mutex.
func (l *Lab) Inspect(name string) holdfast.Info {
	l.T.Helper()
	if l.watcher == nil {
		l.watcher = l.Near()
	}
	info, err := l.watcher.Mutex(name).Inspect(l.T.Context())
	require.NoError(l.T, err)
	return info
}

// Until polls for what the test has to wait for but is not about.
func (l *Lab) Until(what string, cond func() bool) {
	l.T.Helper()
	pause := 100 * time.Microsecond
	for deadline := time.Now().Add(2 * Soon); !cond(); time.Sleep(pause) {
		if time.Now().After(deadline) {
			l.T.Fatalf("waited in vain until %s\n%s", what, Stacks())
		}
		pause = min(2*pause, 10*time.Millisecond)
	}
}

// UntilQueue returns when n are in the queue of a mutex.
func (l *Lab) UntilQueue(name string, n int) {
	l.T.Helper()
	l.Until(fmt.Sprintf("%d are in the queue", n), func() bool { return len(l.Inspect(name).Queue) == n })
}

// UntilListening returns when n clients have subscribed to their news.
func (l *Lab) UntilListening(n int) {
	l.T.Helper()
	l.Until(fmt.Sprintf("%d clients listen", n), func() bool {
		channels, err := l.Direct.PubSubChannels(l.T.Context(), l.Server.Prefix()+"*").Result()
		require.NoError(l.T, err)
		return len(channels) == n
	})
}

// Heal ends the silence of the link, on new connections.
func (l *Lab) Heal() { l.Link.BlackHole(false); l.Link.Cut() }

// UntilStruck returns when a fault of the link has struck.
func (l *Lab) UntilStruck(fault <-chan struct{}) {
	l.T.Helper()
	select {
	case <-fault:
	case <-time.After(2 * Soon):
		l.T.Fatalf("the fault did not strike\n%s", Stacks())
	}
}

// Lease takes a lock that is free, or will be soon.
func (l *Lab) Lease(c *holdfast.Client, name string, opts ...holdfast.LockOption) *holdfast.Lease {
	l.T.Helper()
	return l.Wait(c, name, opts...).Granted(Soon)
}

// Free takes the lock and gives it back. It must be there at once.
func (l *Lab) Free(c *holdfast.Client, name string) (fence int64) {
	l.T.Helper()
	lease, err := c.Mutex(name).TryLease(l.T.Context())
	require.NoError(l.T, err, "the lock is not free")
	assert.NoError(l.T, lease.Release(l.T.Context()))
	assert.Empty(l.T, l.Inspect(name).Queue)
	return lease.Fence()
}

// SoonFree is [Lab.Free] for a lock that something in the background still has to give up.
func (l *Lab) SoonFree(c *holdfast.Client, name string) {
	l.T.Helper()
	l.Until("the lock is free", func() bool {
		lease, err := c.Mutex(name).TryLease(l.T.Context())
		if err != nil {
			require.ErrorIs(l.T, err, holdfast.ErrLocked)
			return false
		}
		assert.NoError(l.T, lease.Release(l.T.Context()))
		return true
	})
	l.UntilQueue(name, 0)
}

// Holds checks that both the client and the store think that the lease is held.
func (l *Lab) Holds(lease *holdfast.Lease) {
	l.T.Helper()
	require.NoError(l.T, lease.Err())
	info := l.Inspect(lease.Name())
	require.NotEmpty(l.T, info.Holders, "nobody holds the lock")
	require.Equal(l.T, lease.Fence(), info.Holders[0].Fence, "somebody else holds the lock")
}

// Keeps checks that a lease is held for as long as d.
func (l *Lab) Keeps(lease *holdfast.Lease, d time.Duration) {
	l.T.Helper()
	select {
	case <-lease.Done():
		l.T.Fatalf("lost: %v", context.Cause(lease.Context()))
	case <-time.After(d):
	}
	l.Holds(lease)
}

// Loses waits for the end of a lease, and checks that it is one by loss.
func (l *Lab) Loses(lease *holdfast.Lease, limit time.Duration) {
	l.T.Helper()
	select {
	case <-lease.Done():
	case <-time.After(limit):
		l.T.Fatalf("still held after %v", limit)
	}
	require.ErrorIs(l.T, context.Cause(lease.Context()), holdfast.ErrLost)
	require.ErrorIs(l.T, lease.Err(), holdfast.ErrLost)
	RequireNoToken(l.T, context.Cause(lease.Context()).Error())
}

// User returns the options of a user that may do what rules say, and connect.
func (l *Lab) User(name string, rules ...any) func(*redis.Options) {
	l.T.Helper()
	args := append([]any{"ACL", "SETUSER", name, "reset", "on", ">secret"}, rules...)
	require.NoError(l.T, l.Direct.Do(l.T.Context(), args...).Err())
	return func(o *redis.Options) { o.Username, o.Password = name, "secret" }
}
