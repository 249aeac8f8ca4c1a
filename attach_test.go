package holdfast_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func (l *lab) detach(lease *holdfast.Lease) (token string) {
	l.t.Helper()
	token, err := lease.Detach(l.t.Context())
	require.NoError(l.t, err)
	require.Equal(l.t, lease.Token(), token)
	require.ErrorIs(l.t, lease.Err(), holdfast.ErrNotHeld)
	require.ErrorIs(l.t, lease.Context().Err(), context.Canceled)
	require.ErrorIs(l.t, lease.Release(l.t.Context()), holdfast.ErrNotHeld)
	return token
}

func (l *lab) attach(c *holdfast.Client, token string) *holdfast.Lease {
	l.t.Helper()
	lease, err := c.Attach(l.t.Context(), token)
	require.NoError(l.t, err)
	return lease
}

func TestLeaseIsReleasedElsewhere(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		a, b := l.near(), l.far()
		for name, c := range map[string]struct {
			take  leasing
			other func() bool
		}{
			"mutex":  {a.Mutex("a:b").Lease, b.Mutex("a:b").TryLock},
			"writer": {a.RWMutex("x").Lease, b.RWMutex("x").TryRLock},
			"reader": {a.RWMutex("y").RLease, b.RWMutex("y").TryLock},
			"permit": {permits(a.Semaphore("x", 3), 2), func() bool { return b.Semaphore("x", 3).TryAcquire(2) }},
			"owner":  {a.Mutex("o", onBehalf).Lease, b.Mutex("o").TryLock},
		} {
			lease := l.take(c.take)
			token := l.detach(lease)
			require.NoError(t, a.Mutex("else").Do(t.Context(), func(context.Context) error { return nil }))
			assert.False(t, c.other(), name)
			again := l.attach(b, token)
			assert.Greater(t, again.Fence(), lease.Fence(), name)
			assert.Equal(t, lease.Name(), again.Name())
			assert.NotEqual(t, lease.Token(), again.Token())
			require.NoError(t, again.Renew(t.Context()))
			assert.False(t, c.other(), name)
			_, err := a.Attach(t.Context(), token)
			require.ErrorIs(t, err, holdfast.ErrNotHeld, name)
			require.NoError(t, again.Err())
			l.giveBack(again)
			assert.True(t, c.other(), name)
		}
	})
}

func TestAttachedLeaseIsRenewed(t *testing.T) {
	withPatience(t, func(t *testing.T, l *lab) {
		const ttl = 1500 * time.Millisecond
		a, b := l.near(holdfast.WithTTL(ttl)), l.near(holdfast.WithTTL(ttl))
		lease := l.attach(b, l.detach(l.lease(a, "x")))
		l.keeps(lease, 2*ttl)
		token := l.detach(lease)
		l.until("nobody has taken it over", func() bool { return len(l.inspect("x").Holders) == 0 })
		_, err := a.Attach(t.Context(), token)
		require.ErrorIs(t, err, holdfast.ErrNotHeld, "too late")
		l.free(a, "x")
	})
}

func TestManyAttachAndOneWins(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		clients := []*holdfast.Client{l.near(), l.near()}
		token := l.detach(l.lease(clients[0], "x"))
		waiter := l.wait(clients[1], "x")
		var all sync.WaitGroup
		var won atomic.Pointer[holdfast.Lease]
		for i := range 8 {
			all.Go(func() {
				lease, err := clients[i%2].Attach(t.Context(), token)
				if err == nil {
					assert.Nil(t, won.Swap(lease))
					return
				}
				assert.ErrorIs(t, err, holdfast.ErrNotHeld)
			})
		}
		all.Wait()
		l.holds(won.Load())
		l.giveBack(won.Load())
		l.giveBack(waiter.granted(soon))
	})
}

// The answer to an attach is lost. It is tried again, and is a repeat.
func TestAttachIsTriedAgain(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		l := newLab(t, s)
		l.remember()
		a, b := l.near(), l.far(holdfast.WithTTL(3*time.Second))
		l.ready(b)
		token := l.detach(l.lease(a, "x"))
		dropped := false
		struck := l.link.DropReply(func(cmd []string) bool {
			hit := !dropped && l.on(driver.Mutex, "x")(cmd)
			dropped = dropped || hit
			return hit
		})
		lease := l.attach(b, token)
		l.untilStruck(struck)
		l.holds(lease)
		l.giveBack(lease)
	})
}

