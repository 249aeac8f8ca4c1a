package holdfast_test

import (
	"context"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// What a lab has for locks of any kind. Where it says lock it means a handle of any
// client, through which the test looks at the store.

// lock is what all kinds have in common.
type lock interface {
	Inspect(ctx context.Context) (holdfast.Info, error)
	ForceUnlock(ctx context.Context) error
}

// leasing is a form of Lease.
type leasing = func(context.Context) (*holdfast.Lease, error)

// permits is the form that asks for n of them.
func permits(s *holdfast.Semaphore, n int64) leasing {
	return func(ctx context.Context) (*holdfast.Lease, error) { return s.Lease(ctx, n) }
}

// take is ask for what is free, or will be soon.
func (l *lab) take(lease leasing) *holdfast.Lease {
	l.t.Helper()
	return l.ask(lease).granted(soon)
}

func (l *lab) giveBack(leases ...*holdfast.Lease) {
	l.t.Helper()
	for _, lease := range leases {
		require.NoError(l.t, lease.Release(l.t.Context()))
	}
}

func (l *lab) look(k lock) holdfast.Info {
	l.t.Helper()
	info, err := k.Inspect(l.t.Context())
	require.NoError(l.t, err)
	return info
}

func (l *lab) untilWaiting(k lock, n int) {
	l.t.Helper()
	l.until("the queue is as long as that", func() bool { return len(l.look(k).Queue) == n })
}

func (l *lab) untilHolding(k lock, n int) {
	l.t.Helper()
	l.until("so many hold it", func() bool { return len(l.look(k).Holders) == n })
}

// isHeldBy checks that these and no others hold the lock, for the store and for
// themselves.
func (l *lab) isHeldBy(k lock, leases ...*holdfast.Lease) {
	l.t.Helper()
	var want, got []int64
	for _, lease := range leases {
		require.NoError(l.t, lease.Err())
		want = append(want, lease.Fence())
	}
	for _, h := range l.look(k).Holders {
		got = append(got, h.Fence)
	}
	require.ElementsMatch(l.t, want, got, "fences of the holders")
}

// used is how many permits the store says are held.
func (l *lab) used(s *holdfast.Semaphore) (sum int64) {
	l.t.Helper()
	for _, h := range l.look(s).Holders {
		sum += h.Weight
	}
	return sum
}

// isClean checks that the key has neither holders nor waiters left.
func (l *lab) isClean(kind driver.Kind, name string) {
	l.t.Helper()
	fields, err := l.direct.HGetAll(l.t.Context(), l.keyOf(kind, name)).Result()
	require.NoError(l.t, err)
	for field, value := range fields {
		for _, prefix := range []string{"h:", "w:", "s:", "used", "head"} {
			assert.False(l.t, strings.HasPrefix(field, prefix), "left behind: %s", strings.Split(value, " ")[0])
		}
	}
}

func (l *lab) keyOf(kind driver.Kind, name string) string {
	return l.s.Prefix() + ":1:" + string(kind) + ":" + name
}

// on matches the scripts that work on a key.
func (l *lab) on(kind driver.Kind, name string) func([]string) bool {
	key := l.keyOf(kind, name)
	return func(cmd []string) bool {
		return len(cmd) > 3 && strings.EqualFold(cmd[0], "evalsha") && cmd[3] == key
	}
}

// begin calls f in the background, and returns a channel that has what it panicked
// with, or nil, when it has returned.
func begin(f func()) <-chan any {
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		f()
	}()
	return done
}

// ends waits for what was begun, which must not panic.
func (l *lab) ends(done <-chan any) {
	l.t.Helper()
	require.Nil(l.t, promptly(l.t, soon, func() any { return <-done }))
}

// stays checks that what was begun does not end. That cannot be proved by waiting, but
// whatever ends it is under way already.
func (l *lab) stays(done <-chan any) {
	l.t.Helper()
	select {
	case v := <-done:
		l.t.Fatalf("it did not wait: %v", v)
	case <-time.After(50 * time.Millisecond):
	}
}

// bare hides the optional abilities of a driver.
type bare struct{ driver.Driver }
