package redisdriver_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/drivertest"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// abilities are what the suite must not skip.
var abilities = []drivertest.Ability{
	drivertest.Queue, drivertest.Push, drivertest.Hint, drivertest.Fences, drivertest.Inspect, drivertest.Texts, drivertest.Tags, drivertest.Whose, drivertest.List, drivertest.Force, drivertest.Notice, drivertest.Steal, drivertest.Raise,
	drivertest.RWMutex, drivertest.Semaphore, drivertest.Downgrade, drivertest.Resize, drivertest.Owner, drivertest.Attach,
}

func opener(s *redistest.Server, retention time.Duration) drivertest.Open {
	return func(t *testing.T) driver.Driver {
		return redisdriver.New(s.Client(t), redisdriver.WithPrefix(s.Prefix()), redisdriver.WithRetention(retention))
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	redistest.RequireReal(t)
	const retention = time.Minute
	s := redistest.Real(t)
	t.Run("cases", func(t *testing.T) { // returns when all have
		for _, c := range drivertest.Cases() {
			if c.Form != "" && !redistest.Again() {
				continue // They are the same properties, which TestConformanceInVirtualTime has in all forms.
			}
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel() // most of them wait for leases to end
				c.Run(t, opener(s, retention), abilities...)
			})
		}
	})

	s.RequireTTLs(t, s.Prefix())
	c := s.Client(t)
	for _, key := range s.Keys(t, s.Prefix()) {
		left := c.PTTL(t.Context(), key).Val()
		// A lease of the suite lasts up to 20 s, and 20 times as long where the store is slow.
		require.Less(t, left, retention+20*35*time.Second, "%q outlives its use by too much", key)
	}
}

func TestConformanceOnACluster(t *testing.T) {
	t.Parallel()
	redistest.RequireReal(t)
	if redistest.Installed() && !redistest.Again() {
		t.Skip("TestConformance has the same cases on one server; HOLDFAST_SOAK=1 runs them here, too")
	}
	rdb := redistest.NewCluster(t).Client(t)
	open := func(*testing.T) driver.Driver { return redisdriver.New(rdb) }
	for _, c := range drivertest.Cases() {
		if c.Form == "AllPermits" {
			continue // the same again, which no Cluster can tell from the others
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel() // most of them wait for leases to end
			c.Run(t, open, abilities...)
		})
	}
}

// The same on miniredis. In virtual time it costs nothing to wait until the last key must have gone. A
// release takes another way through the scripts when the retention is not long
// against the TTL. Games take both.
func TestConformanceInVirtualTime(t *testing.T) {
	if !redistest.Virtually() {
		t.Skip("runs in virtual time; HOLDFAST_LEGS=real")
	}
	met := newForms()
	var games atomic.Int64
	for _, retention := range []time.Duration{time.Second, time.Minute} {
		t.Run(retention.String(), func(t *testing.T) {
			for _, c := range drivertest.Cases() {
				game := strings.HasSuffix(c.Name, "WhateverHappens")
				if retention == time.Minute && !redistest.Again() && !game {
					continue // that of TestConformance
				}
				t.Run(c.Name, func(t *testing.T) {
					t.Parallel() // to use all processors
					redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
						open := opener(s, retention)
						if game {
							open = sighting(open, s.Client(t), met)
							games.Add(1)
						}
						c.Run(t, open, abilities...)
						s.RequireTTLs(t, s.Prefix())
						time.Sleep(retention + 15*time.Second)
						s.RequireNoKeys(t, s.Prefix(), 0)
					})
				})
			}
		})
	}
	if games.Load() == 6 && !t.Failed() { // all, whatever was asked for
		met.requireAll(t)
	}
}

// sighting has the records read of all drivers that are opened.
func sighting(open drivertest.Open, rdb redis.UniversalClient, met *forms) drivertest.Open {
	return func(t *testing.T) driver.Driver {
		return sighted{open(t).(*redisdriver.Driver), rdb, met}
	}
}
