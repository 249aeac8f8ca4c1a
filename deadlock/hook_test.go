package deadlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/deadlock"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// around is a hook that does something with acquisitions.
type around struct {
	holdfast.HookBase
	do func(next holdfast.AcquireFunc) holdfast.AcquireFunc
}

func (a around) AcquireHook(next holdfast.AcquireFunc) holdfast.AcquireFunc { return a.do(next) }

// A hook around it tries again with the same operation, which must not have what ends another wait.
func TestOperationThatIsTriedAgainEndsByItsOwnCircle(t *testing.T) {
	bubble(t, func(tn *town) {
		c := holdfast.Open(tn.store)
		tn.Cleanup(func() { _ = c.Close() })
		var ends []chan error
		c.AddHook(around{do: func(next holdfast.AcquireFunc) holdfast.AcquireFunc {
			return func(ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
				l, err := next(ctx, op)
				assert.Nil(t, op.Interrupt)
				if err == nil && op.Name == "twice" {
					require.NoError(t, l.Release(ctx))
					l, err = next(ctx, op)
				}
				return l, err
			}
		}})
		c.AddHook(deadlock.New(c, deadlock.WithPause(pause)))
		c.AddHook(around{do: func(next holdfast.AcquireFunc) holdfast.AcquireFunc {
			return func(ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
				ends = append(ends, op.Interrupt)
				return next(ctx, op)
			}
		}})
		require.NoError(t, c.Mutex("outer").Do(tn.Context(), func(ctx context.Context) error {
			return c.Mutex("twice").Do(ctx, func(context.Context) error { return nil })
		}))
		require.Len(t, ends, 3)
		assert.Nil(t, ends[0], "it holds nothing")
		assert.NotNil(t, ends[2])
	})
}

// A hook within panics in the middle of a wait: nothing is told of the wait any more.
func TestWaitThatPanicsIsOver(t *testing.T) {
	bubble(t, func(tn *town) {
		c := tn.process()
		c.AddHook(around{do: func(next holdfast.AcquireFunc) holdfast.AcquireFunc {
			return func(ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
				if op.Name == "b" {
					time.Sleep(2 * pause)
					panic("hook")
				}
				return next(ctx, op)
			}
		}})
		require.NoError(t, c.Mutex("a").Do(tn.Context(), func(ctx context.Context) error {
			assert.Panics(t, func() { _, _ = c.Mutex("b").Lease(ctx) })
			time.Sleep(pause)
			assert.Empty(t, deadlock.Waits(tn.look("a")))
			return nil
		}))
	})
}

// secretive shows nobody one of its locks.
type secretive struct{ *memdriver.Driver }

func (s secretive) Inspect(ctx context.Context, k driver.Kind, name string) (driver.Info, error) {
	if name == "secret" {
		return driver.Info{}, driver.ErrDenied
	}
	return s.Driver.Inspect(ctx, k, name)
}

// One member also waits for such a lock, by another goroutine. Such is a lock on a node that has gone, too.
func TestLockThatCannotBeReadHidesNoOtherCircle(t *testing.T) {
	bubble(t, func(tn *town) {
		tn.store = secretive{memdriver.New()}
		a, b := tn.process(), tn.process()
		_, err := b.Mutex("secret").Lease(tn.Context())
		require.NoError(t, err)
		both := func(ctx context.Context, within func(context.Context) error) error {
			few, cancel := context.WithCancel(ctx)
			defer cancel()
			go func() { _ = a.Mutex("secret").Do(few, within) }()
			time.Sleep(time.Millisecond)
			return a.Mutex("b").Do(ctx, within)
		}
		errs, _ := circle(tn, []take{a.Mutex("a").Do, b.Mutex("b").Do}, []take{both, b.Mutex("a").Do}, 2*time.Millisecond)
		assert.NoError(t, errs[0])
		assert.ErrorIs(t, errs[1], holdfast.ErrDeadlock)
		assert.Contains(t, tn.said(), `msg="holdfast: a lock cannot be read, so deadlocks are not found" kind=mutex lock=secret`)
	})
}
