package pgdriver

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// sweepEvery is how often a driver sweeps. All that share a database do, so what they do for
// each other comes sooner; a lock is looked at once a minute however many there are.
const sweepEvery = time.Minute

// sweeper deletes the rows that nobody needs any more, once the driver is in use.
type sweeper struct {
	once sync.Once
	stop context.CancelFunc
	done chan struct{}
}

func (s *sweeper) start(d *Driver) {
	s.once.Do(func() {
		ctx, stop := context.WithCancel(telemetry.Unasked(context.Background()))
		s.stop, s.done = stop, make(chan struct{})
		go func() {
			defer close(s.done)
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(sweepEvery/2 + rand.N(sweepEvery)):
				}
				_ = d.sweep(ctx) // Another time will do, or another process.
			}
		}()
	})
}

func (s *sweeper) close() {
	s.once.Do(func() {}) // It is not started any more.
	if s.stop != nil {
		s.stop()
		<-s.done
	}
}

// sweep looks at all locks that it is time to look at, some at a time.
func (d *Driver) sweep(ctx context.Context) error {
	for {
		var looked int
		err := d.call(ctx, 0, []any{&looked}, `SELECT holdfast.sweep()`)
		if err != nil || looked == 0 {
			return err
		}
	}
}
