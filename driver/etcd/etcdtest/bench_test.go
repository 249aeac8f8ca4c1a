package etcdtest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// store is where the locks of a benchmark are.
type store struct {
	name string
	open func(testing.TB) *holdfast.Client
}

// stores are Redis, without persistence, and etcd with one and with three members, each in
// processes of their own, which write to disk as they do by default.
func stores(b *testing.B) []store {
	redis := redistest.Real(b)
	one, three := cluster(b, 1), cluster(b, 3)
	etcd := func(members []*member) func(testing.TB) *holdfast.Client {
		return func(tb testing.TB) *holdfast.Client {
			return holdfast.Open(etcddriver.New(connect(tb, leader(tb, members).endpoint)))
		}
	}
	return []store{
		{"redis", func(tb testing.TB) *holdfast.Client { return holdfast.New(redis.Client(tb)) }},
		{"etcd", etcd(one)},
		{"etcd-of-3", etcd(three)},
	}
}

func closing(b *testing.B, c *holdfast.Client) *holdfast.Client {
	b.Cleanup(func() { require.NoError(b, c.Close()) })
	return c
}

func cycle(b *testing.B, mu *holdfast.Mutex) {
	l, err := mu.Lease(context.Background())
	require.NoError(b, err)
	require.NoError(b, l.Release(context.Background()))
}

// report has the median time of each store, in us.
func report(b *testing.B, all []store, times map[string][]time.Duration) {
	b.ReportMetric(0, "ns/op")
	for _, s := range all {
		slices.Sort(times[s.name])
		b.ReportMetric(float64(times[s.name][len(times[s.name])/2].Nanoseconds())/1000, "us/"+s.name)
	}
}

// BenchmarkUncontended is a lock that nobody else wants, acquired and released.
func BenchmarkUncontended(b *testing.B) {
	all := stores(b)
	var locks []*holdfast.Mutex
	for _, s := range all {
		locks = append(locks, closing(b, s.open(b)).Mutex("uncontended"))
	}
	times := map[string][]time.Duration{}
	for b.Loop() {
		for i, s := range all {
			began := time.Now()
			cycle(b, locks[i])
			times[s.name] = append(times[s.name], time.Since(began))
		}
	}
	report(b, all, times)
}

// BenchmarkHandOver is the time from a release until the one that waits has the lock.
func BenchmarkHandOver(b *testing.B) {
	all := stores(b)
	var pairs [][2]*holdfast.Mutex
	for _, s := range all {
		pairs = append(pairs, [2]*holdfast.Mutex{closing(b, s.open(b)).Mutex("handed over"), closing(b, s.open(b)).Mutex("handed over")})
	}
	times := map[string][]time.Duration{}
	for b.Loop() {
		for i, s := range all {
			held, err := pairs[i][0].Lease(b.Context())
			require.NoError(b, err)
			got := make(chan time.Time)
			go func() {
				l, err := pairs[i][1].Lease(context.Background())
				got <- time.Now()
				if err == nil {
					_ = l.Release(context.Background())
				}
				got <- time.Now()
			}()
			for info := (holdfast.Info{}); len(info.Queue) == 0; {
				info, err = pairs[i][0].Inspect(b.Context())
				require.NoError(b, err)
			}
			time.Sleep(time.Millisecond) // for the watch to begin
			released := time.Now()
			require.NoError(b, held.Release(b.Context()))
			times[s.name] = append(times[s.name], (<-got).Sub(released))
			<-got
		}
	}
	report(b, all, times)
}

// Benchmark64Clients is 64 clients, each with a connection of its own, that want one lock.
func Benchmark64Clients(b *testing.B) {
	all := stores(b)
	crews := make([][]*holdfast.Mutex, len(all))
	for i, s := range all {
		for range 64 {
			crews[i] = append(crews[i], closing(b, s.open(b)).Mutex("contended"))
		}
	}
	const turn = 256 // cycles
	times := map[string][]time.Duration{}
	for b.Loop() {
		for i, s := range all {
			var left atomic.Int64
			left.Store(turn)
			began := time.Now()
			var crew sync.WaitGroup
			for _, mu := range crews[i] {
				crew.Go(func() {
					for left.Add(-1) >= 0 {
						cycle(b, mu)
					}
				})
			}
			crew.Wait()
			times[s.name] = append(times[s.name], time.Since(began)/turn)
		}
	}
	report(b, all, times)
}
