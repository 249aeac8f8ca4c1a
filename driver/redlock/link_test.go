package redlock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/driver/redlock"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// link is the way from one client to one node.
type link struct {
	driver.Driver
	cut                   atomic.Bool // nothing can be dialed
	keepsAsks, keepsGifts atomic.Bool // asks and releases stay on their way, until deliver
	delivers              atomic.Bool // a renewal is followed by deliver, and answered then
	raises                atomic.Int32
	time                  atomic.Int64         // that the last ask or release had for its answer
	latency               func() time.Duration // of each way; nil for none

	mu   sync.Mutex
	kept []func()
	news time.Time // when the last push arrives
}

var (
	errDial = fmt.Errorf("link: no connection: %w: %w", driver.ErrTransient, driver.ErrNotExecuted)
	errLost = fmt.Errorf("link: no answer: %w", driver.ErrTransient)
)

func (l *link) Unwrap() driver.Driver { return l.Driver }

func (l *link) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if l.latency != nil && r.Wake != nil {
		pushed, wake := *r, r.Wake
		pushed.Wake = func(g driver.Grant) { l.push(func() { wake(g) }) }
		r = &pushed
	}
	return carry(ctx, l, &l.keepsAsks, func(ctx context.Context) (driver.Grant, error) { return l.Driver.Acquire(ctx, r) })
}

// push has news arrive after a while, and in their order, as on a connection.
func (l *link) push(arrive func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := time.Now().Add(l.latency()); at.After(l.news) {
		l.news = at
	} else {
		l.news = l.news.Add(time.Nanosecond)
	}
	time.AfterFunc(time.Until(l.news), arrive)
}

// travels carries a call to the node.
func (l *link) travels() (back func()) {
	way := func() {
		if l.latency != nil {
			time.Sleep(l.latency())
		}
	}
	way()
	return way
}

func (l *link) Release(ctx context.Context, lease driver.Lease) error {
	_, err := carry(ctx, l, &l.keepsGifts, func(ctx context.Context) (any, error) { return nil, l.Driver.Release(ctx, lease) })
	return err
}

func (l *link) RaiseFence(ctx context.Context, lease driver.Lease, fence, fences int64) (int64, error) {
	l.raises.Add(1)
	defer l.travels()()
	r, _ := driver.As[redlock.FenceRaiser](l.Driver)
	return r.RaiseFence(ctx, lease, fence, fences)
}

func (l *link) Renew(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	if !l.cut.Load() {
		defer l.travels()()
		errs = l.Driver.Renew(ctx, leases)
		if l.delivers.Load() {
			l.deliver()
			synctest.Wait()
		}
		return errs
	}
	for i := range errs {
		errs[i] = errDial
	}
	return errs
}

func (l *link) Downgrade(ctx context.Context, lease driver.Lease, weight int64) error {
	if l.cut.Load() {
		return errDial
	}
	d, _ := driver.As[driver.Downgrader](l.Driver)
	return d.Downgrade(ctx, lease, weight)
}

// carry has a request carried out at once, later, or not at all.
func carry[T any](ctx context.Context, l *link, keeps *atomic.Bool, do func(context.Context) (T, error)) (none T, _ error) {
	if l.cut.Load() {
		return none, errDial
	}
	if until, ok := ctx.Deadline(); ok {
		l.time.Store(int64(time.Until(until)))
	}
	if !keeps.Load() {
		defer l.travels()()
		return do(ctx)
	}
	type answer struct {
		of  T
		err error
	}
	answers := make(chan answer, 1)
	l.mu.Lock()
	l.kept = append(l.kept, func() {
		of, err := do(context.WithoutCancel(ctx))
		answers <- answer{of, err}
	})
	l.mu.Unlock()
	select {
	case a := <-answers:
		return a.of, a.err
	case <-ctx.Done():
		return none, errLost
	}
}

// deliver has the node carry out what was kept, and returns how much that was.
func (l *link) deliver() int {
	l.mu.Lock()
	kept := l.kept
	l.kept = nil
	l.mu.Unlock()
	for _, do := range kept {
		do()
	}
	return len(kept)
}

// Close leaves the store open: it is of several clients.
func (l *link) Close() error { return nil }

// onLinks runs body in virtual time, once on each kind of store with queues. dial returns the
// links of another client to three nodes.
func onLinks(t *testing.T, body func(t *testing.T, stores []driver.Driver, dial func() ([]*link, driver.Driver))) {
	play := func(t *testing.T, stores []driver.Driver) {
		t.Cleanup(func() {
			for _, s := range stores {
				assert.NoError(t, s.Close())
			}
		})
		body(t, stores, func() ([]*link, driver.Driver) {
			var links []*link
			var nodes []driver.Driver
			for _, s := range stores {
				l := &link{Driver: s}
				links, nodes = append(links, l), append(nodes, l)
			}
			d := redlock.New(nodes, redlock.WithDelayedRestart(0))
			t.Cleanup(func() { assert.NoError(t, d.Close()) })
			return links, d
		})
	}
	t.Run("memdriver", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			play(t, []driver.Driver{memdriver.New(), memdriver.New(), memdriver.New()})
		})
	})
	t.Run("miniredis", func(t *testing.T) {
		redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
			var stores []driver.Driver
			for _, p := range []string{"a:", "b:", "c:"} {
				stores = append(stores, native(s.Client(t), s.Prefix()+p))
			}
			play(t, stores)
		})
	})
}

// outset is where a split vote begins: another has the first two nodes, and the token, which
// waits, has just been given the vote of the third.
type outset struct {
	*testing.T
	d      driver.Driver
	stores []driver.Driver
	r      *driver.Request
	won    atomic.Bool
}

func newOutset(t *testing.T, stores []driver.Driver, d driver.Driver) *outset {
	o := &outset{T: t, d: d, stores: stores, r: request("waiter")}
	o.r.Kind, o.r.Wait, o.r.Wake = driver.RWMutex, true, func(g driver.Grant) {
		if g.Status == driver.Granted {
			o.won.Store(true)
		}
	}
	for _, s := range stores[:2] {
		o.take(s, "other")
	}
	g, err := d.Acquire(t.Context(), o.r)
	require.NoError(t, err)
	require.Equal(t, driver.Queued, g.Status)
	return o
}

// take takes the lock on one node.
func (o *outset) take(store driver.Driver, token string) {
	o.Helper()
	r := request(token)
	r.Kind = driver.RWMutex
	g, err := store.Acquire(o.Context(), r)
	require.NoError(o, err)
	require.Equal(o, driver.Granted, g.Status)
}

func (o *outset) lease(token string) driver.Lease {
	l := lease(token)
	l.Kind = driver.RWMutex
	return l
}

// wins has the other release, so that the token wins without the third node.
func (o *outset) wins() {
	o.Helper()
	require.False(o, o.won.Load())
	for _, s := range o.stores[:2] {
		require.NoError(o, s.Release(o.Context(), o.lease("other")))
	}
	time.Sleep(5 * time.Millisecond)
	require.True(o, o.won.Load())
}
