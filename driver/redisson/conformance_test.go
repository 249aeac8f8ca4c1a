package redisson_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/drivertest"
	"github.com/holdfast-go/holdfast/driver/redisson"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// retention is that of tokens that were given up.
const retention = time.Minute

func opener(s *redistest.Server) drivertest.Open {
	return func(t *testing.T) driver.Driver { return redisson.New(s.Client(t), redisson.WithPrefix(s.Prefix())) }
}

func TestConformance(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	drivertest.Run(t, opener(s), drivertest.Force, drivertest.Owner)
	s.RequireTTLs(t, "")
}

// The same on miniredis, where it costs nothing to wait until the last key must have gone.
func TestConformanceInVirtualTime(t *testing.T) {
	passed := 0
	for _, c := range drivertest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			skipped := false
			redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
				defer func() { skipped = t.Skipped() }()
				c.Run(t, opener(s), drivertest.Force, drivertest.Owner)
				s.RequireTTLs(t, "")
				time.Sleep(retention + 15*time.Second)
				s.RequireNoKeys(t, "", 0)
			})
			if skipped {
				t.Skip("for the reason above") // A bubble keeps that to itself.
			}
			passed++
		})
	}
	require.Greater(t, passed, 50, "almost nothing is left for this driver")
}
