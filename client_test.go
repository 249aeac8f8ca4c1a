package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestKindsOfLockNeverMeet(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Near(), l.Near()
		for _, in := range []func(){a.Mutex("x").Lock, a.RWMutex("x").Lock, func() {
			assert.NoError(t, a.Semaphore("x", 1).Acquire(t.Context(), 1))
		}} {
			l.Ends(lab.Begin(in))
		}
		leases := map[lab.Lock]*holdfast.Lease{}
		for k, ask := range map[lab.Lock]lab.Leasing{
			a.Mutex("y"): a.Mutex("y").Lease, a.RWMutex("y"): a.RWMutex("y").RLease, a.Semaphore("y", 9): lab.Permits(a.Semaphore("y", 9), 5),
		} {
			leases[k] = l.Take(ask)
		}
		// A lease on one says nothing of the others.
		for k, lease := range leases {
			l.IsHeldBy(k, lease)
			switch k.(type) {
			case *holdfast.Mutex:
				second, err := a.RWMutex("y").RLease(lease.Context())
				require.NoError(t, err)
				l.GiveBack(second)
			default:
				_, err := a.Mutex("y").TryLease(lease.Context())
				require.ErrorIs(t, err, holdfast.ErrLocked)
			}
		}
		require.NoError(t, b.RWMutex("x").ForceUnlock(t.Context()))
		assert.False(t, b.Mutex("x").TryLock())
		assert.False(t, b.Semaphore("x", 1).TryAcquire(1))
		a.Mutex("x").Unlock()
		a.RWMutex("x").Unlock()
		a.Semaphore("x", 1).Release(1)
		for k, lease := range leases {
			l.IsHeldBy(k, lease)
			l.GiveBack(lease)
		}
	})
}

// mustRefuse calls all that can return an error or must panic.
func mustRefuse(t *testing.T, c *holdfast.Client, name string, want error) {
	t.Helper()
	ctx := context.Background()
	called := func(context.Context) error { t.Error("called"); return nil }
	mu, rw, s := c.Mutex(name), c.RWMutex(name), c.Semaphore(name, 2)
	for what, call := range map[string]func() error{
		"Mutex.Lease":           func() error { _, err := mu.Lease(ctx); return err },
		"Mutex.TryLease":        func() error { _, err := mu.TryLease(ctx); return err },
		"Mutex.Do":              func() error { return mu.Do(ctx, called) },
		"Mutex.TryDo":           func() error { return mu.TryDo(ctx, called) },
		"Mutex.Inspect":         func() error { _, err := mu.Inspect(ctx); return err },
		"Mutex.ForceUnlock":     func() error { return mu.ForceUnlock(ctx) },
		"RWMutex.Lease":         func() error { _, err := rw.Lease(ctx); return err },
		"RWMutex.TryLease":      func() error { _, err := rw.TryLease(ctx); return err },
		"RWMutex.RLease":        func() error { _, err := rw.RLease(ctx); return err },
		"RWMutex.TryRLease":     func() error { _, err := rw.TryRLease(ctx); return err },
		"RWMutex.Do":            func() error { return rw.Do(ctx, called) },
		"RWMutex.RDo":           func() error { return rw.RDo(ctx, called) },
		"RWMutex.TryDo":         func() error { return rw.TryDo(ctx, called) },
		"RWMutex.TryRDo":        func() error { return rw.TryRDo(ctx, called) },
		"Semaphore.TryDo":       func() error { return s.TryDo(ctx, 1, called) },
		"RWMutex.Inspect":       func() error { _, err := rw.Inspect(ctx); return err },
		"RWMutex.ForceUnlock":   func() error { return rw.ForceUnlock(ctx) },
		"Semaphore.Lease":       func() error { _, err := s.Lease(ctx, 1); return err },
		"Semaphore.TryLease":    func() error { _, err := s.TryLease(ctx, 1); return err },
		"Semaphore.Do":          func() error { return s.Do(ctx, 1, called) },
		"Semaphore.Acquire":     func() error { return s.Acquire(ctx, 1) },
		"Semaphore.Resize":      func() error { return s.Resize(ctx, 1) },
		"Semaphore.Inspect":     func() error { _, err := s.Inspect(ctx); return err },
		"Semaphore.ForceUnlock": func() error { return s.ForceUnlock(ctx) },
	} {
		err := lab.Promptly(t, lab.Soon, call)
		require.ErrorIs(t, err, want, what)
		assert.Less(t, len(err.Error()), 200, what)
		lab.RequireNoToken(t, err.Error())
		var lockError *holdfast.LockError
		require.ErrorAs(t, err, &lockError, what)
		assert.Equal(t, (&holdfast.LockError{Err: want}).ErrorType(), lockError.ErrorType(), what)
		kind, _, _ := strings.Cut(strings.ToLower(what), ".")
		assert.Contains(t, lockError.Op, kind, what)
	}
	word := strings.Fields(strings.TrimPrefix(want.Error(), "holdfast: "))[0]
	for _, lock := range []func(){mu.Lock, rw.Lock, rw.RLock, rw.RLocker().Lock} {
		assert.Contains(t, lab.Panics(t, lock), word) // that of a closed client by the log of the lab
	}
	for _, try := range []func() bool{mu.TryLock, rw.TryLock, rw.TryRLock, func() bool { return s.TryAcquire(1) }} {
		if errors.Is(want, holdfast.ErrClosed) {
			assert.False(t, lab.Promptly(t, lab.Soon, try))
		} else {
			assert.Contains(t, lab.Panics(t, func() { try() }), word)
		}
	}
	assert.Contains(t, lab.Panics(t, mu.Unlock), "unlocked")
	assert.Contains(t, lab.Panics(t, rw.Unlock), "unlocked")
	assert.Contains(t, lab.Panics(t, rw.RUnlock), "unlocked")
	assert.Contains(t, lab.Panics(t, func() { s.Release(1) }), "released more than held")
}

