package reentry_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/setnx"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/crew"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestOwnerEntersAgainFromAnywhere(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b, other := l.Near(), l.Far(), l.Near()
		first := l.Take(a.Mutex("x", lab.OnBehalf).Lease)
		waiter := l.Wait(other, "x")
		l.UntilQueue("x", 1)
		leases := []*holdfast.Lease{first}
		for _, again := range []lab.Leasing{b.Mutex("x", lab.OnBehalf).Lease, b.Mutex("x", lab.OnBehalf).TryLease, a.Mutex("x", lab.OnBehalf).Lease} {
			leases = append(leases, l.Take(again))
		}
		for _, lease := range leases[1:] {
			assert.Equal(t, first.Fence(), lease.Fence())
			assert.NotEqual(t, first.Token(), lease.Token())
		}
		holders := l.Inspect("x").Holders
		require.Len(t, holders, 4)
		for _, h := range holders {
			assert.Equal(t, "order 4711", h.Owner)
		}
		_, err := other.Mutex("x", holdfast.WithOwner("order 4712")).TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		for i, lease := range leases {
			assert.Len(t, l.Inspect("x").Queue, 1)
			l.GiveBack(lease)
			for _, rest := range leases[i+1:] {
				require.NoError(t, rest.Renew(t.Context()))
			}
		}
		next := waiter.Granted(lab.Soon)
		assert.Greater(t, next.Fence(), first.Fence(), "FOUL: fences went back")
		_, err = b.Mutex("x", lab.OnBehalf).TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		l.GiveBack(next)
		l.IsClean(driver.Mutex, "x")
	})
}

func TestOwnerOfAWriteLock(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Near().RWMutex("x", lab.OnBehalf), l.Near().RWMutex("x", lab.OnBehalf)
		first, second := l.Take(a.Lease), l.Take(b.Lease)
		assert.Equal(t, first.Fence(), second.Fence())
		assert.False(t, b.TryRLock(), "readers have no owner")
		require.ErrorContains(t, first.Downgrade(t.Context()), "unsupported")
		l.GiveBack(first)
		assert.False(t, b.TryRLock())
		l.GiveBack(second)
		b.RLock()
		_, err := a.TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		b.RUnlock()
		l.IsClean(driver.RWMutex, "x")
	})
}

func TestOwnerLocksAgain(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c, other := l.Near(), l.Near()
		mu := c.Mutex("x", lab.OnBehalf)
		mu.Lock()
		l.Ends(lab.Begin(mu.Lock))
		require.True(t, mu.TryLock())
		stranger := lab.Begin(c.Mutex("x").Lock)
		l.UntilQueue("x", 1)
		assert.Panics(t, c.Mutex("x", holdfast.WithOwner("another")).Unlock, "it is not theirs")
		for range 3 {
			l.Stays(stranger)
			mu.Unlock()
		}
		assert.Panics(t, mu.Unlock)
		l.Ends(stranger)
		assert.False(t, mu.TryLock())
		c.Mutex("x").Unlock()
		l.Free(other, "x")
	})
}

// A context that comes from a lease of the owner does not wait for itself; one that comes
// from a lease on another behalf would.
func TestOwnerAndTheLeaseOfAContext(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Near()
		mine, plain := c.Mutex("x", lab.OnBehalf), c.Mutex("x")
		other := c.Mutex("x", holdfast.WithOwner("another"), holdfast.WithReentrancy())
		outer := l.Take(mine.Lease)
		again := l.Nest(outer, mine.Lease)
		assert.NotEqual(t, outer.Token(), again.Token(), "counted in the store")
		for _, lease := range []lab.Leasing{plain.Lease, other.Lease, c.Mutex("x", holdfast.WithReentrancy()).Lease} {
			_, err := lease(outer.Context())
			require.ErrorIs(t, err, holdfast.ErrDeadlock)
		}
		nested := l.Nest(outer, c.Mutex("x", lab.OnBehalf, holdfast.WithReentrancy()).Lease)
		assert.Equal(t, outer.Token(), nested.Token(), "counted here")
		l.GiveBack(outer, again, nested)
		l.Free(c, "x")
	})
}

func TestForceUnlockEndsAllOfAnOwner(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Near(), l.Near()
		first, second := l.Take(a.Mutex("x", lab.OnBehalf).Lease), l.Take(b.Mutex("x", lab.OnBehalf).Lease)
		require.NoError(t, a.Mutex("x").ForceUnlock(t.Context()))
		require.ErrorIs(t, first.Renew(t.Context()), holdfast.ErrLost)
		require.ErrorIs(t, second.Renew(t.Context()), holdfast.ErrLost)
		l.Free(b, "x")
	})
}

func TestStoreWithoutOwnersSaysSo(t *testing.T) {
	s := redistest.Shared(t)
	c := holdfast.Open(setnx.New(s.Client(t), setnx.WithPrefix(s.Prefix())))
	defer c.Close()
	_, err := c.Mutex("x", lab.OnBehalf).Lease(t.Context())
	require.ErrorContains(t, err, "unsupported")
	assert.Panics(t, c.Mutex("x", lab.OnBehalf).Lock)
	for _, id := range []string{"", strings.Repeat("x", driver.MaxOwner+1)} {
		assert.Panics(t, func() { holdfast.WithOwner(id) })
	}
	l, err := c.RWMutex("x", lab.OnBehalf).RLease(t.Context())
	require.Error(t, err, "it has no such locks: %v", l)
}

