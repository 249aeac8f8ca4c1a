package holdfast_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// quiet is a store that does not tell a holder when somebody waits.
type quiet struct{ driver.Driver }

func (q quiet) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	quietly := *r
	quietly.Notice = false
	return q.Driver.Acquire(ctx, &quietly)
}

func TestNobodyLingersWhereTheStoreWouldNotTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		here := holdfast.Open(quiet{store}, holdfast.WithLinger(time.Hour))
		there := holdfast.Open(quiet{store})
		here.Mutex("x").Lock()
		here.Mutex("x").Unlock()
		began := time.Now()
		there.Mutex("x").Lock()
		require.Less(t, time.Since(began), time.Second)
		there.Mutex("x").Unlock()
		require.NoError(t, here.Close())
		require.NoError(t, there.Close())
	})
}

// What lingers is free for this process, whatever is asked of it.
func TestWhatLingersIsNotInTheWayOfTheSameProcess(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.mates(holdfast.WithLinger(time.Hour))
		rw := c.RWMutex("x")
		linger := func() {
			rw.Lock()
			rw.Unlock()
			require.Len(t, l.look(rw).Holders, 1, "it is kept")
		}
		linger()
		require.True(t, rw.TryRLock())
		rw.RUnlock()
		linger()
		other := c.RWMutex("x", holdfast.WithTTL(ages/2))
		require.True(t, other.TryLock())
		other.Unlock()
		linger()
		strict := c.RWMutex("x", holdfast.WithStrictFIFO())
		require.True(t, strict.TryLock())
		strict.Unlock()
	})
}
