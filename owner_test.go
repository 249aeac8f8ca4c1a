package holdfast_test

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
	"github.com/holdfast-go/holdfast/internal/redistest"
)

var onBehalf = holdfast.WithOwner("order 4711")

func TestOwnerEntersAgainFromAnywhere(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		a, b, other := l.near(), l.far(), l.near()
		first := l.take(a.Mutex("x", onBehalf).Lease)
		waiter := l.wait(other, "x")
		l.untilQueue("x", 1)
		leases := []*holdfast.Lease{first}
		for _, again := range []leasing{b.Mutex("x", onBehalf).Lease, b.Mutex("x", onBehalf).TryLease, a.Mutex("x", onBehalf).Lease} {
			leases = append(leases, l.take(again))
		}
		for _, lease := range leases[1:] {
			assert.Equal(t, first.Fence(), lease.Fence())
			assert.NotEqual(t, first.Token(), lease.Token())
		}
		holders := l.inspect("x").Holders
		require.Len(t, holders, 4)
		for _, h := range holders {
			assert.Equal(t, "order 4711", h.Owner)
		}
		_, err := other.Mutex("x", holdfast.WithOwner("order 4712")).TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		for i, lease := range leases {
			assert.Len(t, l.inspect("x").Queue, 1)
			l.giveBack(lease)
			for _, rest := range leases[i+1:] {
				require.NoError(t, rest.Renew(t.Context()))
			}
		}
		next := waiter.granted(soon)
		assert.Greater(t, next.Fence(), first.Fence())
		_, err = b.Mutex("x", onBehalf).TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		l.giveBack(next)
		l.isClean(driver.Mutex, "x")
	})
}

func TestOwnerOfAWriteLock(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		a, b := l.near().RWMutex("x", onBehalf), l.near().RWMutex("x", onBehalf)
		first, second := l.take(a.Lease), l.take(b.Lease)
		assert.Equal(t, first.Fence(), second.Fence())
		assert.False(t, b.TryRLock(), "readers have no owner")
		require.ErrorContains(t, first.Downgrade(t.Context()), "unsupported")
		l.giveBack(first)
		assert.False(t, b.TryRLock())
		l.giveBack(second)
		b.RLock()
		_, err := a.TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		b.RUnlock()
		l.isClean(driver.RWMutex, "x")
	})
}

func TestOwnerLocksAgain(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c, other := l.near(), l.near()
		mu := c.Mutex("x", onBehalf)
		mu.Lock()
		l.ends(begin(mu.Lock))
		require.True(t, mu.TryLock())
		stranger := begin(c.Mutex("x").Lock)
		l.untilQueue("x", 1)
		assert.Panics(t, c.Mutex("x", holdfast.WithOwner("another")).Unlock, "it is not theirs")
		for range 3 {
			l.stays(stranger)
			mu.Unlock()
		}
		assert.Panics(t, mu.Unlock)
		l.ends(stranger)
		assert.False(t, mu.TryLock())
		c.Mutex("x").Unlock()
		l.free(other, "x")
	})
}

// A context that comes from a lease of the owner does not wait for itself; one that comes
// from a lease on another behalf would.
func TestOwnerAndTheLeaseOfAContext(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.near()
		mine, plain := c.Mutex("x", onBehalf), c.Mutex("x")
		other := c.Mutex("x", holdfast.WithOwner("another"), holdfast.WithReentrancy())
		outer := l.take(mine.Lease)
		again := l.nest(outer, mine.Lease)
		assert.NotEqual(t, outer.Token(), again.Token(), "counted in the store")
		for _, lease := range []leasing{plain.Lease, other.Lease, c.Mutex("x", holdfast.WithReentrancy()).Lease} {
			_, err := lease(outer.Context())
			require.ErrorIs(t, err, holdfast.ErrDeadlock)
		}
		nested := l.nest(outer, c.Mutex("x", onBehalf, holdfast.WithReentrancy()).Lease)
		assert.Equal(t, outer.Token(), nested.Token(), "counted here")
		l.giveBack(outer, again, nested)
		l.free(c, "x")
	})
}

func TestForceUnlockEndsAllOfAnOwner(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		a, b := l.near(), l.near()
		first, second := l.take(a.Mutex("x", onBehalf).Lease), l.take(b.Mutex("x", onBehalf).Lease)
		require.NoError(t, a.Mutex("x").ForceUnlock(t.Context()))
		require.ErrorIs(t, first.Renew(t.Context()), holdfast.ErrLost)
		require.ErrorIs(t, second.Renew(t.Context()), holdfast.ErrLost)
		l.free(b, "x")
	})
}

