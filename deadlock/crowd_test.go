package deadlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
)

// crowd is many goroutines that wait with one lease, for a lock each or many for the first. One or all of
// these locks are held by somebody who then wants that lease's, the others by somebody who works on.
type crowd struct {
	waits, locks int
	circles      int    // how many of the locks, the last ones, are those of the circle
	suffix       string // of names
	within       time.Duration
}

// lasts is how long the circle lasts, from the moment at which it closes.
func (w crowd) lasts(tn *town, between time.Duration) (lasted time.Duration) {
	a, b, c := tn.process(), tn.process(), tn.process()
	ctx, cancel := context.WithTimeout(tn.Context(), time.Hour)
	defer cancel()
	name := func(i int) string { return fmt.Sprint("x", i, w.suffix) }
	other := ctx
	for i := range w.locks {
		if i < w.locks-w.circles {
			_, err := c.Mutex(name(i)).Lease(ctx)
			require.NoError(tn, err)
			continue
		}
		l, err := b.Mutex(name(i)).Lease(ctx)
		require.NoError(tn, err)
		other = l.WithContext(other)
	}
	shared, err := a.Mutex("a").Lease(ctx)
	require.NoError(tn, err)
	var all sync.WaitGroup
	for i := range w.waits {
		time.Sleep(between)
		all.Go(func() {
			l, err := a.Mutex(name(max(0, i-w.waits+w.locks))).Lease(shared.WithContext(ctx))
			if err == nil {
				_ = l.Release(context.Background())
			}
		})
	}
	time.Sleep(time.Millisecond)
	began := time.Now()
	_, err = b.Mutex("a").Lease(other)
	lasted = time.Since(began)
	assert.ErrorIs(tn, err, holdfast.ErrDeadlock)
	cancel()
	all.Wait()
	return lasted
}

// The lease has room for 20 notes or so, and may pass through many circles at once.
func TestCircleThroughALeaseWithWhichManyWaitEnds(t *testing.T) {
	long := strings.Repeat("x", 200) // three notes of such names fill a tag
	for name, w := range map[string]crowd{
		"10 for one lock":                           {10, 1, 1, "", 2 * pause},
		"60 for one lock":                           {60, 1, 1, "", 2 * pause},
		"59 for one lock, one for another":          {60, 2, 1, long, 2 * pause},
		"10 for a lock each":                        {10, 10, 1, "", 2 * pause},
		"60 for a lock each, and as many circles":   {60, 60, 60, "", 2 * pause},
		"40 for a lock each":                        {40, 40, 1, "", time.Minute},
		"10 for a lock each, with names of 200":     {10, 10, 1, long, 10 * time.Minute},
		"10 for a lock each, circles, names of 200": {10, 10, 10, long, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			for _, between := range []time.Duration{0, pause / 100} {
				bubble(t, func(tn *town) {
					lasted := w.lasts(tn, between)
					assert.LessOrEqual(t, lasted, w.within)
					t.Log(lasted)
				})
			}
		})
	}
}
