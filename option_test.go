package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestOptionsThatMakeNoSensePanic(t *testing.T) {
	for what, f := range map[string]func(){
		"TTL of 0":            func() { holdfast.WithTTL(0) },
		"TTL below 0":         func() { holdfast.WithTTL(-time.Second) },
		"TTL below 10 ms":     func() { holdfast.WithTTL(10*time.Millisecond - 1) },
		"TTL above 24 h":      func() { holdfast.WithTTL(24*time.Hour + 1) },
		"waiting for 0":       func() { holdfast.WithWait(0) },
		"waiting for less":    func() { holdfast.WithWait(-1) },
		"a hold of 0":         func() { holdfast.WithMaxHold(0) },
		"no replicas":         func() { holdfast.WithReplicas(0, time.Second) },
		"replicas in 9 ms":    func() { holdfast.WithReplicas(1, 9*time.Millisecond) },
		"a least hold of 0":   func() { holdfast.WithMinHold(0) },
		"a least hold > 24 h": func() { holdfast.WithMinHold(24*time.Hour + 1) },
		"a queue of 0":        func() { holdfast.WithMaxWaiters(0) },
		"an empty holder":     func() { holdfast.WithHolder("") },
		"a long holder":       func() { holdfast.WithHolder(strings.Repeat("x", 257)) },
		"a holder with a NUL": func() { holdfast.WithHolder("a\x00b") },
		"a holder in Latin-1": func() { holdfast.WithHolder("caf\xe9") },
		"an empty prefix":     func() { holdfast.WithPrefix("") },
		"no client":           func() { holdfast.New(nil) },
		"a nil client":        func() { holdfast.New((*redis.Client)(nil)) },
		"a nil cluster":       func() { holdfast.New((*redis.ClusterClient)(nil)) },
		"no driver":           func() { holdfast.Open(nil) },
		"a nil driver client": func() { holdfast.Open(redisdriver.New(nil)) },
	} {
		t.Run(what, func(t *testing.T) { lab.Panics(t, f) }) // with the name of the package
	}
	t.Run("a ring", func(t *testing.T) {
		ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
		defer func() { _ = ring.Close() }()
		lab.Panics(t, func() { holdfast.New(ring) })
	})
	assert.NotPanics(t, func() {
		holdfast.WithTTL(10 * time.Millisecond)
		holdfast.WithTTL(24 * time.Hour)
	})
}

// An option that a lock was given and cannot have is a mistake of who wrote it. A default of the
// client is for those that can have it.
func TestOptionsThatCanDoNothingPanic(t *testing.T) {
	linger, owner, nested := holdfast.WithLinger(time.Hour), holdfast.WithOwner("o"), holdfast.WithReentrancy()
	c := holdfast.Open(memdriver.New(), linger, nested)
	defer c.Close()
	for what, f := range map[string]func(){
		"permits that linger":   func() { c.Semaphore("x", 1, linger) },
		"permits of an owner":   func() { c.Semaphore("x", 1, owner) },
		"permits that nest":     func() { c.Semaphore("x", 1, nested) },
		"a strict lock lingers": func() { c.Mutex("x", linger, holdfast.WithStrictFIFO()) },
		"a fixed one":           func() { c.RWMutex("x", holdfast.WithoutRenewal(), linger) },
		"one with a least hold": func() { c.Mutex("x", holdfast.WithMinHold(time.Second), linger) },
		"an owner's":            func() { c.Mutex("x", owner, linger) },
		"all of a client":       func() { holdfast.Open(memdriver.New(), linger, holdfast.WithStrictFIFO()) },
	} {
		t.Run(what, func(t *testing.T) { lab.Panics(t, f) })
	}
	for _, opt := range []holdfast.LockOption{holdfast.WithStrictFIFO(), holdfast.WithoutRenewal(), holdfast.WithMinHold(time.Second), owner} {
		c.Mutex("x", opt)
		c.Semaphore("x", 1)
	}
}

