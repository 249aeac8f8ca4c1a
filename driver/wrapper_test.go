package driver_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/drivertest"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/driver/redlock"
)

func TestAbilitiesAreReachableThroughTwoWrappers(t *testing.T) {
	store := memdriver.New()
	d := wrapper{wrapper{store}}
	reachable[driver.Inspector](t, d, store)
	reachable[driver.Forcer](t, d, store)
	reachable[driver.Downgrader](t, d, store)
	reachable[driver.Resizer](t, d, store)
	reachable[driver.Attacher](t, d, store)
	reachable[redlock.FenceRaiser](t, d, store)
	_, ok := driver.As[driver.Router](d)
	require.False(t, ok, "nobody in there has it")
}

// reachable requires that the ability of the store is found, and that it is the store's.
func reachable[T any](t *testing.T, d, store driver.Driver) {
	t.Helper()
	found, ok := driver.As[T](d)
	require.True(t, ok, "%T", (*T)(nil))
	require.Same(t, store, any(found))
}

// A wrapper that only passes on is as good as what it wraps.
func TestSuitePassesThroughAWrapper(t *testing.T) {
	for _, c := range drivertest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memdriver.New()
				c.Run(t, func(*testing.T) driver.Driver { return wrapper{store} },
					drivertest.Queue, drivertest.Push, drivertest.Hint, drivertest.Fences, drivertest.Inspect,
					drivertest.Force, drivertest.Raise, drivertest.RWMutex, drivertest.Semaphore,
					drivertest.Downgrade, drivertest.Resize, drivertest.Owner)
			})
		})
	}
}
