package fault_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// The error of a wait tells of present trouble only: a client remembers locks for a while.
func TestTroubleOfLongAgoIsNotWhyAWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &failing{Driver: memdriver.New()}
		c, other := holdfast.Open(d), holdfast.Open(d.Driver)
		d.down.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Mutex("x").Lease(ctx)
		require.ErrorIs(t, err, driver.ErrTransient)
		d.down.Store(false)
		time.Sleep(time.Hour)

		held, err := other.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		first := lab.Wait(t.Context(), c.Mutex("x"))
		synctest.Wait() // it is in the store's queue
		ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = c.Mutex("x").Lease(ctx)
		require.ErrorIs(t, err, holdfast.ErrLocked)
		require.NotErrorIs(t, err, driver.ErrTransient)
		require.NoError(t, held.Release(t.Context()))
		<-first.Done
		require.NoError(t, first.Lease.Release(t.Context()))
		require.NoError(t, c.Close())
		require.NoError(t, other.Close())
	})
}

const pondered = 6 * time.Second

// pondering takes its time to say where a lock is.
type pondering struct{ *memdriver.Driver }

func (pondering) Node(driver.Kind, string) string {
	time.Sleep(pondered)
	return ""
}

// A driver that takes its time must not keep anybody from giving up. In real time, since a
// goroutine that waits for a mutex stops that of a bubble.
func TestWaiterGivesUpInTimeBesideASlowDriver(t *testing.T) {
	t.Parallel()
	c := holdfast.Open(pondering{memdriver.New()})
	held := lab.Wait(context.Background(), c.Mutex("x"))
	time.Sleep(50 * time.Millisecond) // it has been granted, and the driver is asked where that is
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := c.Mutex("x").Lease(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(began), pondered/3)
	<-held.Done
	require.NoError(t, held.Lease.Release(context.Background()))
	require.NoError(t, c.Close())
}