func TestLongestAndShortestTTLWork(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		l := lab.New(t, s)
		a, b := l.Near(holdfast.WithTTL(24*time.Hour)), l.Near(holdfast.WithTTL(24*time.Hour))
		lease := l.Lease(a, "x")
		w := l.Wait(b, "x")
		l.UntilQueue("x", 1)
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, w.Granted(lab.Soon).Release(t.Context()))

		// Nobody can promise to renew one of 10 ms in time. Lost or not, it must not
		// block others.
		lease, err := a.Mutex("x", holdfast.WithTTL(10*time.Millisecond)).Lease(t.Context())
		require.NoError(t, err)
		if err := lease.Release(t.Context()); err != nil {
			require.ErrorIs(t, err, holdfast.ErrLost)
		}
		l.SoonFree(b, "x")
	})
}

// What nobody has made says how it is made, rather than to panic somewhere inside.
func TestZeroValuesSayHowTheyAreMade(t *testing.T) {
	ctx, f := t.Context(), func(context.Context) error { t.Error("called"); return nil }
	var c holdfast.Client
	var m holdfast.Mutex
	var rw holdfast.RWMutex
	var s holdfast.Semaphore
	for want, calls := range map[string][]func(){
		"use New or Open": {
			func() { c.Mutex("x") }, func() { c.RWMutex("x") }, func() { c.Semaphore("x", 1) }, func() { _ = c.Close() },
			func() { _, _ = c.Attach(ctx, "mutex:t:x") }, func() { c.AddHook(holdfast.HookBase{}) },
			func() { (*holdfast.Client)(nil).Mutex("x") },
		},
		"use the method of a Client": {
			m.Lock, m.Unlock, func() { m.TryLock() }, func() { _, _ = m.Lease(ctx) }, func() { _, _ = m.TryLease(ctx) },
			func() { _ = m.Do(ctx, f) }, func() { _, _ = m.Inspect(ctx) }, func() { _ = m.ForceUnlock(ctx) },
			func() { _, _ = holdfast.All(ctx, &m) },
			rw.Lock, rw.Unlock, rw.RLock, rw.RUnlock, rw.RLocker().Lock, func() { _, _ = rw.RLease(ctx) },
			func() { _ = s.Acquire(ctx, 1) }, func() { s.TryAcquire(1) }, func() { s.Release(1) }, func() { _ = s.Resize(ctx, 1) },
		},
		"check the error": {
			func() { new(holdfast.Lease).Context() }, func() { _ = new(holdfast.Lease).Release(ctx) }, func() { _ = new(holdfast.Lease).Err() },
			func() { _ = new(holdfast.Lease).Renew(ctx) }, func() { new(holdfast.Lease).Token() },
			func() { _ = (*holdfast.Lease)(nil).Release(ctx) }, func() { new(holdfast.Leases).Context() },
		},
	} {
		for _, call := range calls {
			assert.Contains(t, lab.Panics(t, call), want)
		}
	}
}

// granular is a store that keeps no lease of less than two seconds.
type granular struct{ driver.Driver }

func (g granular) Unwrap() driver.Driver { return g.Driver }

func (granular) Granularity() (time.Duration, time.Duration) { return 2 * time.Second, time.Second }

func TestTTLShorterThanTheStoreCanKeepIsRefused(t *testing.T) {
	locks := holdfast.Open(granular{memdriver.New()})
	defer locks.Close()
	short := holdfast.WithTTL(2*time.Second - 1)
	mu := locks.Mutex("m", short)

	_, err := mu.Lease(t.Context())
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.EqualError(t, err, `holdfast: acquire mutex "m": a TTL of 1.999999999s: on this store leases last at least 2s: unsupported operation`)
	require.Panics(t, mu.Lock)
	require.Panics(t, func() { mu.TryLock() })
	_, err = locks.RWMutex("m", short).RLease(t.Context())
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorIs(t, locks.Semaphore("m", 1, short).Acquire(t.Context(), 1), errors.ErrUnsupported)

	l, err := locks.Mutex("m", holdfast.WithTTL(2*time.Second)).Lease(t.Context())
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context()))
}