func TestWhatIsNoToken(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.near()
		lease := l.lease(c, "x")
		parts := strings.SplitN(lease.Token(), ":", 3)
		for _, token := range []string{
			"", ":", "::", "mutex", "mutex:", "mutex::x", "mutex:" + parts[1], "mutex:" + parts[1] + ":", "nothing:" + parts[1] + ":x",
			"mutex:a b:x", "mutex:a\nb:x", "mutex:" + parts[1] + ":" + strings.Repeat("x", 513),
			"mutex:" + parts[1] + ":y", "rwmutex:" + parts[1] + ":x", "semaphore:" + parts[1] + ":x", "mutex:unknown:x",
		} {
			_, err := c.Attach(t.Context(), token)
			require.ErrorIs(t, err, holdfast.ErrNotHeld, "%q", token)
			requireNoToken(t, err.Error())
		}
		l.holds(lease)
		l.giveBack(lease)
		_, err := lease.Detach(t.Context())
		require.ErrorIs(t, err, holdfast.ErrNotHeld)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		lease = l.lease(c, "x", holdfast.WithoutRenewal())
		for range 20 { // it is no matter of luck
			_, err = lease.Detach(ctx)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, lease.Renew(ctx), context.Canceled)
		}
		l.holds(lease)
		l.giveBack(lease)
		lease = l.lease(c, "x")
		for range 20 {
			_, err = lease.Detach(ctx)
			require.ErrorIs(t, err, context.Canceled)
		}
		l.holds(lease)
		_, err = c.Attach(ctx, lease.Token())
		require.ErrorIs(t, err, context.Canceled)
		l.holds(lease)
		l.giveBack(lease)
	})
}

func TestNestedLeasesAreNotDetached(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.near(holdfast.WithReentrancy())
		outer := l.take(c.RWMutex("x").Lease)
		inner := l.nest(outer, c.RWMutex("x").Lease)
		_, err := outer.Detach(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		l.giveBack(outer)
		again := l.attach(c, l.detach(inner))
		nested := l.nest(again, c.RWMutex("x").Lease)
		l.giveBack(again, nested)

		reader := l.attach(c, l.detach(l.take(c.RWMutex("x").RLease)))
		_, err = c.RWMutex("x").Lease(reader.Context())
		require.ErrorIs(t, err, holdfast.ErrDeadlock, "it only reads")
		l.giveBack(reader)
	})
}

func TestHooksSeeAttach(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		a, b := l.near(), l.far()
		e := newTelemetry(t, holdfast.WithHoldSpans(holdfast.Always))
		b.AddHook(e.hook)
		lease := l.attach(b, l.detach(l.take(permits(a.Semaphore("x", 3), 2))))
		l.giveBack(lease)
		e.quiet(l)
		assert.ElementsMatch(t, []string{
			"acquire semaphore shared: attempts=1 contended=false fencing_token=N outcome=acquired wakeups.notify=0 wakeups.poll=0",
			"hold semaphore shared: end_reason=released permits=2 renewals=0",
			"release semaphore shared: outcome=released permits=2",
		}, e.told())
	})
}

func TestStoreThatCannotAttachSaysSo(t *testing.T) {
	c := holdfast.Open(bare{puppet{}})
	defer c.Close()
	_, err := c.Attach(t.Context(), "mutex:a:x")
	require.ErrorContains(t, err, "unsupported")
	lease, err := c.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	_, err = lease.Detach(t.Context())
	require.ErrorContains(t, err, "unsupported")
	require.NoError(t, lease.Release(t.Context()))
}

func init() { redistest.RegisterChild("successor", successor) }

// successor takes a lease over, and releases it.
func successor() {
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("KIN_ADDR")})
	c := holdfast.New(rdb, holdfast.WithPrefix(os.Getenv("KIN_PREFIX")))
	lease, err := c.Attach(context.Background(), os.Getenv("KIN_TOKEN"))
	if err != nil {
		fmt.Println("not held:", strings.Contains(err.Error(), "not held"))
		return
	}
	fmt.Println("attached")
	fmt.Println(lease.Release(context.Background()), c.Close())
}

func TestAnotherProcessReleases(t *testing.T) {
	t.Parallel()
	l := newLab(t, redistest.Shared(t))
	l.remember()
	token := l.detach(l.lease(l.near(), "x"))
	var lines []string
	for range 2 {
		p := redistest.Child(t, "successor", "KIN_ADDR="+l.s.Addr(), "KIN_PREFIX="+l.s.Prefix(), "KIN_TOKEN="+token)
		for line := range p.Lines() {
			lines = append(lines, line)
		}
	}
	assert.Equal(t, []string{"attached", "<nil> <nil>", "not held: true"}, lines)
	l.free(l.near(), "x")
}
