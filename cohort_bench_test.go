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