func TestNameThatIsTooShortOrTooLongIsRefused(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		fresh, works := l.Near(), l.Near()
		l.Ready(works) // a client that works panics, too
		keys := l.Server.Keys(t, l.Server.Prefix())
		for _, name := range []string{"", strings.Repeat("n", 513), strings.Repeat("n", 1<<20)} {
			mustRefuse(t, fresh, name, holdfast.ErrInvalidName)
			mustRefuse(t, works, name, holdfast.ErrInvalidName)
		}
		assert.Subset(t, keys, l.Server.Keys(t, l.Server.Prefix()))
	})
}

func TestClosedClientSaysSo(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c, other := l.Near(), l.Near()
		read, write := l.Take(c.RWMutex("leased").RLease), l.Take(c.RWMutex("written").Lease)
		some, mutex := l.Take(lab.Permits(c.Semaphore("leased", 3), 1)), l.Lease(c, "leased")
		c.RWMutex("read").RLock()
		c.RWMutex("read").RLock()
		c.RWMutex("locked").Lock()
		c.Mutex("locked").Lock()
		require.NoError(t, c.Semaphore("acquired", 3).Acquire(t.Context(), 3))
		require.NoError(t, lab.Promptly(t, lab.Soon, c.Close))
		require.NoError(t, c.Close())

		// The locks that were held are free.
		l.Free(other, "leased")
		l.Free(other, "locked")
		for _, name := range []string{"leased", "written", "read", "locked"} {
			require.True(t, other.RWMutex(name).TryLock(), name)
			other.RWMutex(name).Unlock()
		}
		for _, name := range []string{"leased", "acquired"} {
			require.True(t, other.Semaphore(name, 3).TryAcquire(3), name)
			other.Semaphore(name, 3).Release(3)
		}
		for _, lease := range []*holdfast.Lease{read, write, some, mutex} {
			require.Error(t, lease.Err())
			require.Error(t, lease.Context().Err())
			require.Error(t, lease.Renew(t.Context()))
			require.Error(t, lease.Downgrade(t.Context()))
			require.Error(t, lease.Release(t.Context()))
		}
		// That is what deferred calls do, and no misuse.
		c.RWMutex("read").RUnlock()
		c.RWMutex("read").RUnlock()
		c.RWMutex("locked").Unlock()
		c.Mutex("locked").Unlock()
		c.Semaphore("acquired", 3).Release(1)
		c.Semaphore("acquired", 3).Release(2)
		mustRefuse(t, c, "x", holdfast.ErrClosed)
		l.Server.RequireNoKeys(t, l.Key("x"), 0)
	})
}

