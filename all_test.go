package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

func TestAllTakesAllOrNone(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Near(), l.Near()
		type word struct{}
		both, err := holdfast.All(context.WithValue(t.Context(), word{}, "value"), a.Mutex("y"), a.Mutex("x"))
		require.NoError(t, err)
		require.NoError(t, both.Err())
		assert.Equal(t, "value", both.Context().Value(word{}))
		names := []string{both.Each()[0].Name(), both.Each()[1].Name()}
		assert.Equal(t, []string{"y", "x"}, names, "in the order of the arguments")
		assert.False(t, b.Mutex("x").TryLock())
		assert.False(t, b.Mutex("y").TryLock())
		_, err = a.Mutex("x").Lease(both.Context())
		require.ErrorIs(t, err, holdfast.ErrDeadlock, "the context comes from both")
		_, err = a.Mutex("y").Lease(both.Context())
		require.ErrorIs(t, err, holdfast.ErrDeadlock, "the context comes from both")
		require.NoError(t, both.Release(t.Context()))
		l.Ends(lab.Begin(func() { <-both.Context().Done() })) // in the background
		require.ErrorIs(t, context.Cause(both.Context()), context.Canceled)
		require.ErrorIs(t, both.Err(), holdfast.ErrNotHeld)
		l.Free(b, "x")
		l.Free(b, "y")

		held := l.Lease(b, "y")
		ctx, cancel := context.WithCancel(t.Context())
		failed := lab.Begin(func() {
			_, err := holdfast.All(ctx, a.Mutex("y"), a.Mutex("x"), a.Mutex("z"))
			assert.ErrorIs(t, err, context.Canceled)
		})
		l.UntilQueue("y", 1)
		assert.False(t, b.Mutex("x").TryLock(), "held while it waits")
		cancel()
		l.Ends(failed)
		l.SoonFree(b, "x")
		l.SoonFree(b, "z")
		require.NoError(t, held.Release(t.Context()))
		l.SoonFree(b, "y")
	})
}

func TestAllEndsWhenOneIsLost(t *testing.T) {
	t.Parallel()
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Near(), l.Near()
		brief := a.Mutex("x", holdfast.WithTTL(l.Time(300*time.Millisecond))) // it finds by its renewal that it is lost
		both, err := holdfast.All(t.Context(), brief, a.Mutex("y"))
		require.NoError(t, err)
		require.NoError(t, b.Mutex("x").ForceUnlock(t.Context()))
		select {
		case <-both.Context().Done():
		case <-time.After(lab.Soon):
			t.Fatal("it goes on")
		}
		require.ErrorIs(t, context.Cause(both.Context()), holdfast.ErrLost)
		require.ErrorIs(t, both.Err(), holdfast.ErrLost)
		require.NoError(t, both.Each()[1].Err())
		require.ErrorIs(t, both.Release(t.Context()), holdfast.ErrLost)
		l.Free(b, "y")

		// Also while it still waits for another.
		held := l.Lease(b, "y")
		failed := lab.Begin(func() {
			_, err := holdfast.All(t.Context(), brief, a.Mutex("y"))
			assert.ErrorIs(t, err, holdfast.ErrLost)
		})
		l.UntilQueue("y", 1)
		require.NoError(t, b.Mutex("x").ForceUnlock(t.Context()))
		l.Ends(failed)
		require.NoError(t, held.Release(t.Context()))
		l.SoonFree(b, "y")
	})
}

func TestAllRefusesALockThatIsNamedTwice(t *testing.T) {
	a := holdfast.Open(memdriver.New())
	defer a.Close()
	_, err := holdfast.All(t.Context(), a.Mutex("x"), a.Mutex("y"), a.Mutex("x", holdfast.WithOwner("o")))
	require.ErrorIs(t, err, holdfast.ErrDeadlock)
	require.ErrorContains(t, err, `"x"`)
	require.True(t, a.Mutex("y").TryLock(), "it has taken some")
	_, err = holdfast.All(t.Context(), a.RWMutex("x").Reading(), a.Mutex("x"), a.RWMutex("x"))
	require.ErrorIs(t, err, holdfast.ErrDeadlock)
	assert.Panics(t, func() { _, _ = holdfast.All(t.Context()) })
}

func TestAllTakesLocksOfEveryKindAndOfSeveralClients(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Near(), l.Near(holdfast.WithStrictFIFO())
		mem := holdfast.Open(memdriver.New())
		defer mem.Close()
		all, err := holdfast.All(t.Context(), a.Semaphore("x", 3).Permits(2), mem.Mutex("x"), a.RWMutex("read").Reading(), a.RWMutex("x"), a.Mutex("x"))
		require.NoError(t, err)
		require.Len(t, all.Each(), 5)
		assert.False(t, b.Mutex("x").TryLock())
		assert.False(t, mem.Mutex("x").TryLock())
		assert.False(t, b.RWMutex("x").TryRLock(), "for writing")
		assert.False(t, b.RWMutex("read").TryLock())
		reader, err := b.RWMutex("read").TryRLease(t.Context())
		require.NoError(t, err, "for reading")
		require.NoError(t, reader.Release(t.Context()))
		assert.False(t, b.Semaphore("x", 3).TryAcquire(2))
		permit, err := b.Semaphore("x", 3).TryLease(t.Context(), 1)
		require.NoError(t, err)
		require.NoError(t, permit.Release(t.Context()))
		require.NoError(t, all.Release(t.Context()))
		l.Free(b, "x")
		again, err := holdfast.All(t.Context(), b.Semaphore("x", 3).Permits(3), b.RWMutex("read"), b.RWMutex("x"), mem.Mutex("x"))
		require.NoError(t, err)
		require.NoError(t, again.Release(t.Context()))
		assert.Panics(t, func() { a.Semaphore("x", 3).Permits(0) })
	})
}

