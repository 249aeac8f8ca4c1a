package pgdriver_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// counter counts queries.
type counter struct{ n atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}
func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// BenchmarkStores compares PostgreSQL with Redis: a lock that nobody else wants, one that 2
// clients hand to each other, and one that 64 clients want. Each client is as one of another
// process. It takes the stores by turns; volatile is a PostgreSQL that does not wait for its disk.
//
//	go test -run '^$' -bench Stores -benchtime 3000x ./driver/postgres
func BenchmarkStores(b *testing.B) {
	var queries counter
	postgres := func(args ...string) func(testing.TB) *holdfast.Client {
		s := start(b, append(args, "-c", "max_connections=300")...)
		return func(t testing.TB) *holdfast.Client {
			pool := s.pool(t, func(c *pgxpool.Config) {
				c.MaxConns = 2
				c.ConnConfig.Tracer = &queries
			})
			return holdfast.Open(pgdriver.New(pool), holdfast.WithStrictFIFO())
		}
	}
	r := redistest.Real(b)
	stores := []struct {
		name   string
		client func(testing.TB) *holdfast.Client
	}{
		{"redis", func(t testing.TB) *holdfast.Client {
			return holdfast.New(r.Client(t), holdfast.WithPrefix(r.Prefix()), holdfast.WithStrictFIFO())
		}},
		{"postgres", postgres("-c", "fsync=on")},
		{"volatile", postgres()},
	}
	for _, clients := range []int{1, 2, 64} {
		for _, store := range stores {
			b.Run(map[int]string{1: "Uncontended", 2: "HandOver", 64: "Crowd"}[clients]+"/"+store.name, func(b *testing.B) {
				var all []*holdfast.Client
				for range clients {
					locks := store.client(b)
					defer func() { require.NoError(b, locks.Close()) }()
					all = append(all, locks)
				}
				cycles(b, all, 5*clients) // so that all are connected, and listen
				queries.n.Store(0)
				b.ResetTimer()
				waits := cycles(b, all, b.N)
				b.StopTimer()
				slices.Sort(waits)
				b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds())/1000, "p99-ms")
				if n := queries.n.Load(); n > 0 {
					b.ReportMetric(float64(n)/float64(b.N), "queries/op")
				}
			})
		}
	}
}

// cycles has the clients lock and unlock n times in all, and returns how long each Lock took.
func cycles(b *testing.B, clients []*holdfast.Client, n int) (waits []time.Duration) {
	b.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var done atomic.Int64
	for _, locks := range clients {
		wg.Go(func() {
			m := locks.Mutex("l")
			for done.Add(1) <= int64(n) {
				began := time.Now()
				m.Lock()
				took := time.Since(began)
				m.Unlock()
				mu.Lock()
				waits = append(waits, took)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return waits
}
