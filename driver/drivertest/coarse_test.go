package drivertest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/drivertest"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// The suite must not ask more of a store with coarse leases than that store says it can do.
func TestCoarseDriverPasses(t *testing.T) {
	for _, c := range drivertest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memdriver.New()
				c.Run(t, func(*testing.T) driver.Driver { return coarse{store} },
					drivertest.Queue, drivertest.Push, drivertest.RWMutex, drivertest.Semaphore)
			})
		})
	}
}

// coarse has leases of whole seconds, at least two, and frees a lock a second late.
type coarse struct{ driver.Driver }

const least = 2 * time.Second

func (c coarse) Unwrap() driver.Driver { return c.Driver }

func (c coarse) Granularity() (time.Duration, time.Duration) { return least, 2 * time.Second }

func (c coarse) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if r.TTL < least {
		return driver.Grant{}, fmt.Errorf("a TTL of %v: %w", r.TTL, driver.ErrNotExecuted)
	}
	rounded := *r
	rounded.TTL = min(coarsely(r.TTL), max(r.TTL, driver.MaxTTL))
	return c.Driver.Acquire(ctx, &rounded)
}

func (c coarse) Renew(ctx context.Context, leases []driver.Lease) []error {
	rounded := make([]driver.Lease, len(leases))
	for i, l := range leases {
		l.TTL = coarsely(l.TTL)
		rounded[i] = l
	}
	return c.Driver.Renew(ctx, rounded)
}

func coarsely(ttl time.Duration) time.Duration {
	return (ttl + time.Second - 1).Truncate(time.Second) + time.Second
}
