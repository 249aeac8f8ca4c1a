package release_test

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
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/crew"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestLeaseIsReleasedElsewhere(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Near(), l.Far()
		for name, c := range map[string]struct {
			take  lab.Leasing
			other func() bool
		}{
			"mutex":  {a.Mutex("a:b").Lease, b.Mutex("a:b").TryLock},
			"writer": {a.RWMutex("x").Lease, b.RWMutex("x").TryRLock},
			"reader": {a.RWMutex("y").RLease, b.RWMutex("y").TryLock},
			"permit": {lab.Permits(a.Semaphore("x", 3), 2), func() bool { return b.Semaphore("x", 3).TryAcquire(2) }},
			"owner":  {a.Mutex("o", lab.OnBehalf).Lease, b.Mutex("o").TryLock},
		} {
			lease := l.Take(c.take)
			token := l.Detach(lease)
			require.NoError(t, a.Mutex("else").Do(t.Context(), func(context.Context) error { return nil }))
			assert.False(t, c.other(), name)
			again := l.Attach(b, token)
			assert.Greater(t, again.Fence(), lease.Fence(), name)
			assert.Equal(t, lease.Name(), again.Name())
			assert.NotEqual(t, lease.Token(), again.Token())
			require.NoError(t, again.Renew(t.Context()))
			assert.False(t, c.other(), name)
			_, err := a.Attach(t.Context(), token)
			require.ErrorIs(t, err, holdfast.ErrNotHeld, name)
			require.NoError(t, again.Err())
			l.GiveBack(again)
			assert.True(t, c.other(), name)
		}
	})
}

func TestAttachedLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		const ttl = 1500 * time.Millisecond
		a, b := l.Near(holdfast.WithTTL(ttl)), l.Near(holdfast.WithTTL(ttl))
		lease := l.Attach(b, l.Detach(l.Lease(a, "x")))
		l.Keeps(lease, 2*ttl)
		token := l.Detach(lease)
		l.Until("nobody has taken it over", func() bool { return len(l.Inspect("x").Holders) == 0 })
		_, err := a.Attach(t.Context(), token)
		require.ErrorIs(t, err, holdfast.ErrNotHeld, "too late")
		l.Free(a, "x")
	})
}

func TestManyAttachAndOneWins(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		clients := []*holdfast.Client{l.Near(), l.Near()}
		token := l.Detach(l.Lease(clients[0], "x"))
		waiter := l.Wait(clients[1], "x")
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
		l.Holds(won.Load())
		l.GiveBack(won.Load())
		l.GiveBack(waiter.Granted(lab.Soon))
	})
}

// The answer to an attach is lost. It is tried again, and is a repeat.
func TestAttachIsTriedAgain(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		l := lab.New(t, s)
		l.Remember()
		a, b := l.Near(), l.Far(holdfast.WithTTL(3*time.Second))
		l.Ready(b)
		token := l.Detach(l.Lease(a, "x"))
		dropped := false
		struck := l.Link.DropReply(func(cmd []string) bool {
			hit := !dropped && l.On(driver.Mutex, "x")(cmd)
			dropped = dropped || hit
			return hit
		})
		lease := l.Attach(b, token)
		l.UntilStruck(struck)
		l.Holds(lease)
		l.GiveBack(lease)
	})
}

func TestWhatIsNoToken(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Near()
		lease := l.Lease(c, "x")
		parts := strings.SplitN(lease.Token(), ":", 3)
		for _, token := range []string{
			"", ":", "::", "mutex", "mutex:", "mutex::x", "mutex:" + parts[1], "mutex:" + parts[1] + ":", "nothing:" + parts[1] + ":x",
			"mutex:a b:x", "mutex:a\nb:x", "mutex:" + parts[1] + ":" + strings.Repeat("x", 513),
			"mutex:" + parts[1] + ":y", "rwmutex:" + parts[1] + ":x", "semaphore:" + parts[1] + ":x", "mutex:unknown:x",
		} {
			_, err := c.Attach(t.Context(), token)
			require.ErrorIs(t, err, holdfast.ErrNotHeld, "%q", token)
			lab.RequireNoToken(t, err.Error())
		}
		l.Holds(lease)
		l.GiveBack(lease)
		_, err := lease.Detach(t.Context())
		require.ErrorIs(t, err, holdfast.ErrNotHeld)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		lease = l.Lease(c, "x", holdfast.WithoutRenewal())
		for range 20 { // it is no matter of luck
			_, err = lease.Detach(ctx)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, lease.Renew(ctx), context.Canceled)
		}
		l.Holds(lease)
		l.GiveBack(lease)
		lease = l.Lease(c, "x")
		for range 20 {
			_, err = lease.Detach(ctx)
			require.ErrorIs(t, err, context.Canceled)
		}
		l.Holds(lease)
		_, err = c.Attach(ctx, lease.Token())
		require.ErrorIs(t, err, context.Canceled)
		l.Holds(lease)
		l.GiveBack(lease)
	})
}

func TestNestedLeasesAreNotDetached(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Near(holdfast.WithReentrancy())
		outer := l.Take(c.RWMutex("x").Lease)
		inner := l.Nest(outer, c.RWMutex("x").Lease)
		_, err := outer.Detach(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		l.GiveBack(outer)
		again := l.Attach(c, l.Detach(inner))
		nested := l.Nest(again, c.RWMutex("x").Lease)
		l.GiveBack(again, nested)

		reader := l.Attach(c, l.Detach(l.Take(c.RWMutex("x").RLease)))
		_, err = c.RWMutex("x").Lease(reader.Context())
		require.ErrorIs(t, err, holdfast.ErrDeadlock, "it only reads")
		l.GiveBack(reader)
	})
}

func TestStoreThatCannotAttachSaysSo(t *testing.T) {
	c := holdfast.Open(lab.Bare{Driver: lab.Puppet{}})
	defer c.Close()
	_, err := c.Attach(t.Context(), "mutex:a:x")
	require.ErrorContains(t, err, "unsupported")
	lease, err := c.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	_, err = lease.Detach(t.Context())
	require.ErrorContains(t, err, "unsupported")
	require.NoError(t, lease.Release(t.Context()))
}

func init() { crew.Register("successor", successor) }

// successor takes a lease over, and releases it.
func successor() {
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("KIN_ADDR")})
	c := holdfast.New(rdb, holdfast.WithPrefix(os.Getenv("KIN_PREFIX")))
	lease, err := c.Attach(context.Background(), os.Getenv("KIN_TOKEN"))
	if err != nil {
		crew.Report(fmt.Sprint("not held: ", strings.Contains(err.Error(), "not held")))
		return
	}
	crew.Report("attached")
	crew.Report(fmt.Sprint(lease.Release(context.Background()), c.Close()))
}

func TestAnotherProcessReleases(t *testing.T) {
	t.Parallel()
	l := lab.New(t, redistest.Shared(t))
	l.Remember()
	token := l.Detach(l.Lease(l.Near(), "x"))
	var lines []string
	for range 2 {
		p := crew.Start(t, "successor", "KIN_ADDR="+l.Server.Addr(), "KIN_PREFIX="+l.Server.Prefix(), "KIN_TOKEN="+token)
		require.NoError(t, p.Wait())
		lines = append(lines, crew.Said[string](p)...)
	}
	assert.Equal(t, []string{"attached", "<nil> <nil>", "not held: true"}, lines)
	l.Free(l.Near(), "x")
}
