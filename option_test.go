package holdfast_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/redistest"
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
		t.Run(what, func(t *testing.T) { assert.Panics(t, f) })
	}
	t.Run("a ring", func(t *testing.T) {
		ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
		defer func() { _ = ring.Close() }()
		assert.Panics(t, func() { holdfast.New(ring) })
	})
	assert.NotPanics(t, func() {
		holdfast.WithTTL(10 * time.Millisecond)
		holdfast.WithTTL(24 * time.Hour)
	})
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
