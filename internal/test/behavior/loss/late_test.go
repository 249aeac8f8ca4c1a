package loss_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// lateRenewal succeeds when the lease is over.
type lateRenewal struct{ lab.Instant }

func (lateRenewal) Renew(_ context.Context, l []driver.Lease) []error {
	time.Sleep(2 * lab.PlayTTL)
	return make([]error, len(l))
}

func TestRenewalThatComesTooLateIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := holdfast.Open(lateRenewal{}, holdfast.WithTTL(lab.PlayTTL), holdfast.WithoutRenewal())
		l, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, l.Renew(t.Context()), holdfast.ErrLost)
		require.NoError(t, c.Close())
	})
}

// A lock can be taken away by force before anybody has had it.
func TestLossBeforeAnybodyHadTheLockIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, log := memdriver.New(), new(lab.Log)
		c := holdfast.Open(store, holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		other := holdfast.Open(store)
		c.AddHook(lab.Meddler{Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			op.Holding = func(ctx context.Context, _ int64) context.Context {
				assert.NoError(t, other.Mutex("x").ForceUnlock(t.Context()))
				return ctx
			}
			return next(ctx, op)
		}})
		c.Mutex("x").Lock()
		synctest.Wait()
		c.Mutex("x").Unlock()
		require.NoError(t, c.Close())
		require.Contains(t, log.String(), "lock lost")
		require.NoError(t, other.Close())
	})
}
