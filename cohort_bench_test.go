package holdfast_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

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
