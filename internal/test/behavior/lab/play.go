package lab

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Play is a store whose answers the test gives one by one, in virtual time: it shows
// interleavings that a real store has once in a million.
type Play struct {
	Asks     chan *Ask
	RenewErr error // what each renewal is answered

	mu       sync.Mutex
	calls    []string
	released []driver.Lease
}

// NewPlay returns a store that answers nothing yet.
func NewPlay() *Play { return &Play{Asks: make(chan *Ask, 16)} }

// Ask is one that waits for its answer.
type Ask struct {
	*driver.Request
	Answer chan Result
}

// Result answers an ask.
type Result struct {
	driver.Grant
	Err error
}

func (p *Play) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, what)
}

func (p *Play) Acquire(_ context.Context, r *driver.Request) (driver.Grant, error) {
	p.note("acquire")
	a := &Ask{r, make(chan Result, 1)}
	p.Asks <- a
	g := <-a.Answer
	return g.Grant, g.Err
}

func (p *Play) Renew(_ context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	for i := range errs {
		errs[i] = p.RenewErr
	}
	return errs
}

func (p *Play) Release(_ context.Context, l driver.Lease) error {
	p.note("release")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = append(p.released, l)
	return nil
}

// Released returns the leases that were released so far.
func (p *Play) Released() []driver.Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.released)
}

// Calls returns the calls of the store so far, but for renewals, in their order.
func (p *Play) Calls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

func (p *Play) Close() error { p.note("close"); return nil }

// Queued answers that the token has its place in the queue.
func (a *Ask) Queued() { a.Answer <- Result{driver.Grant{Status: driver.Queued}, nil} }

// Granted answers with a lease that rests on this ask.
func (a *Ask) Granted(fence int64) {
	a.Answer <- Result{driver.Grant{Status: driver.Granted, Ask: a.Ask, Fence: fence}, nil}
}

// PlayTTL is the TTL of the client in [Stage].
const PlayTTL = 9 * time.Second

// Stage runs body in virtual time with a client of a play.
func Stage(t *testing.T, body func(t *testing.T, p *Play, c *holdfast.Client)) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPlay()
		c := holdfast.Open(p, holdfast.WithTTL(PlayTTL))
		body(t, p, c)
		require.NoError(t, c.Close())
	})
}

// Waiter acquires in the background.
type Waiter struct {
	Lease *holdfast.Lease
	Err   error
	Done  chan struct{}
}

// Wait begins to wait for the mutex.
func Wait(ctx context.Context, m *holdfast.Mutex) *Waiter {
	w := &Waiter{Done: make(chan struct{})}
	go func() {
		defer close(w.Done)
		w.Lease, w.Err = m.Lease(ctx)
	}()
	return w
}

// Returned reports whether the waiter has the lock or an error, when all is quiet in the bubble.
func (w *Waiter) Returned() bool {
	synctest.Wait()
	select {
	case <-w.Done:
		return true
	default:
		return false
	}
}
