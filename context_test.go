package holdfast_test

import (
	"context"
	"errors"
	"runtime"
	"runtime/metrics"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// used returns the bytes of the heap that something can be reached by.
func used() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// started returns how many goroutines there have been.
func started() int64 {
	sample := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// A program makes a context for each message that it works on, under a lease that lasts for days.
func TestContextsOfALeaseAreForgotten(t *testing.T) {
	type word struct{}
	process, end := context.WithCancel(t.Context())
	defer end()
	for name, use := range map[string]func(l *holdfast.Lease, n int){
		"of no request": func(l *holdfast.Lease, n int) { _ = l.WithContext(context.Background()).Err() },
		"of a process":  func(l *holdfast.Lease, n int) { _ = l.WithContext(process).Err() },
		"waited for":    func(l *holdfast.Lease, n int) { _ = l.WithContext(process).Done() },
		"with a value":  func(l *holdfast.Lease, n int) { _ = l.WithContext(context.WithValue(process, word{}, n)).Done() },
		"of a request": func(l *holdfast.Lease, n int) {
			ctx, cancel := context.WithTimeout(l.WithContext(process), time.Hour)
			defer cancel()
			_ = ctx.Done()
		},
		"around a request": func(l *holdfast.Lease, n int) {
			ctx, cancel := context.WithTimeout(process, time.Hour)
			defer cancel()
			_ = l.WithContext(ctx).Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := holdfast.Open(lab.Instant{})
			defer c.Close()
			l, err := c.Mutex("x").Lease(t.Context())
			require.NoError(t, err)
			const n = 50_000
			use(l, 0)
			before := used()
			for i := range n {
				use(l, i)
			}
			// A context of the standard library takes over 300.
			require.Eventually(t, func() bool { return used() < before+n*30 }, 20*time.Second, 50*time.Millisecond)
			goroutines := started()
			require.NoError(t, l.Release(t.Context()))
			assert.Less(t, started()-goroutines, int64(n/100), "of the end of the lease")
		})
	}
}

func TestEndOfALeaseEndsAllOfItsContexts(t *testing.T) {
	process, end := context.WithCancel(t.Context())
	defer end()
	store := memdriver.New()
	locks, others := holdfast.Open(store), holdfast.Open(store)
	defer others.Close()
	defer locks.Close()
	l, err := locks.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	const n = 10_000
	var all []context.Context
	for i := range n {
		outer := process
		if i%2 == 0 {
			outer = context.Background()
		}
		ctx := l.WithContext(outer)
		if i%3 == 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			defer cancel()
		}
		if i%4 != 0 { // somebody waits
			_ = ctx.Done()
		}
		all = append(all, ctx)
	}
	early, cancel := context.WithCancelCause(process)
	reason := errors.New("the request is over")
	mine := l.WithContext(early)
	cancel(reason)
	<-mine.Done()
	assert.ErrorIs(t, mine.Err(), context.Canceled)
	assert.ErrorIs(t, context.Cause(mine), reason)
	late, stop := context.WithTimeout(process, time.Nanosecond)
	defer stop()
	mine = l.WithContext(late)
	<-mine.Done()
	assert.ErrorIs(t, mine.Err(), context.DeadlineExceeded)
	require.NoError(t, l.Err())

	before := started()
	require.NoError(t, others.Mutex("x").ForceUnlock(t.Context()))
	for _, ctx := range all {
		<-ctx.Done()
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(ctx), holdfast.ErrLost)
	}
	assert.Less(t, started()-before, int64(n/10), "one goroutine ends many")
	require.ErrorIs(t, l.Release(t.Context()), holdfast.ErrLost)
}

// slow is a context of a program whose values take long, once it is time.
type slow struct {
	context.Context
	begun *atomic.Bool
}

func (s slow) Value(key any) any {
	if s.begun.Load() {
		time.Sleep(time.Minute)
	}
	return s.Context.Value(key)
}

// A context is code of the program, and nothing waits for it that others need.
func TestSlowValuesOfAContextCostNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Bool
		c := holdfast.Open(memdriver.New(), holdfast.WithTTL(10*time.Second))
		var leases []*holdfast.Lease
		for i := range 20 {
			l, err := c.Mutex(strconv.Itoa(i)).Lease(slow{t.Context(), &begun})
			require.NoError(t, err)
			leases = append(leases, l)
		}
		begun.Store(true)
		time.Sleep(time.Hour)
		begun.Store(false)
		for _, l := range leases {
			require.NoError(t, l.Err())
			require.NoError(t, l.Release(t.Context()))
		}
		require.NoError(t, c.Close())
	})
}
