package holdfast_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/awake"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// rawLock is what people write by hand, and the least that a lock on Redis can cost:
// SET NX PX, and a script that deletes the key if it is still one's own.
type rawLock struct{ rdb *redis.Client }

var rawUnlock = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`)

const rawToken = "0123456789abcdef0123456789abcdef"

func (r rawLock) Lock() {
	for {
		ok, err := r.rdb.SetNX(context.Background(), "holdfast-bench:raw", rawToken, 10*time.Second).Result()
		if err != nil {
			panic(err)
		}
		if ok {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (r rawLock) Unlock() {
	if err := rawUnlock.Run(context.Background(), r.rdb, []string{"holdfast-bench:raw"}, rawToken).Err(); err != nil {
		panic(err)
	}
}

// BenchmarkMutex compares holdfast with the raw lock. The two take turns in every
// benchmark, so that whatever else the machine does meets both, and the cores are awake, as
// in bench.
func BenchmarkMutex(b *testing.B) {
	sleep, err := awake.Keep()
	require.NoError(b, err)
	defer sleep()
	s := redistest.Shared(b)
	b.Run("uncontended", func(b *testing.B) {
		rdb := s.Client(b)
		locks := holdfast.New(rdb, holdfast.WithPrefix("holdfast-bench"))
		defer locks.Close()
		compare(b, []sync.Locker{locks.Mutex("uncontended")}, []sync.Locker{rawLock{rdb}})
	})
	b.Run("8 clients", func(b *testing.B) {
		var ours, raw []sync.Locker
		for range 8 {
			rdb := s.Client(b)
			locks := holdfast.New(rdb, holdfast.WithPrefix("holdfast-bench"))
			defer locks.Close()
			ours, raw = append(ours, locks.Mutex("contended")), append(raw, rawLock{rdb})
		}
		compare(b, ours, raw)
	})
}

// compare reports the time of a cycle with ours, that with raw, and how many times as
// long ours takes: of the medians over all turns.
func compare(b *testing.B, ours, raw []sync.Locker) {
	const turn = 50 // cycles of each locker
	cycles(ours, turn)
	cycles(raw, turn)
	var o, r []time.Duration
	b.ResetTimer()
	for range (b.N + turn - 1) / turn {
		o = append(o, cycles(ours, turn))
		r = append(r, cycles(raw, turn))
	}
	b.StopTimer()
	mo, mr := median(o), median(r)
	b.ReportMetric(float64(mo), "ns/cycle")
	b.ReportMetric(float64(mr), "raw-ns/cycle")
	b.ReportMetric(float64(mo)/float64(mr), "x-raw")
	b.ReportMetric(0, "ns/op") // would be that of both together
}

// cycles has every locker lock and unlock n times, and returns the time per cycle.
func cycles(lockers []sync.Locker, n int) time.Duration {
	var wg sync.WaitGroup
	began := time.Now()
	for _, l := range lockers {
		wg.Go(func() {
			for range n {
				l.Lock()
				l.Unlock()
			}
		})
	}
	wg.Wait()
	return time.Since(began) / time.Duration(n*len(lockers))
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// BenchmarkLeaseWithoutStore measures what the client itself costs, without a store.
func BenchmarkLeaseWithoutStore(b *testing.B) {
	for _, hooks := range []int{0, 1} {
		b.Run(fmt.Sprint(hooks, " hooks"), func(b *testing.B) {
			locks := holdfast.Open(lab.Instant{})
			defer locks.Close()
			if hooks > 0 {
				keepNothing(locks)
			}
			mu := locks.Mutex("x")
			b.ReportAllocs()
			for b.Loop() {
				l, err := mu.Lease(context.Background())
				require.NoError(b, err)
				require.NoError(b, l.Release(context.Background()))
			}
		})
	}
}

// BenchmarkLockWithoutStore is the same for the forms of package sync.
func BenchmarkLockWithoutStore(b *testing.B) {
	locks := holdfast.Open(lab.Instant{})
	defer locks.Close()
	mu := locks.Mutex("x")
	b.ReportAllocs()
	for b.Loop() {
		mu.Lock()
		mu.Unlock()
	}
}

// keepNothing adds a hook that only calls what it is around.
func keepNothing(locks *holdfast.Client) {
	locks.AddHook(lab.Meddler{Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
		return next(ctx, op)
	}})
}

// BenchmarkPass measures how fast a lock goes from one goroutine of a client to the next.
func BenchmarkPass(b *testing.B) {
	for _, goroutines := range []int{2, 64} {
		b.Run(fmt.Sprint(goroutines, " goroutines"), func(b *testing.B) {
			locks := holdfast.New(redistest.Shared(b).Client(b), holdfast.WithPrefix("holdfast-bench"))
			defer locks.Close()
			mu := locks.Mutex("pass")
			b.ReportAllocs()
			var wg sync.WaitGroup
			for range goroutines {
				wg.Go(func() {
					for range b.N / goroutines {
						mu.Lock()
						mu.Unlock()
					}
				})
			}
			wg.Wait()
		})
	}
}

// BenchmarkRead measures readers of one client, who go in and out together.
func BenchmarkRead(b *testing.B) {
	for _, goroutines := range []int{1, 2, 64} {
		b.Run(fmt.Sprint(goroutines, " goroutines"), func(b *testing.B) {
			locks := holdfast.New(redistest.Shared(b).Client(b), holdfast.WithPrefix("holdfast-bench"))
			defer locks.Close()
			rw := locks.RWMutex("read")
			b.ReportAllocs()
			var wg sync.WaitGroup
			for range goroutines {
				wg.Go(func() {
					for range max(1, b.N/goroutines) {
						rw.RLock()
						rw.RUnlock()
					}
				})
			}
			wg.Wait()
		})
	}
}

// BenchmarkLinger measures how fast a lock is locked again that was kept.
func BenchmarkLinger(b *testing.B) {
	locks := holdfast.New(redistest.Shared(b).Client(b), holdfast.WithPrefix("holdfast-bench"))
	defer locks.Close()
	mu := locks.Mutex("linger", holdfast.WithLinger(time.Minute))
	b.ReportAllocs()
	for b.Loop() {
		mu.Lock()
		mu.Unlock()
	}
}

// BenchmarkApart measures locks that have nothing to do with each other, of one client.
func BenchmarkApart(b *testing.B) {
	for _, goroutines := range []int{1, 8, 64, 512} {
		for _, on := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d goroutines, together %v", goroutines, on), func(b *testing.B) {
				rdb := redistest.Shared(b).Client(b)
				locks := holdfast.New(rdb, holdfast.WithPrefix("holdfast-bench"), holdfast.WithPipelining(on))
				defer locks.Close()
				b.ReportAllocs()
				var wg sync.WaitGroup
				for i := range goroutines {
					wg.Go(func() {
						mu := locks.Mutex(fmt.Sprint("apart ", i))
						for range max(1, b.N/goroutines) {
							mu.Lock()
							mu.Unlock()
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

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
	return occupy(tb, func() error { return rdb.Ping(context.Background()).Err() }, func() *holdfast.Client {
		return holdfast.New(rdb, append(opts, holdfast.WithPrefix(s.Prefix()+"holdfast"))...)
	})
}

// occupy acquires an estate with a client that it opens after the store was as busy as that makes it.
func occupy(tb testing.TB, warm func() error, open func() *holdfast.Client) *estate {
	tb.Helper()
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
	names := make([]string, manyHeld)
	e := &estate{leases: make([]*holdfast.Lease, manyHeld)}
	all(func(i int) error {
		names[i] = fmt.Sprintf("held-%d", i)
		return warm()
	})
	goroutines, heap := runtime.NumGoroutine(), liveHeap()
	e.locks = open()
	all(func(i int) (err error) {
		e.leases[i], err = e.locks.Mutex(names[i]).Lease(context.Background())
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
	isFrugal(t, 900, func() *estate { // it is some 710
		return occupy(t, func() error { return nil }, func() *holdfast.Client { return holdfast.Open(lab.Instant{}) })
	})
}

// So it is with what the driver has. A machine that is slow leaves more in pools, and has no answer for
// some of 10,000 releases at once.
func TestLeasesOnRedisNeedFewGoroutinesAndLittleMemory(t *testing.T) {
	redistest.SoakOnly(t)
	isFrugal(t, 1280, func() *estate { return acquireEstate(t) }) // it is some 1,000
}

func isFrugal(t *testing.T, bound float64, acquire func() *estate) {
	t.Helper()
	least := math.Inf(1)
	for try := 0; try < 3 && least > bound; try++ {
		e := acquire()
		t.Logf("%d goroutines, %.0f bytes for each lease", e.goroutines, e.heap)
		least = min(least, e.heap)
		require.LessOrEqual(t, e.goroutines, 4)
		require.NoError(t, e.locks.Close())
		for _, l := range e.leases {
			require.ErrorIs(t, l.Err(), holdfast.ErrNotHeld)
		}
	}
	require.LessOrEqual(t, least, bound)
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

// BenchmarkAll takes 64 free locks in one call, and one after the other, in turns.
func BenchmarkAll(b *testing.B) {
	const n = 64
	for _, trip := range []time.Duration{0, 2 * time.Millisecond} {
		b.Run(fmt.Sprint(trip), func(b *testing.B) {
			s := redistest.Shared(b)
			link := redistest.NewProxy(b, s)
			link.Delay(trip / 2)
			c := holdfast.New(link.Client(b), holdfast.WithPrefix(s.Prefix()))
			defer c.Close()
			var parts []holdfast.Part
			for i := range n {
				parts = append(parts, c.Mutex(fmt.Sprint("bench ", i)))
			}
			var took [4][]time.Duration
			note := func(i int, f func()) {
				began := time.Now()
				f()
				took[i] = append(took[i], time.Since(began))
			}
			ctx := context.Background()
			for b.Loop() {
				var all *holdfast.Leases
				var each [n]*holdfast.Lease
				note(0, func() { all, _ = holdfast.All(ctx, parts...) })
				note(1, func() { assert.NoError(b, all.Release(ctx)) })
				note(2, func() {
					for i := range each {
						each[i], _ = parts[i].(*holdfast.Mutex).Lease(ctx)
					}
				})
				note(3, func() {
					for _, l := range each {
						assert.NoError(b, l.Release(ctx))
					}
				})
			}
			for i, unit := range []string{"ms/all", "ms/all-release", "ms/leases", "ms/releases"} {
				slices.Sort(took[i])
				b.ReportMetric(took[i][len(took[i])/2].Seconds()*1e3, unit)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