// far is a store a round trip away. It forwards its calls one by one.
type far struct {
	driver.Driver
	trip time.Duration
}

func (f far) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	time.Sleep(f.trip)
	return f.Driver.Acquire(ctx, r)
}

func (f far) Release(ctx context.Context, l driver.Lease) error {
	time.Sleep(f.trip)
	return f.Driver.Release(ctx, l)
}

func (f far) Unwrap() driver.Driver { return f.Driver }

func TestAllOfFreeLocksTakesOneTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trip = 20 * time.Millisecond
		c := holdfast.Open(far{memdriver.New(), trip})
		var locks []holdfast.Part
		for i := range 64 {
			locks = append(locks, c.Mutex(fmt.Sprint(i)))
		}
		began := time.Now()
		all, err := holdfast.All(t.Context(), locks...)
		require.NoError(t, err)
		require.Equal(t, trip, time.Since(began))
		require.NoError(t, all.Release(t.Context()))
		require.Equal(t, 2*trip, time.Since(began))
		require.NoError(t, c.Close())
	})
}

// It has tried all, and gives back what it cannot use: all but those that come before the lock that
// is taken.
func TestAllHoldsNothingBehindALockThatIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trip = 20 * time.Millisecond
		store := memdriver.New()
		c, others := holdfast.Open(far{store, trip}), holdfast.Open(store)
		held, err := others.Mutex("m").Lease(t.Context())
		require.NoError(t, err)
		taken := make(chan *holdfast.Leases, 1)
		go func() {
			all, err := holdfast.All(t.Context(), c.Semaphore("s", 2).Permits(2), c.Mutex("z"), c.Mutex("m"), c.Mutex("a"), c.RWMutex("r").Reading())
			assert.NoError(t, err)
			taken <- all
		}()
		time.Sleep(5 * trip) // tries, gives back, takes "a", asks for "m"
		for _, free := range []holdfast.Part{others.Mutex("z"), others.RWMutex("r"), others.Semaphore("s", 2).Permits(2)} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			lease, err := holdfast.All(ctx, free)
			cancel()
			require.NoError(t, err, "free while All waits")
			require.NoError(t, lease.Release(t.Context()))
		}
		_, err = others.Mutex("a").TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, (<-taken).Release(t.Context()))
		require.NoError(t, c.Close())
		require.NoError(t, others.Close())
	})
}

// A lock that is granted when another has been refused already is given back, and the end of the context
// is told though it was not what the other was refused for.
func TestAllGivesBackWhatComesAfterARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		late, refused, others := holdfast.Open(store), holdfast.Open(store), holdfast.Open(store)
		ctx, cancel := context.WithCancel(t.Context())
		late.AddHook(lab.Meddler{Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			defer time.Sleep(time.Second)
			return next(ctx, op)
		}})
		refused.AddHook(lab.Meddler{Acquire: func(holdfast.AcquireFunc, context.Context, *holdfast.AcquireOp) (*holdfast.Lease, error) {
			synctest.Wait() // the other is granted
			cancel()
			return nil, errors.New("not today")
		}})
		_, err := holdfast.All(ctx, late.Mutex("x"), refused.Mutex("y"))
		require.ErrorIs(t, err, context.Canceled)
		time.Sleep(2 * time.Second)
		require.True(t, others.Mutex("x").TryLock(), "FOUL: it stays locked")
		require.NoError(t, errors.Join(late.Close(), refused.Close(), others.Close()))
	})
}

// What a store far away or in trouble has to say is not waited for with the locks of another in hand.
func TestAllHoldsNothingWhileAStoreIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		c, others := holdfast.Open(store), holdfast.Open(store)
		silent := holdfast.Open(far{memdriver.New(), time.Minute})
		taken := make(chan *holdfast.Leases, 1)
		go func() {
			all, err := holdfast.All(t.Context(), c.Mutex("b"), silent.Mutex("a", holdfast.WithTTL(time.Hour)))
			assert.NoError(t, err)
			taken <- all
		}()
		time.Sleep(100 * time.Millisecond)
		_, err := others.Mutex("b").TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		time.Sleep(200 * time.Millisecond)
		lease, err := others.Mutex("b").TryLease(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, (<-taken).Release(t.Context()))
		for _, c := range []*holdfast.Client{c, others, silent} {
			require.NoError(t, c.Close())
		}
	})
}

// A hook that refuses a release is not asked when All gives back what nobody has.
func TestAllGivesBackWhatAHookWouldKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		here, there := holdfast.Open(store), holdfast.Open(store)
		here.AddHook(lab.Meddler{Release: func(next holdfast.ReleaseFunc, ctx context.Context, op *holdfast.ReleaseOp) error {
			return errors.New("not now")
		}})
		held, err := there.Mutex("b").Lease(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = holdfast.All(ctx, here.Mutex("a"), here.Mutex("b"))
		require.ErrorIs(t, err, holdfast.ErrLocked)
		synctest.Wait()
		l, err := there.Mutex("a").TryLease(t.Context())
		require.NoError(t, err, "it was given back")
		require.NoError(t, errors.Join(l.Release(t.Context()), held.Release(t.Context()), here.Close(), there.Close()))
	})
}
