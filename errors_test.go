package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/behavior/lab"
)

func TestErrorTypeNamesTheCause(t *testing.T) {
	for want, err := range map[string]error{
		"locked":       holdfast.ErrLocked,
		"not_held":     holdfast.ErrNotHeld,
		"closed":       holdfast.ErrClosed,
		"deadlock":     holdfast.ErrDeadlock,
		"invalid_name": holdfast.ErrInvalidName,
		"timeout":      errors.Join(context.DeadlineExceeded, holdfast.ErrLocked),
		"canceled":     errors.Join(context.Canceled, driver.ErrTransient),
		"lock_lost":    errors.Join(holdfast.ErrLost, context.DeadlineExceeded),
		"store":        errors.New("NOPERM"),
	} {
		require.Equal(t, want, (&holdfast.LockError{Err: err}).ErrorType())
	}
}

// It also holds what the tests take for a token against one.
func TestTokensAreNeverShown(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Near(holdfast.WithTTL(300 * time.Millisecond))
		lease := l.Lease(c, "x")
		token := lease.Token()
		require.True(t, lab.ShowsToken(token), "the tests know tokens no more")
		assert.Contains(t, token, "mutex")
		assert.Contains(t, token, "x")

		_, busy := c.Mutex("x").TryLease(t.Context())
		require.ErrorIs(t, busy, holdfast.ErrLocked)
		_, deadlock := c.Mutex("x").Lease(lease.Context())
		require.ErrorIs(t, deadlock, holdfast.ErrDeadlock)
		require.NoError(t, l.Direct.Del(t.Context(), l.Key("x")).Err())
		l.Loses(lease, 300*time.Millisecond+l.Slack)
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
