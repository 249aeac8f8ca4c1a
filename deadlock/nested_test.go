package deadlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/deadlock"
)

// Whoever takes locks in one order waits in no circle, however long, and whoever gives up meanwhile.
func TestPairsInOneOrderAreNeverTold(t *testing.T) {
	pairs := 1000
	if os.Getenv("HOLDFAST_SOAK") != "" {
		pairs = 1_000_000
	}
	bubble(t, func(tn *town) {
		const few = 20 * time.Millisecond
		var done, looked, gaveUp atomic.Int64
		var all sync.WaitGroup
		for p := range 4 {
			c := holdfast.Open(tn.store)
			tn.Cleanup(func() { _ = c.Close() })
			c.AddHook(deadlock.New(c, deadlock.WithPause(few)))
			for g := range 6 {
				r := rand.New(rand.NewPCG(uint64(p), uint64(g)))
				all.Go(func() {
					for done.Load() < int64(pairs) {
						i := r.IntN(9)
						outer, inner := fmt.Sprint("m", i), fmt.Sprint("m", i+1+r.IntN(9-i))
						ctx, cancel := context.WithTimeout(tn.Context(), 10*few+time.Duration(r.IntN(int(100*few))))
						if r.IntN(10) == 0 {
							time.AfterFunc(time.Duration(r.IntN(int(3*few))), cancel)
						}
						err := c.Mutex(outer).Do(ctx, func(ctx context.Context) error {
							began := time.Now()
							err := c.Mutex(inner).Do(ctx, func(context.Context) error {
								time.Sleep(time.Duration(r.IntN(int(few))))
								return nil
							})
							if time.Since(began) > few {
								looked.Add(1)
							}
							return err
						})
						cancel()
						if err == nil {
							done.Add(1)
						} else if gaveUp.Add(1); !assert.NotErrorIs(t, err, holdfast.ErrDeadlock) {
							return
						}
					}
				})
			}
		}
		began := time.Now()
		all.Wait()
		t.Logf("%d pairs in %v, %d waits were looked at, %d gave up, no report", done.Load(), time.Since(began), looked.Load(), gaveUp.Load())
		assert.Greater(t, looked.Load(), int64(pairs/100))
	})
}