func TestStoreWithoutOwnersSaysSo(t *testing.T) {
	s := redistest.Shared(t)
	c := holdfast.Open(setnx.New(s.Client(t), setnx.WithPrefix(s.Prefix())))
	defer c.Close()
	_, err := c.Mutex("x", onBehalf).Lease(t.Context())
	require.ErrorContains(t, err, "unsupported")
	assert.Panics(t, c.Mutex("x", onBehalf).Lock)
	for _, id := range []string{"", strings.Repeat("x", driver.MaxOwner+1)} {
		assert.Panics(t, func() { holdfast.WithOwner(id) })
	}
	l, err := c.RWMutex("x", onBehalf).RLease(t.Context())
	require.Error(t, err, "it has no such locks: %v", l)
}

// The trap of locks that are reentrant by thread: a worker of a pool serves the next
// request on the thread on which the one before still holds the lock, and is let in.
func TestWorkerDoesNotEnterByWhatAnEarlierRequestHolds(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		mu := l.near(holdfast.WithReentrancy()).Mutex("x")
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
		l.giveBack(<-leases)
		l.giveBack(held)
		require.ErrorIs(t, ask(context.WithoutCancel(held.Context())), nil, "free, so not by what it held")
		l.giveBack(<-leases)
	})
}

// Clients are told apart by nothing that two can have in common, such as host and process,
// and a lease in a context counts only for the client that has it.
func TestClientsOfOneProcessAreStrangers(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		a, b := l.near(holdfast.WithReentrancy()), l.near(holdfast.WithReentrancy())
		held := l.take(a.Mutex("x").Lease)
		_, err := b.Mutex("x").TryLease(held.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		l.giveBack(held)
		held = l.take(b.Mutex("x").Lease)
		assert.Equal(t, l.inspect("x").Holders[0].Holder, holderOf(t, l, a), "host and process are the same")
		l.giveBack(held)
	})
}

func holderOf(t *testing.T, l *lab, c *holdfast.Client) string {
	lease := l.lease(c, "who")
	defer l.giveBack(lease)
	return l.inspect("who").Holders[0].Holder
}

// Many of two owners, in two clients: never both inside, and within one at a time as many
// as there are.
func TestOwnersAreNeverInsideTogether(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		clients := []*holdfast.Client{l.near(), l.near()}
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
					assert.True(t, inside["owner0"] == 0 || inside["owner1"] == 0, "both are inside")
					mu.Unlock()
					time.Sleep(100 * time.Microsecond)
					mu.Lock()
					inside[owner]--
					mu.Unlock()
					assert.NoError(t, lease.Release(t.Context()))
				}
			})
		}
		promptly(t, 6*soon, func() error { all.Wait(); return nil })
		l.free(clients[0], "x")
	})
}

func init() { redistest.RegisterChild("kin", kin) }

// kin holds a lock on behalf of an owner until it is told to go.
func kin() {
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("KIN_ADDR")})
	c := holdfast.New(rdb, holdfast.WithPrefix(os.Getenv("KIN_PREFIX")), holdfast.WithTTL(time.Second))
	lease, err := c.Mutex("x", onBehalf).Lease(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lease.Fence())
	_, _ = os.Stdin.Read(make([]byte, 1))
	fmt.Println(lease.Release(context.Background()), c.Close())
}

// Processes of one owner come and go, and one crashes. The lock is free when the last is
// gone, and not before.
func TestProcessesOfOneOwner(t *testing.T) {
	t.Parallel()
	l := newLab(t, redistest.Shared(t))
	l.remember()
	start := func() *redistest.Process {
		return redistest.Child(t, "kin", "KIN_ADDR="+l.s.Addr(), "KIN_PREFIX="+l.s.Prefix())
	}
	line := func(p *redistest.Process) string {
		return promptly(t, 2*soon, func() string { return <-p.Lines() })
	}
	a, other := start(), l.near()
	fence := line(a)
	waiter := l.wait(other, "x")
	l.untilQueue("x", 1)
	b, crash := start(), start()
	require.Equal(t, fence, line(b))
	require.Equal(t, fence, line(crash))
	crash.Kill()
	require.NoError(t, a.Stdin().Close())
	require.Equal(t, "<nil> <nil>", line(a))
	l.until("who crashed is forgotten", func() bool { return len(l.inspect("x").Holders) == 1 })
	require.Len(t, l.inspect("x").Queue, 1, "one is left")
	require.NoError(t, b.Stdin().Close())
	require.Equal(t, "<nil> <nil>", line(b))
	l.giveBack(waiter.granted(soon))
}
