package telemetry_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// A release of which the store was not told in time has failed, whoever released: until it is
// told, or for a TTL, others wait for the lock.
func TestReleaseThatFailsIsCounted(t *testing.T) {
	denied := errors.Join(driver.ErrDenied, driver.ErrNotExecuted)
	forms := map[string]func(t *testing.T, c *holdfast.Client){
		"Release": func(t *testing.T, c *holdfast.Client) {
			l, err := c.Mutex("x").Lease(t.Context())
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_ = l.Release(ctx)
		},
		"Unlock": func(_ *testing.T, c *holdfast.Client) {
			c.Mutex("x").Lock()
			c.Mutex("x").Unlock()
		},
		"Do": func(t *testing.T, c *holdfast.Client) {
			_ = c.Mutex("x").Do(t.Context(), func(context.Context) error { return nil })
		},
		"Semaphore.Release": func(t *testing.T, c *holdfast.Client) {
			s := c.Semaphore("x", 3)
			require.NoError(t, s.Acquire(t.Context(), 2))
			s.Release(2)
		},
	}
	for form, f := range forms {
		for want, err := range map[string]error{"": nil, "unavailable": driver.ErrTransient, "denied": denied} {
			t.Run(form+" "+want, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e := newTelemetry(t, holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
					c := holdfast.Open(lab.Puppet{OnRelease: func(driver.Lease) error { return err }}, holdfast.WithTTL(3*time.Second))
					c.AddHook(e.hook)
					f(t, c)
					require.NoError(t, c.Close())
					spans, metric := e.releases()
					assert.Equal(t, spans, metric)
					require.Len(t, metric, 1)
					for attrs := range metric {
						failure, _, _ := strings.Cut(strings.TrimPrefix(attrs, "error.type="), " ")
						if want == "" {
							assert.NotContains(t, attrs, "error.type")
						} else {
							assert.Equal(t, want, failure, "FOUL: it counts as released")
						}
					}
				})
			})
		}
	}
}

// A lock that passes from goroutine to goroutine wakes each of them: nothing else says why they waited.
func TestHandToHandWakesAreCounted(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		e := newTelemetry(t)
		mu := e.on(l.Mates()).Mutex("x")
		first := l.Take(mu.Lease)
		var waiting sync.WaitGroup
		for range 20 {
			waiting.Go(func() {
				assert.NoError(t, mu.Do(t.Context(), func(context.Context) error { return nil }))
			})
		}
		l.Until("all wait", func() bool {
			return e.metric("holdfast.wait.active").Data.(metricdata.Sum[int64]).DataPoints[0].Value == 20
		})
		l.GiveBack(first)
		waiting.Wait()
		counts := e.counted()
		contended := counts["acquire.duration contended=true mode=exclusive outcome=acquired primitive=mutex"]
		assert.NotZero(t, contended)
		assert.GreaterOrEqual(t, counts["wakeups source=local"], contended, "FOUL: nothing says why they waited")
	})
}

// What becomes of a call tells a store that cannot be reached, one that does not let the user in and a
// key of another program apart.
func TestErrorTypesTellTroublesOfTheStoreApart(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		require.NoError(t, s.Client(t).Set(t.Context(), s.Prefix()+":2:mutex:x", "not a lock", time.Minute).Err())
		for want, o := range map[string]redis.Options{
			"unavailable": {Network: "unix", Addr: "/nowhere"},
			"denied":      {Network: s.Network(), Addr: s.Addr(), Username: "nobody", Password: "wrong"},
			"wrong_type":  {Network: s.Network(), Addr: s.Addr()},
		} {
			e := newTelemetry(t)
			rdb := redis.NewClient(&o)
			c := holdfast.New(rdb, holdfast.WithPrefix(s.Prefix()))
			c.AddHook(e.hook)
			_, err := c.Mutex("x").TryLease(t.Context())
			require.Error(t, err)
			require.NoError(t, c.Close())
			require.NoError(t, rdb.Close())
			assert.Contains(t, e.counted(), "acquire.duration contended=false error.type="+want+" mode=exclusive outcome=error primitive=mutex", "FOUL: %v", err)
		}
	})
}

// How near a lease is to its loss shows at every renewal that is due, before it is lost: because the store
// takes long, or because it fails.
func TestMarginOfRenewalsIsTold(t *testing.T) {
	const ttl = 9 * time.Second
	for name, test := range map[string]struct {
		takes time.Duration
		again bool // what is asked beside is answered at once
		err   error
		least float64
	}{
		"at once":            {0, false, nil, .656},
		"slow":               {2 * time.Second, false, nil, .434},
		"nearly lost":        {5 * time.Second, false, nil, .101},
		"too late":           {7 * time.Second, false, nil, -.121},
		"asked again":        {5 * time.Second, true, nil, .49},
		"fails all the time": {0, false, driver.ErrTransient, .125},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, began := newTelemetry(t), time.Now()
				var asked atomic.Int32
				c := holdfast.Open(lab.Puppet{OnRenew: func(_ context.Context, leases []driver.Lease) []error {
					if asked.Add(1) == 1 || !test.again {
						time.Sleep(time.Until(began.Add(ttl/3 + test.takes)))
					}
					return []error{test.err}
				}}, holdfast.WithTTL(ttl))
				c.AddHook(e.hook)
				l, err := c.Mutex("x").Lease(t.Context())
				require.NoError(t, err)
				if test.err != nil {
					<-l.Done()
				} else {
					time.Sleep(ttl/3 + test.takes)
				}
				synctest.Wait()
				_ = l.Release(t.Context())
				require.NoError(t, c.Close())
				margins := e.metric("holdfast.renewal.margin").Data.(metricdata.Histogram[float64]).DataPoints
				require.Len(t, margins, 1)
				least, _ := margins[0].Min.Value()
				assert.InDelta(t, test.least, least, .13, "FOUL: what was left of the lease")
			})
		})
	}
}
