package driver_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// counting counts what another driver is asked.
type counting struct {
	driver.Driver
	asks, grants atomic.Int64
}

func (c *counting) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	g, err := c.Driver.Acquire(ctx, r)
	c.asks.Add(1)
	if g.Status == driver.Granted {
		c.grants.Add(1)
	}
	return g, err
}

// Unwrap leads to what the other driver can do beside the four methods. Without it
// Inspect, ForceUnlock and all else that is found with driver.As would be unsupported.
func (c *counting) Unwrap() driver.Driver { return c.Driver }

// A store may be able to do more than the four methods, whatever is wrapped around it.
func ExampleAs() {
	store := &counting{Driver: memdriver.New()}
	defer store.Close()

	_, able := driver.As[driver.Attacher](store)
	fmt.Println("hands leases over:", able)
	_, able = driver.As[driver.Confirmer](store)
	fmt.Println("has replicas that confirm:", able)
	// Output:
	// hands leases over: true
	// has replicas that confirm: false
}

// A wrapper adds behaviour to any driver. It need not know what else that can do.
func ExampleWrapper() {
	store := &counting{Driver: memdriver.New()}
	web, worker := holdfast.Open(store), holdfast.Open(store)
	defer func() { _, _ = web.Close(), worker.Close() }()

	web.Mutex("orders:42").Lock()
	fmt.Println("worker has it:", worker.Mutex("orders:42").TryLock())

	info, err := worker.Mutex("orders:42").Inspect(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("holders:", len(info.Holders))
	web.Mutex("orders:42").Unlock()
	fmt.Println("asked", store.asks.Load(), "times, granted", store.grants.Load())
	// Output:
	// worker has it: false
	// holders: 1
	// asked 2 times, granted 1
}
