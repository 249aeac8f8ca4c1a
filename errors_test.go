package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

func TestErrorTypeNamesTheCause(t *testing.T) {
	for want, err := range map[string]error{
		"locked":       holdfast.ErrLocked,
		"not_held":     holdfast.ErrNotHeld,
		"closed":       holdfast.ErrClosed,
		"deadlock":     holdfast.ErrDeadlock,
		"invalid_name": holdfast.ErrInvalidName,
		"timeout":      errors.Join(context.DeadlineExceeded, holdfast.ErrLocked),
		"unavailable":  errors.Join(context.DeadlineExceeded, driver.ErrTransient),
		"denied":       errors.Join(driver.ErrDenied, driver.ErrNotExecuted),
		"canceled":     errors.Join(context.Canceled, driver.ErrTransient),
		"lock_lost":    errors.Join(holdfast.ErrLost, context.DeadlineExceeded),
		"store":        errors.New("NOPERM"),
	} {
		require.Equal(t, want, (&holdfast.LockError{Err: err}).ErrorType())
	}
}

func TestErrorSaysOfWhichKindTheLockIs(t *testing.T) {
	c := holdfast.Open(memdriver.New())
	defer c.Close()
	l, err := c.RWMutex("x").RLease(t.Context())
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context()))
	_, locked := c.Semaphore("x", 1).TryLease(t.Context(), 2)
	_, ended := c.Mutex("").Inspect(t.Context())
	_, attached := c.Attach(t.Context(), "mutex:t:x")
	_, nothing := c.Attach(t.Context(), "x")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, stolen := c.Mutex("x").Steal(over)
	c.AddHook(holdfast.HookBase{})
	_, hooked := c.Mutex("x").Steal(over)
	require.Equal(t, stolen, hooked)
	require.ErrorContains(t, hooked, "steal mutex")
	for err, want := range map[error]driver.Kind{
		l.Release(t.Context()): driver.RWMutex, locked: driver.Semaphore, ended: driver.Mutex, attached: driver.Mutex, nothing: "",
	} {
		e, is := errors.AsType[*holdfast.LockError](err)
		require.True(t, is, err)
		require.Equal(t, want, e.Kind, err)
	}
}

// It also holds what the tests take for a token against one.
func TestTokensAreNeverShown(t *testing.T) {
	t.Parallel()
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		ttl := l.Time(300 * time.Millisecond)
		c := l.Near(holdfast.WithTTL(ttl))
		lease := l.Lease(c, "x")
		for range 3 { // of 1,800 clients one has tokens without a letter, which look like fences
			if !lab.ShowsToken(lease.Token()) {
				require.NoError(t, lease.Release(t.Context()))
				c = l.Near(holdfast.WithTTL(ttl))
				lease = l.Lease(c, "x")
			}
		}
		token := lease.Token()
		require.True(t, lab.ShowsToken(token), "the tests know tokens no more")
		assert.Contains(t, token, "mutex")
		assert.Contains(t, token, "x")

		_, busy := c.Mutex("x").TryLease(t.Context())
		require.ErrorIs(t, busy, holdfast.ErrLocked)
		_, deadlock := c.Mutex("x").Lease(lease.Context())
		require.ErrorIs(t, deadlock, holdfast.ErrDeadlock)
		require.NoError(t, l.Direct.Del(t.Context(), l.Key("x")).Err())
		l.Loses(lease, ttl+l.Slack)
		texts := []string{
			busy.Error(), deadlock.Error(), context.Cause(lease.Context()).Error(), lease.Err().Error(),
			lease.Release(t.Context()).Error(), lease.Renew(t.Context()).Error(), l.Log.String(),
			fmt.Sprintf("%+v", l.Inspect("x")),
		}
		l.Until("the loss is in the log", func() bool { return strings.Contains(l.Log.String(), "lock=x") })
		for _, text := range append(texts, l.Log.String()) {
			for _, part := range strings.FieldsFunc(token, func(r rune) bool { return r == ':' || r == '-' }) {
				if len(part) >= 8 {
					assert.NotContains(t, text, part)
				}
			}
		}
	})
}

