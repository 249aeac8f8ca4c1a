package memdriver_test

import (
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/drivertest"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// abilities are what the suite must not skip.
var abilities = []drivertest.Ability{
	drivertest.Queue, drivertest.Push, drivertest.Hint, drivertest.Fences, drivertest.Inspect, drivertest.List, drivertest.Texts, drivertest.Tags, drivertest.Whose, drivertest.Force,
	drivertest.Raise, drivertest.Notice, drivertest.Steal, drivertest.RWMutex, drivertest.Semaphore, drivertest.Downgrade, drivertest.Resize,
	drivertest.Owner, drivertest.Attach,
}

func TestConformanceInVirtualTime(t *testing.T) {
	for _, c := range drivertest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := memdriver.New()
				c.Run(t, func(*testing.T) driver.Driver { return d }, abilities...)
			})
		})
	}
}
