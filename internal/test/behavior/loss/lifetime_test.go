package loss_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// heard returns a client, and a function that has the store take the lock from whoever asked
// for it last.
func heard(t *testing.T) (locks *holdfast.Client, take func()) {
	var wake func(driver.Grant)
	locks = lab.WithPuppet(t, lab.Puppet{OnAcquire: func(r *driver.Request) (driver.Grant, error) {
		wake = r.Wake
		return driver.Grant{Status: driver.Granted, Ask: r.Ask, Fence: 1}, nil
	}})
	return locks, func() { wake(driver.Grant{Status: driver.Lost}) }
}

func TestContextThatIsAskedForLateTellsHowTheLeaseEnded(t *testing.T) {
	type key struct{}
	released := func(t *testing.T, l *holdfast.Lease, _ func()) { require.NoError(t, l.Release(t.Context())) }
	lost := func(_ *testing.T, _ *holdfast.Lease, take func()) { take() }
	for name, c := range map[string]struct {
		end  func(t *testing.T, l *holdfast.Lease, take func())
		want error
	}{
		"released": {released, context.Canceled},
		"lost":     {lost, holdfast.ErrLost},
		"lost, then released": {func(t *testing.T, l *holdfast.Lease, take func()) {
			take()
			require.ErrorIs(t, l.Release(t.Context()), holdfast.ErrLost)
			require.ErrorIs(t, l.Err(), holdfast.ErrNotHeld)
		}, holdfast.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			locks, take := heard(t)
			waiting, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
			lease, err := locks.Mutex("x").Lease(waiting)
			require.NoError(t, err)
			cancel()
			c.end(t, lease, take)

			ctx := lease.Context()
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			require.ErrorIs(t, context.Cause(ctx), c.want)
			assert.Equal(t, "value", ctx.Value(key{}))
			assert.Same(t, ctx, lease.Context())
			require.ErrorIs(t, context.Cause(lease.WithContext(t.Context())), c.want)
		})
	}
}

func TestAllWhoAskForTheContextGetTheOneThatEnds(t *testing.T) {
	for range 200 {
		locks, take := heard(t)
		lease, err := locks.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		contexts := make([]context.Context, 4)
		var all sync.WaitGroup
		for i := range contexts {
			all.Go(func() { contexts[i] = lease.Context() })
		}
		all.Go(take)
		all.Wait()
		for _, ctx := range contexts {
			require.Same(t, contexts[0], ctx)
		}
		require.ErrorIs(t, context.Cause(contexts[0]), holdfast.ErrLost)
	}
}

func TestEveryAskHasARequestOfItsOwn(t *testing.T) {
	var asks []*driver.Request
	var were []driver.Request
	locks := lab.WithPuppet(t, lab.Puppet{OnAcquire: func(r *driver.Request) (driver.Grant, error) {
		asks, were = append(asks, r), append(were, *r)
		if len(asks) < 4 {
			return driver.Grant{}, driver.ErrTransient
		}
		return driver.Grant{Status: driver.Granted, Ask: r.Ask, Fence: 1}, nil
	}})
	s := locks.Semaphore("x", 5)
	require.NoError(t, s.Acquire(context.Background(), 3))
	s.Release(3)
	require.Len(t, asks, 4)
	for i, r := range asks {
		assert.EqualValues(t, i+1, r.Ask)
		assert.NotNil(t, r.Wake)
		now, then, first := *r, were[i], were[0]
		now.Wake, then.Wake, first.Wake = nil, nil, nil
		assert.Equal(t, then, now, "a driver may keep what it was asked")
		first.Ask = then.Ask
		assert.Equal(t, first, then, "nothing else changes")
		assert.Equal(t, int64(5), then.Limit)
		assert.Equal(t, int64(3), then.Weight)
		assert.True(t, then.Wait)
	}
}