func TestLockedSaysWhoHoldsTheLockAndForHowLong(t *testing.T) {
	t.Parallel()
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b, mates := l.Near(holdfast.WithHolder("job 7")), l.Near(), l.Mates(holdfast.WithHolder("mates"))
		began := time.Now()
		lease := l.Lease(a, "x")
		granted := time.Now()
		require.Equal(t, "job 7", l.Inspect("x").Holders[0].Holder)
		saysWho := func(err error, holder string, least time.Duration) {
			t.Helper()
			require.ErrorIs(t, err, holdfast.ErrLocked)
			var failed *holdfast.LockError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, holder, failed.Holder)
			assert.LessOrEqual(t, failed.HeldFor, time.Since(began)+time.Millisecond)
			if l.Virtual { // elsewhere it is too little by as much as the answer was read late
				assert.GreaterOrEqual(t, failed.HeldFor, least-2*time.Millisecond)
			}
			assert.Contains(t, err.Error(), fmt.Sprintf("held by %q for ", holder))
		}
		time.Sleep(20 * time.Millisecond)
		least := time.Since(granted)
		_, err := b.Mutex("x").TryLease(t.Context())
		saysWho(err, "job 7", least)

		// Nobody but the one at the store hears it from the store.
		first := l.Wait(mates, "x")
		l.UntilQueue("x", 1)
		wait := l.Time(100 * time.Millisecond)
		_, err = mates.Mutex("x", holdfast.WithWait(wait)).Lease(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		least += wait
		saysWho(err, "job 7", least)
		_, err = mates.Mutex("x").TryLease(t.Context())
		saysWho(err, "job 7", least)
		first.Cancel(nil)
		saysWho(first.Failed(lab.Soon), "job 7", least)

		// Nor does the store know who of one client it is.
		require.NoError(t, lease.Release(t.Context()))
		mine := l.Lease(mates, "x")
		_, err = mates.Mutex("x").TryLease(t.Context())
		saysWho(err, "mates", 0)
		require.NoError(t, mine.Release(t.Context()))
	})
}

// A reader is not in the way of another, nor a holder in that of permits that are free.
func TestLockedByThoseWhoWaitNamesNoHolder(t *testing.T) {
	t.Parallel()
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Near(holdfast.WithHolder("holder")), l.Near()
		reader, err := a.RWMutex("x").RLease(t.Context())
		require.NoError(t, err)
		permit, err := a.Semaphore("x", 2).Lease(t.Context(), 1)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() { _, _ = b.RWMutex("x").Lease(ctx) })
		waiting.Go(func() { _, _ = b.Semaphore("x", 2).Lease(ctx, 2) })
		l.Until("both wait", func() bool {
			rw, _ := a.RWMutex("x").Inspect(t.Context())
			s, _ := a.Semaphore("x", 2).Inspect(t.Context())
			return len(rw.Queue) == 1 && len(s.Queue) == 1
		})
		for who, c := range map[string]*holdfast.Client{"the holder's": a, "the waiter's": b, "another": l.Near()} {
			_, ofReader := c.RWMutex("x").TryRLease(t.Context())
			_, ofPermit := c.Semaphore("x", 2).TryLease(t.Context(), 1)
			_, late := c.RWMutex("x", holdfast.WithWait(l.Time(100*time.Millisecond))).RLease(t.Context())
			require.ErrorIs(t, late, context.DeadlineExceeded, who)
			for _, err := range []error{ofReader, ofPermit, late} {
				require.ErrorIs(t, err, holdfast.ErrLocked, who)
				var failed *holdfast.LockError
				require.ErrorAs(t, err, &failed)
				assert.Empty(t, failed.Holder, who)
				assert.Contains(t, err.Error(), "others wait for it, and come first", who)
			}
		}
		cancel()
		waiting.Wait()
		require.NoError(t, reader.Release(t.Context()))
		require.NoError(t, permit.Release(t.Context()))
	})
}

// Whatever f returns, and however soon, one line says once that the lock was lost, and why.
func TestDoTellsOfALossOnce(t *testing.T) {
	t.Parallel()
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c, failed := l.Near(holdfast.WithTTL(l.Time(300*time.Millisecond))), errors.New("no disk")
		for what, returned := range map[string]func(context.Context) error{
			"the cause":     context.Cause,
			"the end":       func(ctx context.Context) error { return ctx.Err() },
			"nothing":       func(context.Context) error { return nil },
			"another error": func(context.Context) error { return failed },
		} {
			for _, waits := range []bool{true, false} {
				err := c.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
					require.NoError(t, l.Direct.Del(ctx, l.Key("x")).Err())
					if waits {
						<-ctx.Done()
						assert.ErrorIs(t, context.Cause(ctx), holdfast.ErrLost)
					}
					return returned(ctx)
				})
				require.ErrorIs(t, err, holdfast.ErrLost, what)
				require.Equal(t, what == "another error", errors.Is(err, failed))
				assert.Equal(t, 1, strings.Count(err.Error(), "lock lost"), err)
				assert.NotContains(t, err.Error(), "\n")
				if waits { // otherwise the release finds it, and knows of no cause
					assert.Contains(t, err.Error(), "FLUSHALL")
				}
				l.Free(c, "x")
			}
		}
	})
}
