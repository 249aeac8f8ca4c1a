package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/deadlock"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

func readAlerts(t *testing.T) []rulefmt.Rule {
	text, err := os.ReadFile("alerts.yml")
	require.NoError(t, err)
	file, errs := rulefmt.Parse(text, false, model.UTF8Validation)
	require.Empty(t, errs)
	require.Len(t, file.Groups, 1)
	return file.Groups[0].Rules
}

// ill is a store that fails once in each way.
type ill struct {
	*memdriver.Driver
	renewal, acquisitions, releases atomic.Int32 // how many are to fail
	silent                          atomic.Int64 // until then no renewal is answered, in Unix nanoseconds
	reconnect                       func(reason string)
}

func (i *ill) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if i.acquisitions.Add(-1) >= 0 {
		return driver.Grant{}, driver.ErrTransient
	}
	return i.Driver.Acquire(ctx, r)
}

func (i *ill) Release(ctx context.Context, l driver.Lease) error {
	if i.releases.Add(-1) >= 0 {
		return driver.ErrDenied
	}
	return i.Driver.Release(ctx, l)
}

func (i *ill) Renew(ctx context.Context, leases []driver.Lease) []error {
	time.Sleep(time.Until(time.Unix(0, i.silent.Load())))
	if i.renewal.Add(-1) >= 0 {
		return slices.Repeat([]error{driver.ErrTransient}, len(leases))
	}
	return i.Driver.Renew(ctx, leases)
}

func (i *ill) OnReconnect(f func(reason string)) { i.reconnect = f }

