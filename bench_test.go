package holdfast_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/redistest"
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
// benchmark, so that whatever else the machine does meets both.
func BenchmarkMutex(b *testing.B) {
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
			locks := holdfast.Open(instant{})
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
	locks := holdfast.Open(instant{})
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
	locks.AddHook(meddler{acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
		return next(ctx, op)
	}})
}

// instant grants everything at once.
type instant struct{}

func (instant) Acquire(_ context.Context, r *driver.Request) (driver.Grant, error) {
	return driver.Grant{Status: driver.Granted, Ask: r.Ask, Fence: 1}, nil
}
func (instant) Renew(_ context.Context, l []driver.Lease) []error { return make([]error, len(l)) }
func (instant) Release(context.Context, driver.Lease) error       { return nil }
func (instant) Close() error                                      { return nil }
