package holdfast_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// diary is a hook that writes down when it was called.
type diary struct {
	name string
	mu   *sync.Mutex
	log  *[]string
}

func (d diary) write(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*d.log = append(*d.log, d.name+" "+what)
}

func (d diary) AcquireHook(next holdfast.AcquireFunc) holdfast.AcquireFunc {
	return func(ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
		d.write("acquire " + string(op.Kind) + " " + op.Name)
		l, err := next(ctx, op)
		d.write("acquired")
		return l, err
	}
}

func (d diary) ReleaseHook(next holdfast.ReleaseFunc) holdfast.ReleaseFunc {
	return func(ctx context.Context, op *holdfast.ReleaseOp) error {
		d.write("release " + op.Lease.Name())
		err := next(ctx, op)
		d.write("released")
		return err
	}
}

func (d diary) RenewHook(next holdfast.RenewFunc) holdfast.RenewFunc {
	return func(ctx context.Context, op *holdfast.RenewOp) []error {
		d.write("renew " + op.Leases[0].Name())
		errs := next(ctx, op)
		d.write("renewed")
		return errs
	}
}

func keepDiaries(c *holdfast.Client, names ...string) (read func() []string) {
	var mu sync.Mutex
	var log []string
	for _, name := range names {
		c.AddHook(diary{name, &mu, &log})
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		all := log
		log = nil
		return all
	}
}

func TestHookThatWasAddedFirstIsOutermost(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		c := newLab(t, s).near()
		c.AddHook(holdfast.HookBase{}) // not interested
		read := keepDiaries(c, "a", "b")
		ctx := t.Context()

		l, err := c.Mutex("x").Lease(ctx)
		require.NoError(t, err)
		assert.Equal(t, []string{"a acquire mutex x", "b acquire mutex x", "b acquired", "a acquired"}, read())
		require.NoError(t, l.Renew(ctx))
		assert.Equal(t, []string{"a renew x", "b renew x", "b renewed", "a renewed"}, read())
		require.NoError(t, l.Release(ctx))
		assert.Equal(t, []string{"a release x", "b release x", "b released", "a released"}, read())
	})
}

// Every way to acquire and release goes through the hooks, once.
func TestHooksSeeAllForms(t *testing.T) {
	s := redistest.Shared(t)
	c := newLab(t, s).near()
	read := keepDiaries(c, "a")
	rw, sem := c.RWMutex("rw"), c.Semaphore("sem", 3)
	for name, form := range map[string]func(){
		"mutex m": func() { c.Mutex("m").Lock(); c.Mutex("m").Unlock() },
		"mutex n": func() { assert.True(t, c.Mutex("n").TryLock()); c.Mutex("n").Unlock() },
		"mutex d": func() {
			assert.NoError(t, c.Mutex("d").Do(t.Context(), func(context.Context) error { return nil }))
		},
		"rwmutex rw":    func() { rw.RLock(); rw.RUnlock() },
		"semaphore sem": func() { assert.NoError(t, sem.Acquire(t.Context(), 2)); sem.Release(2) },
	} {
		form()
		got := read()
		require.Len(t, got, 4, name)
		assert.Equal(t, "a acquire "+name, got[0])
		assert.Equal(t, "a released", got[3])
	}
	require.NoError(t, sem.Acquire(t.Context(), 3))
	read()
	sem.Release(1) // a part is a release, too
	assert.Equal(t, []string{"a release sem", "a released"}, read())
	sem.Release(2)
}

// meddler does what hooks may do.
type meddler struct {
	acquire func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error)
	release func(next holdfast.ReleaseFunc, ctx context.Context, op *holdfast.ReleaseOp) error
	renew   func(next holdfast.RenewFunc, ctx context.Context, op *holdfast.RenewOp) []error
}

func (m meddler) AcquireHook(next holdfast.AcquireFunc) holdfast.AcquireFunc {
	if m.acquire == nil {
		return nil
	}
	return func(ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
		return m.acquire(next, ctx, op)
	}
}

func (m meddler) ReleaseHook(next holdfast.ReleaseFunc) holdfast.ReleaseFunc {
	if m.release == nil {
		return nil
	}
	return func(ctx context.Context, op *holdfast.ReleaseOp) error { return m.release(next, ctx, op) }
}

func (m meddler) RenewHook(next holdfast.RenewFunc) holdfast.RenewFunc {
	if m.renew == nil {
		return nil
	}
	return func(ctx context.Context, op *holdfast.RenewOp) []error { return m.renew(next, ctx, op) }
}

func TestHookCanRefuseAndTryAgain(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.near()
		l.ready(c)
		refusal, refuse, calls := errors.New("not today"), true, 0
		c.AddHook(meddler{acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			if refuse {
				return nil, refusal
			}
			calls++
			if first, err := next(ctx, op); calls > 1 || err != nil {
				return first, err
			} else if err := first.Release(ctx); err != nil {
				return nil, err
			}
			return next(ctx, op)
		}})
		mu := c.Mutex("x")
		_, err := mu.Lease(t.Context())
		require.ErrorIs(t, err, refusal)
		require.False(t, mu.TryLock())
		l.free(l.near(), "x") // and the doorway too
		refuse = false
		mu.Lock() // takes it twice
		assert.Len(t, l.inspect("x").Holders, 1)
		mu.Unlock()
		l.free(l.near(), "x")
	})
}

type contextKey struct{}

func TestHookCanSetTheContextOfTheLease(t *testing.T) {
	s := redistest.Shared(t)
	c := newLab(t, s).near()
	var fence int64
	c.AddHook(meddler{acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
		op.Holding = func(ctx context.Context, f int64) context.Context {
			fence = f
			return context.WithValue(ctx, contextKey{}, "held")
		}
		return next(context.WithValue(ctx, contextKey{}, "asked"), op)
	}})
	l, err := c.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "held", l.Context().Value(contextKey{}))
	assert.Equal(t, l.Fence(), fence)
	require.NoError(t, l.Release(t.Context()))
}
