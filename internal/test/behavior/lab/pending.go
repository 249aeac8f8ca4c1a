package lab

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/referee"
)

// Begin calls f in the background, and returns a channel that has what it panicked
// with, or nil, when it has returned.
func Begin(f func()) <-chan any {
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		f()
	}()
	return done
}

// Ends waits for what was begun, which must not panic.
func (l *Lab) Ends(done <-chan any) {
	l.T.Helper()
	require.Nil(l.T, Promptly(l.T, Soon, func() any { return <-done }))
}

// Stays checks that what was begun does not end. That cannot be proved by waiting, but
// whatever ends it is under way already.
func (l *Lab) Stays(done <-chan any) {
	l.T.Helper()
	select {
	case v := <-done:
		l.T.Fatalf("it did not wait: %v", v)
	case <-time.After(50 * time.Millisecond):
	}
}

// Pending is a call of Lease that may not have returned.
type Pending struct {
	l      *Lab
	Cancel context.CancelCauseFunc
	Done   chan struct{}
	Lease  *holdfast.Lease
	Err    error
	At     time.Time // when it returned
}

// Wait begins to wait for a mutex.
func (l *Lab) Wait(c *holdfast.Client, name string, opts ...holdfast.LockOption) *Pending {
	l.T.Helper()
	return l.Ask(c.Mutex(name, opts...).Lease)
}

// Ask is [Lab.Wait] for any form of Lease of any lock.
func (l *Lab) Ask(lease Leasing) *Pending {
	l.T.Helper()
	ctx, cancel := context.WithCancelCause(l.T.Context())
	l.T.Cleanup(func() { cancel(nil) })
	p := &Pending{l: l, Cancel: cancel, Done: make(chan struct{})}
	go func() {
		defer close(p.Done)
		p.Lease, p.Err = lease(ctx)
		p.At = time.Now()
	}()
	return p
}

// Returned waits until the call has returned.
func (p *Pending) Returned(limit time.Duration) {
	p.l.T.Helper()
	select {
	case <-p.Done:
	case <-time.After(limit):
		p.l.T.Fatalf("Lease has not returned after %v\n%s", limit, Stacks())
	}
}

// Granted waits for the lease, which must be good.
func (p *Pending) Granted(limit time.Duration) *holdfast.Lease {
	p.l.T.Helper()
	p.Returned(limit)
	require.NoError(p.l.T, p.Err)
	require.NoError(p.l.T, p.Lease.Err())
	return p.Lease
}

// Failed waits for the error.
func (p *Pending) Failed(limit time.Duration) error {
	p.l.T.Helper()
	p.Returned(limit)
	require.Error(p.l.T, p.Err)
	require.Nil(p.l.T, p.Lease)
	RequireNoToken(p.l.T, p.Err.Error())
	return p.Err
}

// Queue begins to wait n times, one behind the other.
func (l *Lab) Queue(n int, lease Leasing) []*Pending {
	l.T.Helper()
	var ws []*Pending
	for range n {
		ws = append(ws, l.Ask(lease))
		l.Settle()
	}
	return ws
}

// Settle lets a millisecond of virtual time pass, in which all that is under way happens.
func (l *Lab) Settle() {
	require.True(l.T, l.Virtual, "only in a bubble")
	time.Sleep(time.Millisecond)
}

// Promptly returns what f returns, and fails the test if f hangs.
func Promptly[T any](t *testing.T, limit time.Duration, f func() T) T {
	t.Helper()
	done := make(chan T, 1)
	go func() { done <- f() }()
	select {
	case v := <-done:
		return v
	case <-time.After(limit):
		t.Fatalf("has not returned after %v\n%s", limit, Stacks())
		panic("unreachable")
	}
}

// Stacks are those of the library.
func Stacks() string {
	b := make([]byte, 1<<22)
	all := strings.Split(string(b[:runtime.Stack(b, true)]), "\n\n")
	return strings.Join(slices.DeleteFunc(all, func(stack string) bool {
		return !strings.Contains(stack, "github.com/holdfast-go/holdfast.") && !strings.Contains(stack, "holdfast/internal/token.")
	}), "\n\n")
}

// Crowd are waiters of several clients that each take the lock for a moment.
type Crowd struct {
	*Lab
	*referee.Referee
	served sync.WaitGroup
}

// Crowd has that many waiters of each client begin to wait.
func (l *Lab) Crowd(name string, each int, clients ...*holdfast.Client) *Crowd {
	l.T.Helper()
	c := &Crowd{Lab: l, Referee: &referee.Referee{Limit: 1}}
	for _, client := range clients {
		for range each {
			c.served.Go(func() {
				lease, err := client.Mutex(name).Lease(l.T.Context())
				if !assert.NoError(l.T, err) {
					return
				}
				c.EnterWith(1, lease.Fence())
				c.Leave(1)
				assert.NoError(l.T, lease.Release(l.T.Context()))
			})
		}
	}
	return c
}

// RequireServed waits until all have had the lock, one after the other.
func (c *Crowd) RequireServed(limit time.Duration) {
	c.T.Helper()
	Promptly(c.T, limit, func() error { c.served.Wait(); return nil })
	c.RequireFair(c.T, c.Entries())
}

// CrowdOf is so many readers that no test has them.
const CrowdOf = 10000

// Hammer goes in and out n times.
func Hammer(r *referee.Referee, lock sync.Locker, weight int64, n int) {
	for range n {
		lock.Lock()
		r.Enter(weight)
		runtime.Gosched()
		r.Leave(weight)
		lock.Unlock()
	}
}

// Panics returns what f panics with, as text.
func Panics(t *testing.T, f func()) string {
	t.Helper()
	v := Promptly(t, 2*Soon, func() (v any) {
		defer func() { v = recover() }()
		f()
		return nil
	})
	require.NotNil(t, v, "no panic")
	text := fmt.Sprint(v)
	assert.Contains(t, text, "holdfast: ")
	RequireNoToken(t, text)
	return text
}

// ErrorsOf calls all methods of a mutex that can return an error.
func ErrorsOf(t *testing.T, mu *holdfast.Mutex) map[string]error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*Soon)
	defer cancel()
	errs := map[string]error{}
	for what, call := range map[string]func() error{
		"Lease":    func() error { _, err := mu.Lease(ctx); return err },
		"TryLease": func() error { _, err := mu.TryLease(ctx); return err },
		"Do": func() error {
			return mu.Do(ctx, func(context.Context) error { t.Error("called"); return nil })
		},
		"Inspect":     func() error { _, err := mu.Inspect(ctx); return err },
		"ForceUnlock": func() error { return mu.ForceUnlock(ctx) },
	} {
		errs[what] = Promptly(t, Soon, call)
		if errs[what] != nil {
			RequireNoToken(t, errs[what].Error())
		}
	}
	return errs
}

// UntilHeard returns when the only waiter in this process has heard that it waits, and
// has nothing to do.
func (l *Lab) UntilHeard() {
	l.T.Helper()
	l.Until("it has heard that it waits", func() bool {
		idle := 0
		for stack := range strings.SplitSeq(Stacks(), "\n\n") {
			state, _, _ := strings.Cut(stack, "\n")
			switch {
			case strings.Contains(stack, "(*asker).send("):
				return false
			case strings.Contains(stack, "(*asker).event(") && strings.Contains(state, "[select"):
				idle++
			}
		}
		return idle == 1
	})
}
