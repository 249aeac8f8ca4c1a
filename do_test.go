package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// The context of Do is made when somebody looks, and tells the same in whatever way they do.
func TestContextOfDoEndsHoweverItIsLookedAt(t *testing.T) {
	looks := map[string]func(context.Context){
		"Done": func(ctx context.Context) { <-ctx.Done() },
		"Err": func(ctx context.Context) {
			for ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
		},
		"Cause": func(ctx context.Context) {
			for context.Cause(ctx) == nil {
				time.Sleep(time.Millisecond)
			}
		},
		"a child": func(ctx context.Context) {
			child, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			<-child.Done()
		},
		"a function": func(ctx context.Context) {
			called := make(chan struct{})
			context.AfterFunc(ctx, func() { close(called) })
			<-called
		},
	}
	why := errors.New("why")
	ends := map[string]struct {
		cause error
		end   func(mu *holdfast.Mutex, cancel context.CancelCauseFunc) error
	}{
		"the lock is taken away": {holdfast.ErrLost, func(mu *holdfast.Mutex, _ context.CancelCauseFunc) error {
			return mu.ForceUnlock(context.Background())
		}},
		"the caller's ends": {why, func(_ *holdfast.Mutex, cancel context.CancelCauseFunc) error {
			cancel(why)
			return nil
		}},
	}
	type key struct{}
	for name, look := range looks {
		for reason, e := range ends {
			for before, moment := range map[string]time.Duration{"before": 5 * time.Millisecond, "after": 0} {
				t.Run(name+" "+before+" "+reason, func(t *testing.T) {
					locks := holdfast.Open(memdriver.New())
					defer locks.Close()
					mu := locks.Mutex("x")
					outer, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
					defer cancel(nil)
					err := mu.Do(outer, func(ctx context.Context) error {
						require.Equal(t, "value", ctx.Value(key{}))
						ended := make(chan error, 1)
						end := func() { ended <- e.end(mu, cancel) }
						if moment > 0 {
							time.AfterFunc(moment, end)
						} else {
							end()
						}
						look(ctx)
						require.NoError(t, <-ended)
						require.ErrorIs(t, ctx.Err(), context.Canceled)
						require.ErrorIs(t, context.Cause(ctx), e.cause)
						<-ctx.Done()
						require.Equal(t, "value", ctx.Value(key{}))
						return context.Cause(ctx)
					})
					require.ErrorIs(t, err, e.cause)
				})
			}
		}
	}
}

// A context that f has let out ends with Do.
func TestContextOfDoEndsWithIt(t *testing.T) {
	locks := holdfast.Open(memdriver.New())
	defer locks.Close()
	var seen, unseen context.Context
	for ctx, look := range map[*context.Context]bool{&seen: true, &unseen: false} {
		require.NoError(t, locks.Mutex("x").Do(t.Context(), func(within context.Context) error {
			if *ctx = within; look {
				require.NotNil(t, within.Done())
			}
			require.NoError(t, within.Err())
			return nil
		}))
		require.ErrorIs(t, (*ctx).Err(), context.Canceled)
		<-(*ctx).Done()
		require.Equal(t, context.Canceled, context.Cause(*ctx))
	}
}

func TestTryDoRunsIfFreeElseSkips(t *testing.T) {
	c := holdfast.Open(memdriver.New())
	defer c.Close()
	failed := errors.New("mine")
	skipped := func(context.Context) error { t.Error("it ran"); return nil }
	for kind, try := range map[string]func(context.Context, func(context.Context) error) error{
		"mutex":   c.Mutex("x").TryDo,
		"rwmutex": c.RWMutex("x").TryDo,
		"semaphore": func(ctx context.Context, f func(context.Context) error) error {
			return c.Semaphore("x", 1).TryDo(ctx, 1, f)
		},
	} {
		t.Run(kind, func(t *testing.T) {
			ran := false
			require.Equal(t, failed, try(t.Context(), func(ctx context.Context) error {
				ran = true
				require.ErrorIs(t, try(context.Background(), skipped), holdfast.ErrLocked)
				return failed
			}))
			require.True(t, ran)
		})
	}
	require.NoError(t, c.RWMutex("x").TryRDo(t.Context(), func(context.Context) error {
		require.ErrorIs(t, c.RWMutex("x").TryDo(context.Background(), skipped), holdfast.ErrLocked)
		return c.RWMutex("x").TryRDo(context.Background(), func(context.Context) error { return nil })
	}), "readers come in beside each other")
}

func TestOpenWithPrefixPanics(t *testing.T) {
	require.PanicsWithValue(t, "holdfast: Open with WithPrefix: give the prefix to the driver", func() {
		holdfast.Open(memdriver.New(), holdfast.WithPrefix("shop"))
	})
}

// cut is a store that no renewal reaches.
type cut struct{ *memdriver.Driver }

func (cut) Renew(context.Context, []driver.Lease) []error {
	return []error{fmt.Errorf("%w: %w", driver.ErrTransient, io.EOF)}
}

// The work may fail for the reason for which the lock was lost.
func TestDoTellsOfALossThoughItsFunctionFailsForTheSameReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := holdfast.Open(cut{memdriver.New()})
		err := c.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			return io.EOF
		})
		require.ErrorIs(t, err, holdfast.ErrLost)
		require.ErrorIs(t, err, io.EOF)
		require.NoError(t, c.Close())
	})
}

// mum is a store that tells nobody of anything.
type mum struct{ *memdriver.Driver }

func (m mum) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	quiet := *r
	quiet.Wake = nil
	return m.Driver.Acquire(ctx, &quiet)
}

// Unlock returns nothing. So a loss that it finds is in the log, like any other.
func TestLossThatUnlockFindsIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(lab.Log)
		store := memdriver.New()
		here := holdfast.Open(mum{store}, holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		there := holdfast.Open(store)
		for what, mu := range map[string]sync.Locker{"x": here.Mutex("x"), "y": here.RWMutex("y"), "z": here.RWMutex("z").RLocker()} {
			mu.Lock()
			if what == "x" {
				require.NoError(t, there.Mutex(what).ForceUnlock(t.Context()))
			} else {
				require.NoError(t, there.RWMutex(what).ForceUnlock(t.Context()))
			}
			mu.Unlock()
			time.Sleep(time.Second)
			require.Contains(t, log.String(), "lock lost")
			require.Contains(t, log.String(), "lock="+what)
		}
		permits := here.Semaphore("s", 1)
		require.NoError(t, permits.Acquire(t.Context(), 1))
		require.NoError(t, there.Semaphore("s", 1).ForceUnlock(t.Context()))
		permits.Release(1)
		time.Sleep(time.Second)
		require.Contains(t, log.String(), "lock=s")
		require.NoError(t, errors.Join(here.Close(), there.Close()))
	})
}