// Each alert fires after one event, even the first of its kind, and no other does.
func TestAnAlertFiresForASingleEvent(t *testing.T) {
	rules := readAlerts(t)
	names := map[string]bool{"": true}
	for _, r := range rules {
		names[r.Alert] = true
	}
	type place struct {
		*testing.T
		store       *ill
		locks, peer *holdfast.Client // the peer has no hook, and no metrics
		hook        holdfast.Hook
	}
	take := func(p place, c *holdfast.Client, name string) *holdfast.Lease {
		l, err := c.Mutex(name, holdfast.WithTTL(10*time.Second)).Lease(p.Context())
		require.NoError(p, err)
		return l
	}
	for alert, event := range map[string]func(place){
		// A caller that is turned away as it wished, and one whose program ends.
		"": func(p place) {
			l := take(p, p.peer, "deploy")
			ctx, cancel := context.WithCancel(p.Context())
			go func() { _, _ = p.peer.Mutex("deploy", holdfast.WithStrictFIFO()).Lease(ctx) }()
			synctest.Wait()
			_, err := p.locks.Mutex("deploy", holdfast.WithMaxWaiters(1)).Lease(p.Context())
			require.ErrorIs(p, err, holdfast.ErrQueueFull)
			ending := holdfast.Open(p.store)
			ending.AddHook(p.hook)
			closed := make(chan error)
			go func() { _, err := ending.Mutex("deploy").Lease(p.Context()); closed <- err }()
			synctest.Wait()
			require.NoError(p, ending.Close())
			require.ErrorIs(p, <-closed, holdfast.ErrClosed)
			cancel()
			require.NoError(p, l.Release(p.Context()))
		},
		"HoldfastLeaseLost": func(p place) {
			l := take(p, p.locks, "deploy")
			require.NoError(p, p.peer.Mutex("deploy").ForceUnlock(p.Context()))
			<-l.Context().Done()
		},
		"HoldfastRenewalsFail": func(p place) {
			l := take(p, p.locks, "deploy")
			p.store.renewal.Store(1)
			time.Sleep(20 * time.Second)
			require.NoError(p, l.Release(p.Context()))
		},
		"HoldfastLeaseNearlyLost": func(p place) {
			l := take(p, p.locks, "deploy")
			p.store.silent.Store(time.Now().Add(8500 * time.Millisecond).UnixNano())
			time.Sleep(20 * time.Second)
			require.NoError(p, l.Release(p.Context()))
		},
		"HoldfastReleasesFail": func(p place) {
			l := take(p, p.locks, "deploy")
			p.store.releases.Store(1)
			require.ErrorIs(p, l.Release(p.Context()), driver.ErrDenied)
		},
		"HoldfastSubscriptionBreaks": func(p place) { p.store.reconnect("error") },
		"HoldfastNewsDoesNotArrive":  func(p place) { p.store.reconnect("mute") },
		"HoldfastDeadlock": func(p place) {
			var held, done sync.WaitGroup
			held.Add(2)
			var failed atomic.Int32
			for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
				done.Go(func() {
					err := p.locks.Mutex(names[0]).Do(p.Context(), func(ctx context.Context) error {
						held.Done()
						held.Wait()
						return p.locks.Mutex(names[1]).Do(ctx, func(context.Context) error { return nil })
					})
					if errors.Is(err, holdfast.ErrDeadlock) {
						failed.Add(1)
					}
				})
			}
			done.Wait()
			require.EqualValues(p, 1, failed.Load())
		},
		"HoldfastStoreFails": func(p place) {
			p.store.acquisitions.Store(3)
			_, err := p.locks.Mutex("deploy").TryLease(p.Context())
			require.ErrorIs(p, err, driver.ErrTransient)
		},
		"HoldfastWaitsAreLong": func(p place) {
			l := take(p, p.peer, "deploy")
			time.AfterFunc(2*time.Second, func() { _ = l.Release(context.Background()) })
			require.NoError(p, take(p, p.locks, "deploy").Release(p.Context()))
		},
		"HoldfastNobodyIsServed": func(p place) {
			l := take(p, p.peer, "deploy")
			ctx, cancel := context.WithTimeout(p.Context(), 12*time.Minute)
			defer cancel()
			_, err := p.locks.Mutex("deploy").Lease(ctx)
			require.ErrorIs(p, err, context.DeadlineExceeded)
			require.NoError(p, l.Release(p.Context()))
		},
	} {
		require.True(t, names[alert], alert)
		delete(names, alert)
		t.Run(alert, func(t *testing.T) {
			var seen scrapes
			var began, ended time.Time
			synctest.Test(t, func(t *testing.T) {
				registry := prometheus.NewRegistry()
				exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
				require.NoError(t, err)
				p := place{T: t, store: &ill{Driver: memdriver.New()}}
				p.locks, p.peer = holdfast.Open(p.store), holdfast.Open(p.store)
				defer func() { assert.NoError(t, p.locks.Close()); assert.NoError(t, p.peer.Close()) }()
				meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
				p.hook = holdfast.NewTracingHook(holdfast.WithLockClass(class), holdfast.WithMeterProvider(meters))
				p.locks.AddHook(p.hook)
				// Its pause is short, lest the wait be an event, too.
				p.locks.AddHook(deadlock.New(p.locks, deadlock.WithMeterProvider(meters), deadlock.WithPause(100*time.Millisecond)))

				seen, began = scrapes{}, time.Now()
				over := make(chan bool)
				go func() {
					defer close(over)
					for range 80 { // 20 minutes
						time.Sleep(15 * time.Second)
						require.NoError(t, take(p, p.locks, "report:daily").Release(t.Context()))
						seen.scrape(t, registry)
					}
				}()
				time.Sleep(6*time.Minute + time.Second)
				event(p)
				<-over
				ended = time.Now()
			})
			fired := map[string]bool{}
			for _, r := range rules {
				var since time.Time // when the expression began to hold
				for at := began; at.Before(ended); at = at.Add(15 * time.Second) {
					if len(seen.query(t, r.Expr, at)) == 0 {
						since = time.Time{}
						continue
					}
					if since.IsZero() {
						since = at
					}
					if at.Sub(since) >= time.Duration(r.For) {
						fired[r.Alert] = true
					}
				}
			}
			want := []string{alert}
			if alert == "" {
				want = nil
			}
			assert.Equal(t, want, slices.Sorted(maps.Keys(fired)))
		})
	}
	assert.Empty(t, names, "no event")
}

// The guide names every alert, and no other.
func TestGuideNamesTheAlerts(t *testing.T) {
	guide, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	var told []string
	for line := range strings.Lines(string(guide)) {
		if rest, ok := strings.CutPrefix(line, "| `Holdfast"); ok {
			name, _, _ := strings.Cut(rest, "`")
			told = append(told, "Holdfast"+name)
		}
	}
	var have []string
	for _, r := range readAlerts(t) {
		have = append(have, r.Alert)
		assert.NotEmpty(t, r.Annotations["summary"], r.Alert)
		assert.NotEmpty(t, r.Labels["severity"], r.Alert)
	}
	assert.ElementsMatch(t, have, told)
}
