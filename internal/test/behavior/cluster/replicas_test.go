package cluster_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// The replicas of these tests are real, and what they have counts when they are promoted.

func TestConfirmedLeaseIsHeldAfterAFailover(t *testing.T) {
	t.Parallel()
	master := redistest.Real(t)
	one, other := master.Replica(t), master.Replica(t)
	rdb := master.Client(t)
	l := openReplicated(t, rdb)
	mu := func(n int) *holdfast.Mutex {
		return l.Mutex("x", holdfast.WithReplicas(n, 300*time.Millisecond))
	}
	other.Detach(t, master)
	_, err := mu(2).TryLease(t.Context())
	require.ErrorIs(t, err, holdfast.ErrNotConfirmed)
	var lease *holdfast.Lease
	require.Eventually(t, func() bool { // what was refused is given back in the background
		lease, err = mu(1).TryLease(t.Context())
		return err == nil
	}, lab.Soon, 5*time.Millisecond)

	master.Kill()
	one.Promote(t)
	info := inspectOn(t, one, "x")
	require.Len(t, info.Holders, 1, "the replica that has confirmed it does not know of it")
	assert.Equal(t, lease.Fence(), info.Holders[0].Fence)
	_, err = newReplicated(t, one).Mutex("x").TryLease(t.Context())
	require.ErrorIs(t, err, holdfast.ErrLocked)
	other.Promote(t)
	assert.Empty(t, inspectOn(t, other, "x").Holders, "it was not to have it, or this test proves nothing")
	require.NoError(t, rdb.Close()) // or the lease is released for as long as it lasts
}

func TestPushedGrantIsConfirmed(t *testing.T) {
	t.Parallel()
	master := redistest.Real(t)
	replica := master.Replica(t)
	holder, waiter := newReplicated(t, master), newReplicated(t, master)
	l := &lab.Lab{T: t}
	for name, forms := range map[string][2]lab.Leasing{
		"mutex":     {holder.Mutex("x").Lease, waiter.Mutex("x", holdfast.WithReplicas(1, 100*time.Millisecond)).Lease},
		"rwmutex":   {holder.RWMutex("x").Lease, waiter.RWMutex("x", holdfast.WithReplicas(1, 100*time.Millisecond)).RLease},
		"semaphore": {lab.Permits(holder.Semaphore("x", 2), 2), lab.Permits(waiter.Semaphore("x", 2, holdfast.WithReplicas(1, 100*time.Millisecond)), 1)},
	} {
		held := l.Take(forms[0])
		p := l.Ask(forms[1])
		time.Sleep(50 * time.Millisecond) // no harm if it is not in the queue yet
		replica.Pause()
		require.NoError(t, held.Release(t.Context()))
		select {
		case <-p.Done:
			t.Fatalf("%s: confirmed by a replica that is frozen: %v", name, p.Err)
		case <-time.After(300 * time.Millisecond): // more than one try
		}
		replica.Resume()
		require.NoError(t, p.Granted(lab.Soon).Release(t.Context()))
	}
}

func newReplicated(t *testing.T, s *redistest.Server) *holdfast.Client {
	t.Helper()
	return openReplicated(t, s.Client(t))
}

func openReplicated(t *testing.T, rdb *redis.Client) *holdfast.Client {
	t.Helper()
	c := holdfast.New(rdb, holdfast.WithTTL(lab.Ages))
	t.Cleanup(func() { _ = c.Close() }) // an error is of a server that was killed
	return c
}

func inspectOn(t *testing.T, s *redistest.Server, name string) holdfast.Info {
	t.Helper()
	info, err := newReplicated(t, s).Mutex(name).Inspect(t.Context())
	require.NoError(t, err)
	return info
}
