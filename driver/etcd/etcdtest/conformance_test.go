package etcdtest

import (
	"os"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/drivertest"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
)

// abilities are what the suite must not skip.
var abilities = []drivertest.Ability{
	drivertest.Queue, drivertest.Push, drivertest.Fences, drivertest.Inspect, drivertest.Texts, drivertest.Tags, drivertest.Whose, drivertest.List,
	drivertest.Force, drivertest.Steal, drivertest.RWMutex, drivertest.Semaphore, drivertest.Downgrade, drivertest.Owner, drivertest.Attach, drivertest.Notice,
}

func TestConformance(t *testing.T) {
	t.Parallel()
	endpoint := shared(t)
	t.Run("", func(t *testing.T) { // so that the server outlives the parallel cases
		for _, c := range drivertest.Cases() {
			if c.Form != "" && os.Getenv("HOLDFAST_SOAK") != "1" {
				continue // The same properties of other locks that are held as a whole take as long again, twice.
			}
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				client := connect(t, endpoint)
				c.Run(t, func(*testing.T) driver.Driver { return etcddriver.New(client) }, abilities...)
			})
		}
	})
}
