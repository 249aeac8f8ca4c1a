package bench_test

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/bench"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.HeavyMain(m) }

// addrVar is of redistest, too: an address of Redis, instead of a server of our own.
const addrVar = "HOLDFAST_REDIS_ADDR"

func BenchmarkUncontended(b *testing.B) { benchmark(b, bench.Uncontended) }
func BenchmarkLinger(b *testing.B)      { benchmark(b, bench.Linger) }
func BenchmarkClients(b *testing.B)     { benchmark(b, bench.Clients...) }
func BenchmarkOneClient(b *testing.B)   { benchmark(b, bench.OneClient) }
func BenchmarkApart(b *testing.B)       { benchmark(b, bench.Apart...) }
func BenchmarkCluster(b *testing.B)     { benchmark(b, bench.Cluster...) }
func BenchmarkFar(b *testing.B)         { benchmark(b, bench.Far) }
func BenchmarkWaiters(b *testing.B)     { benchmark(b, bench.Waiters...) }
func BenchmarkHeld(b *testing.B)        { benchmark(b, bench.Held) }
func BenchmarkReadWrite(b *testing.B)   { benchmark(b, bench.ReadWrite...) }
func BenchmarkSemaphore(b *testing.B)   { benchmark(b, bench.Permits) }
func BenchmarkFairness(b *testing.B)    { benchmark(b, bench.Fairness) }
func BenchmarkDisk(b *testing.B)        { benchmark(b, bench.Disk...) }
func BenchmarkPostgres(b *testing.B)    { benchmark(b, bench.Postgres...) }
func BenchmarkEtcd(b *testing.B)        { benchmark(b, bench.OnEtcd...) }
func BenchmarkZooKeeper(b *testing.B)   { benchmark(b, bench.OnZooKeeper...) }
func BenchmarkStores(b *testing.B)      { benchmark(b, bench.Stores...) }
func BenchmarkRedlock(b *testing.B)     { benchmark(b, bench.Redlock...) }

// benchmark runs works with every contender that can do them. A cycle is an op.
func benchmark(b *testing.B, works ...bench.Work) {
	s := bench.NewStage(b, os.Getenv(addrVar))
	for _, w := range works {
		_, variant, _ := strings.Cut(w.Name, "/")
		for _, c := range w.Contenders {
			b.Run(strings.Trim(variant+"/"+c.Name, "/"), func(b *testing.B) { contend(b, s, w, c) })
		}
	}
}

func contend(b *testing.B, s *bench.Stage, w bench.Work, c bench.Contender) {
	scene, err := w.Enter(b.Context(), s, c)
	if bench.Absent(err) {
		b.Skip(err)
	}
	if err != nil {
		b.Fatal(err)
	}
	defer scene.Close()
	b.ResetTimer()
	turn, err := scene.Turn(b.Context(), bench.Stint{Ops: int64(b.N)})
	b.StopTimer()
	if err != nil {
		b.Fatal(err)
	}
	if n := turn.Figures[bench.Overlaps]; n > 0 {
		b.Errorf("%v times somebody was in who must not", n)
	}
	b.ReportMetric(1e9/turn.Figures[bench.Throughput], "ns/op") // without what it takes to read the counters
	for figure, v := range bench.Summary([]bench.Turn{turn}).Figures {
		b.ReportMetric(v, string(figure))
	}
}
