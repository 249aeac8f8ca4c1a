package exclusion_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// judged is a lock of any kind, and how much of it is held: everything, or a part of the whole.
type judged struct {
	whole int64
	ask   func(c *holdfast.Client, n int64) holdfast.Part
	held  atomic.Int64
}

func mixed(names int) (all []*judged) {
	for i := range names {
		name := fmt.Sprint("lock ", i)
		all = append(all,
			&judged{whole: 1, ask: func(c *holdfast.Client, _ int64) holdfast.Part { return c.Mutex(name) }},
			&judged{whole: 100, ask: func(c *holdfast.Client, n int64) holdfast.Part {
				if n == 1 {
					return c.RWMutex(name).Reading()
				}
				return c.RWMutex(name)
			}},
			&judged{whole: 3, ask: func(c *holdfast.Client, n int64) holdfast.Part { return c.Semaphore(name, 3).Permits(n) }})
	}
	return all
}

// draw returns how much to ask for.
func (j *judged) draw() int64 {
	switch j.whole {
	case 100: // readers, or a writer
		return []int64{1, 1, 100}[rand.N(3)]
	}
	return 1 + rand.N(j.whole)
}

// Clients that want random sets of locks of all kinds never wait in a circle, nor do two have what one
// may. In the end all is free.
func TestAllOfMixedKindsNeverDeadlocks(t *testing.T) {
	t.Parallel()
	length := 2 * time.Second
	if redistest.Again() {
		length = 10 * time.Minute
	}
	l := lab.New(t, redistest.Shared(t))
	l.Remember()
	locks := mixed(3)
	var sets, late atomic.Int64
	var clients sync.WaitGroup
	end := time.Now().Add(length)
	for _, c := range []*holdfast.Client{l.Near(), l.Mates(), l.Near(), l.Mates()} {
		for range 4 {
			clients.Go(func() {
				for time.Now().Before(end) && !t.Failed() {
					takeSome(t, c, locks, &sets, &late)
				}
			})
		}
	}
	clients.Wait()
	t.Logf("%d sets taken, %d given up", sets.Load(), late.Load())
	require.Positive(t, sets.Load())
	var all []holdfast.Part
	c := l.Near()
	for _, j := range locks {
		all = append(all, j.ask(c, j.whole))
	}
	// Asks of those that gave up may be on their way.
	ctx, cancel := context.WithTimeout(t.Context(), lab.Soon)
	defer cancel()
	free, err := holdfast.All(ctx, all...)
	require.NoError(t, err, "one stays locked")
	require.NoError(t, free.Release(t.Context()))
}

// takeSome takes a random set, and gives it back.
func takeSome(t *testing.T, c *holdfast.Client, locks []*judged, sets, late *atomic.Int64) {
	which := rand.Perm(len(locks))[:1+rand.N(5)]
	parts, much := make([]holdfast.Part, len(which)), make([]int64, len(which))
	for k, i := range which {
		much[k] = locks[i].draw()
		parts[k] = locks[i].ask(c, much[k])
	}
	patience := time.Minute
	if rand.N(5) == 0 {
		patience = rand.N(20 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	all, err := holdfast.All(ctx, parts...)
	if err != nil {
		assert.Less(t, patience, time.Minute, "it waits in a circle: %v", err)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		late.Add(1)
		return
	}
	for k, i := range which {
		assert.LessOrEqual(t, locks[i].held.Add(much[k]), locks[i].whole, "FOUL: more hold the lock than may")
	}
	if rand.N(4) == 0 {
		time.Sleep(rand.N(2 * time.Millisecond))
	}
	for k, i := range which {
		locks[i].held.Add(-much[k])
	}
	assert.NoError(t, all.Release(context.WithoutCancel(ctx)))
	sets.Add(1)
}
