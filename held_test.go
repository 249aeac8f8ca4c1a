package holdfast_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

const manyHeld = 10_000

// estate is very many locks that one client holds, and what came with them: not counted
// are the names, and what the Redis client has, which has been as busy before.
type estate struct {
	locks      *holdfast.Client
	leases     []*holdfast.Lease
	goroutines int
	heap       float64 // bytes for each
}

func acquireEstate(tb testing.TB, opts ...holdfast.Option) *estate {
	tb.Helper()
	s := redistest.Shared(tb)
	rdb := s.Client(tb)
	const at = 16
	all := func(do func(i int) error) {
		var wg sync.WaitGroup
		for from := range at {
			wg.Go(func() {
				for i := from; i < manyHeld; i += at {
					assert.NoError(tb, do(i))
				}
			})
		}
		wg.Wait()
	}
	ctx := context.Background()
	names := make([]string, manyHeld)
	e := &estate{leases: make([]*holdfast.Lease, manyHeld)}
	all(func(i int) error {
		names[i] = fmt.Sprintf("held-%d", i)
		return rdb.Ping(ctx).Err()
	})
	goroutines, heap := runtime.NumGoroutine(), liveHeap()
	e.locks = holdfast.New(rdb, append(opts, holdfast.WithPrefix(s.Prefix()+"holdfast"))...)
	all(func(i int) (err error) {
		e.leases[i], err = e.locks.Mutex(names[i]).Lease(ctx)
		return err
	})
	require.False(tb, tb.Failed())
	e.goroutines = runtime.NumGoroutine() - goroutines
	e.heap = (liveHeap() - heap) / manyHeld
	runtime.KeepAlive(names)
	return e
}

func liveHeap() float64 {
	runtime.GC()
	runtime.GC() // frees what the first one has finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func TestHeldLeasesNeedFewGoroutinesAndLittleMemory(t *testing.T) {
	e := acquireEstate(t)
	t.Logf("%d goroutines, %.0f bytes for each lease", e.goroutines, e.heap)
	require.LessOrEqual(t, e.goroutines, 4)
	require.LessOrEqual(t, e.heap, 1024.0)
	require.NoError(t, e.locks.Close())
	for _, l := range e.leases {
		require.ErrorIs(t, l.Err(), holdfast.ErrNotHeld)
	}
}

// BenchmarkHeld reports what it takes to hold very many locks.
func BenchmarkHeld(b *testing.B) {
	var e *estate
	for b.Loop() {
		e = acquireEstate(b)
		if err := e.locks.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(e.heap, "B/lease")
	b.ReportMetric(float64(e.goroutines), "goroutines")
}
