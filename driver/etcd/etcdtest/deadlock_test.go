package etcdtest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/deadlock"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
)

// watchful returns a client that finds circles.
func watchful(t *testing.T, endpoint string, i int) *holdfast.Client {
	t.Helper()
	c := holdfast.Open(etcddriver.New(connect(t, endpoint)), holdfast.WithHolder(fmt.Sprint("p", i)), holdfast.WithTTL(time.Minute))
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	c.AddHook(deadlock.New(c, deadlock.WithPause(200*time.Millisecond)))
	return c
}

func TestCircleOfClientsEndsByOneVictim(t *testing.T) {
	endpoint := embedded(t)
	const n = 3
	errs := make([]error, n)
	var held, all sync.WaitGroup
	held.Add(n)
	for i := range n {
		c := watchful(t, endpoint, i)
		all.Go(func() {
			errs[i] = c.Mutex(fmt.Sprint("m", i)).Do(t.Context(), func(ctx context.Context) error {
				held.Done()
				held.Wait()
				return c.Mutex(fmt.Sprint("m", (i+1)%n)).Do(ctx, func(context.Context) error { return nil })
			})
		})
	}
	all.Wait()
	victims := 0
	for _, err := range errs {
		if err == nil {
			continue
		}
		victims++
		var circle *deadlock.Error
		require.ErrorAs(t, err, &circle)
		require.ErrorIs(t, err, holdfast.ErrDeadlock)
		require.Len(t, circle.Circle, n)
	}
	require.Equal(t, 1, victims)
}

func TestInspectShowsWhatAHolderWaitsFor(t *testing.T) {
	endpoint := embedded(t)
	a, b := watchful(t, endpoint, 0), watchful(t, endpoint, 1)
	last, err := a.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	var waiter sync.WaitGroup
	waiter.Go(func() {
		_ = b.Mutex("y").Do(t.Context(), func(ctx context.Context) error {
			return b.Mutex("x").Do(ctx, func(context.Context) error { return nil })
		})
	})
	require.Eventually(t, func() bool {
		info, err := a.Mutex("y").Inspect(t.Context())
		if err != nil || len(info.Holders) != 1 {
			return false
		}
		waits := deadlock.Waits(info.Holders[0])
		return len(waits) == 1 && waits[0].For.Name == "x"
	}, patience, 10*time.Millisecond)
	require.NoError(t, last.Release(t.Context()))
	waiter.Wait()
}