// The trap of locks that are reentrant by thread: a worker of a pool serves the next
// request on the thread on which the one before still holds the lock, and is let in.
func TestWorkerDoesNotEnterByWhatAnEarlierRequestHolds(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		mu := l.Near(holdfast.WithReentrancy()).Mutex("x")
		requests, answers := make(chan context.Context), make(chan error)
		leases := make(chan *holdfast.Lease, 3)
		go func() { // one worker, one goroutine
			for ctx := range requests {
				lease, err := mu.TryLease(ctx)
				if err == nil {
					leases <- lease // the request goes on elsewhere
				}
				answers <- err
			}
		}()
		defer close(requests)
		ask := func(ctx context.Context) error {
			requests <- ctx
			return <-answers
		}
		require.NoError(t, ask(t.Context()))
		held := <-leases
		require.ErrorIs(t, ask(t.Context()), holdfast.ErrLocked, "another request on the same goroutine")
		require.NoError(t, ask(held.Context()), "the same request")
		l.GiveBack(<-leases)
		l.GiveBack(held)
		require.ErrorIs(t, ask(context.WithoutCancel(held.Context())), nil, "free, so not by what it held")
		l.GiveBack(<-leases)
	})
}

// Clients are told apart by nothing that two can have in common, such as host and process,
// and a lease in a context counts only for the client that has it.
func TestClientsOfOneProcessAreStrangers(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Near(holdfast.WithReentrancy()), l.Near(holdfast.WithReentrancy())
		held := l.Take(a.Mutex("x").Lease)
		_, err := b.Mutex("x").TryLease(held.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		l.GiveBack(held)
		held = l.Take(b.Mutex("x").Lease)
		assert.Equal(t, l.Inspect("x").Holders[0].Holder, holderOf(t, l, a), "host and process are the same")
		l.GiveBack(held)
	})
}

func holderOf(t *testing.T, l *lab.Lab, c *holdfast.Client) string {
	lease := l.Lease(c, "who")
	defer l.GiveBack(lease)
	return l.Inspect("who").Holders[0].Holder
}

// Many of two owners, in two clients: never both inside, and within one at a time as many
// as there are.
func TestOwnersAreNeverInsideTogether(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		clients := []*holdfast.Client{l.Near(), l.Near()}
		var mu sync.Mutex
		inside := map[string]int{}
		var all sync.WaitGroup
		for i := range 6 {
			owner := fmt.Sprint("owner", i%2)
			lock := clients[i%3%2].Mutex("x", holdfast.WithOwner(owner))
			all.Go(func() {
				for range 8 {
					lease, err := lock.Lease(t.Context())
					if !assert.NoError(t, err) {
						return
					}
					mu.Lock()
					inside[owner]++
					assert.True(t, inside["owner0"] == 0 || inside["owner1"] == 0, "FOUL: both are inside")
					mu.Unlock()
					time.Sleep(100 * time.Microsecond)
					mu.Lock()
					inside[owner]--
					mu.Unlock()
					assert.NoError(t, lease.Release(t.Context()))
				}
			})
		}
		lab.Promptly(t, 6*lab.Soon, func() error { all.Wait(); return nil })
		l.Free(clients[0], "x")
	})
}

func init() { crew.Register("kin", kin) }

// kin holds a lock on behalf of an owner until it is told to go.
func kin() {
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("KIN_ADDR")})
	c := holdfast.New(rdb, holdfast.WithPrefix(os.Getenv("KIN_PREFIX")), holdfast.WithTTL(3*time.Second))
	lease, err := c.Mutex("x", lab.OnBehalf).Lease(context.Background())
	if err != nil {
		panic(err)
	}
	crew.Report(lease.Fence())
	crew.Order[string]()
	crew.Report(fmt.Sprint(lease.Release(context.Background()), c.Close()))
}

// Processes of one owner come and go, and one crashes. The lock is free when the last is
// gone, and not before.
func TestProcessesOfOneOwner(t *testing.T) {
	t.Parallel()
	l := lab.New(t, redistest.Shared(t))
	l.Remember()
	start := func() *crew.Process {
		return crew.Start(t, "kin", "KIN_ADDR="+l.Server.Addr(), "KIN_PREFIX="+l.Server.Prefix())
	}
	a, other := start(), l.Near()
	fence := crew.Hear[int64](a)
	waiter := l.Wait(other, "x")
	l.UntilQueue("x", 1)
	b, crash := start(), start()
	require.Equal(t, fence, crew.Hear[int64](b))
	require.Equal(t, fence, crew.Hear[int64](crash))
	crash.Kill()
	a.Dismiss()
	require.Equal(t, "<nil> <nil>", crew.Hear[string](a))
	l.Until("who crashed is forgotten", func() bool { return len(l.Inspect("x").Holders) == 1 })
	require.Len(t, l.Inspect("x").Queue, 1, "one is left")
	b.Dismiss()
	require.Equal(t, "<nil> <nil>", crew.Hear[string](b))
	l.GiveBack(waiter.Granted(lab.Soon))
}