func TestCloseEndsAllThatWait(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		if !l.Virtual { // a bubble ends only when all its goroutines have
			require.NoError(t, l.Direct.Ping(t.Context()).Err())
			redistest.RequireNoLeaks(t)
		}
		c, other := l.Near(), l.Near()
		held := l.Lease(other, "x")
		rw, s := other.RWMutex("x"), other.Semaphore("x", 2)
		rw.Lock()
		require.True(t, s.TryAcquire(2))
		waiters := []*lab.Pending{
			l.Ask(c.RWMutex("x").Lease), l.Ask(c.RWMutex("x").RLease), l.Ask(lab.Permits(c.Semaphore("x", 2), 1)), l.Wait(c, "x"), l.Wait(c, "x"),
		}
		acquiring := make(chan error, 1)
		go func() { acquiring <- c.Semaphore("x", 2).Acquire(context.Background(), 1) }()
		// One waits in the queue, and the others behind it in this process.
		locks := []<-chan any{lab.Begin(c.RWMutex("x").RLock), lab.Begin(c.Mutex("x").Lock), lab.Begin(c.Mutex("x").Lock)}
		l.UntilQueue("x", 4)
		l.UntilWaiting(rw, 3)
		locks = append(locks, lab.Begin(c.RWMutex("x").Lock), lab.Begin(c.RWMutex("x").RLock))
		l.UntilWaiting(s, 2)

		require.NoError(t, lab.Promptly(t, lab.Soon, c.Close))
		for _, w := range waiters {
			require.ErrorIs(t, w.Failed(lab.Soon), holdfast.ErrClosed)
		}
		require.ErrorIs(t, lab.Promptly(t, lab.Soon, func() error { return <-acquiring }), holdfast.ErrClosed)
		for _, locked := range locks {
			assert.Contains(t, fmt.Sprint(lab.Promptly(t, lab.Soon, func() any { return <-locked })), "closed")
		}
		assert.Empty(t, l.Inspect("x").Queue)
		assert.Empty(t, l.Look(rw).Queue)
		assert.Empty(t, l.Look(s).Queue)
		l.UntilListening(0)
		l.Holds(held)
		l.GiveBack(held)
		l.Free(other, "x")
		rw.Unlock()
		s.Release(2)
		l.IsClean("rwmutex", "x")
		l.IsClean("semaphore", "x")
	})
}

func TestPermitsThatArriveDuringCloseAreGivenBack(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c, other := l.Near(), l.Near()
		c.AddHook(lab.Meddler{Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			defer c.Close() // before it is known what has been granted
			return next(ctx, op)
		}})
		require.ErrorIs(t, c.Semaphore("x", 1).Acquire(t.Context(), 1), holdfast.ErrClosed)
		assert.Contains(t, lab.Panics(t, func() { c.Semaphore("x", 1).Release(1) }), "more than held")
		require.True(t, other.Semaphore("x", 1).TryAcquire(1))
		other.Semaphore("x", 1).Release(1)
	})
}

func TestAnyGoroutineMayUnlock(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Near()
		c.RWMutex("x").RLock()
		l.Ends(lab.Begin(c.RWMutex("x").RUnlock))
		c.RWMutex("x").Lock()
		l.Ends(lab.Begin(c.RWMutex("x").Unlock))
		require.NoError(t, c.Semaphore("x", 3).Acquire(t.Context(), 2))
		l.Ends(lab.Begin(func() { c.Semaphore("x", 3).Release(2) }))
		l.IsClean("rwmutex", "x")
		l.IsClean("semaphore", "x")
	})
}

// A copy of a handle would be the same lock, but who copies one is about to copy a
// struct with state beside it. So go vet finds that for all kinds, as for sync.Mutex.
func TestVetFindsCopiedHandles(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "vet", "./testdata/copies").CombinedOutput()
	require.Error(t, err)
	for _, kind := range []string{"Mutex", "RWMutex", "Semaphore"} {
		assert.Contains(t, string(out), "copies lock value to "+strings.ToLower(kind), "\n%s", out)
	}
}

// forgetting is a store that has forgotten what is given up.
type forgetting struct{ driver.Driver }

func (forgetting) Release(context.Context, driver.Lease) error { return driver.ErrNotHeld }

func TestCloseNamesTheLockThatWasLost(t *testing.T) {
	c := holdfast.Open(forgetting{memdriver.New()})
	_, err := c.Mutex("orders:42").Lease(t.Context())
	require.NoError(t, err)
	err = c.Close()
	require.ErrorIs(t, err, holdfast.ErrLost)
	var lock *holdfast.LockError
	require.ErrorAs(t, err, &lock)
	require.Equal(t, "orders:42", lock.Name)
	require.Equal(t, "release mutex", lock.Op)
}
