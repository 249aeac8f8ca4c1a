package order_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

func TestCancelledWaitersOfAnyKindLeaveNothing(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		l.Remember()
		a, b := l.Near(), l.Near()
		rw, s := a.RWMutex("x"), a.Semaphore("x", 3)
		gone := errors.New("gone")
		write, some := l.Take(rw.Lease), l.Take(lab.Permits(s, 3))
		waiters := []*lab.Pending{l.Ask(b.RWMutex("x").RLease), l.Ask(b.RWMutex("x").Lease), l.Ask(lab.Permits(b.Semaphore("x", 3), 2))}
		acquiring := l.Ask(func(ctx context.Context) (*holdfast.Lease, error) {
			return nil, b.Semaphore("x", 3).Acquire(ctx, 1)
		})
		l.UntilWaiting(rw, 2)
		l.UntilWaiting(s, 2)
		for _, w := range append(waiters, acquiring) {
			w.Cancel(gone)
			require.ErrorIs(t, w.Failed(lab.Soon), gone)
		}
		l.UntilWaiting(rw, 0)
		l.UntilWaiting(s, 0)
		l.IsHeldBy(rw, write)
		l.IsHeldBy(s, some)
		l.GiveBack(write, some)
		l.IsClean("rwmutex", "x")
		l.IsClean("semaphore", "x")
		for _, kind := range []driver.Kind{driver.RWMutex, driver.Semaphore} {
			require.Len(t, l.Server.Keys(t, l.KeyOf(kind, "")), 1)
		}
	})
}
