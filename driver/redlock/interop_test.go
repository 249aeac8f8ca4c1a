package redlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
)

// peer is redsync over the same nodes.
func (q *quorum) peer(ttl time.Duration) *redsync.Mutex {
	var pools []redsyncredis.Pool
	for _, s := range q.servers {
		pools = append(pools, goredis.NewPool(s.Client(q)))
	}
	return redsync.New(pools...).NewMutex("test:orders", redsync.WithExpiry(ttl), redsync.WithTimeoutFactor(0.5))
}

// keptOut requires that the peer does not get the lock.
func (q *quorum) keptOut(m *redsync.Mutex) {
	q.Helper()
	var taken *redsync.ErrTaken
	var node *redsync.ErrNodeTaken
	err := m.TryLockContext(q.Context())
	require.True(q, errors.As(err, &taken) || errors.As(err, &node), "%v", err)
}

func TestRedsyncIsKeptOutUntilWeRelease(t *testing.T) {
	q := newQuorum(t, plain, 3)
	lease, err := q.client().Mutex("orders").Lease(t.Context())
	require.NoError(t, err)
	require.Zero(t, lease.Fence(), "these nodes have none")
	m := q.peer(ttl)
	q.keptOut(m)
	require.NoError(t, lease.Renew(t.Context()), "the attempt has cost nothing")
	require.NoError(t, lease.Release(t.Context()))
	require.NoError(t, m.TryLockContext(t.Context()))
	ok, err := m.UnlockContext(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
}

func TestWeAreKeptOutUntilRedsyncReleases(t *testing.T) {
	q := newQuorum(t, plain, 3)
	m, mu := q.peer(ttl), q.client().Mutex("orders", holdfast.WithTTL(time.Second))
	require.NoError(t, m.TryLockContext(t.Context()))
	_, err := mu.TryLease(t.Context())
	require.ErrorIs(t, err, holdfast.ErrLocked)
	ok, err := m.ExtendContext(t.Context())
	require.NoError(t, err)
	require.True(t, ok, "our attempt has cost nothing")

	got := make(chan error, 1)
	go func() {
		lease, err := mu.Lease(context.Background())
		if err == nil {
			err = lease.Release(context.Background())
		}
		got <- err
	}()
	ok, err = m.UnlockContext(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, <-got)
	for i, s := range q.servers {
		require.Empty(t, s.Keys(t, "test:"), "node %d", i)
	}
}

func TestEachGetsWhatTheOtherLetsExpire(t *testing.T) {
	q := newQuorum(t, plain, 3)
	const ttl = 500 * time.Millisecond
	m, mu := q.peer(ttl), q.client().Mutex("orders", holdfast.WithTTL(ttl), holdfast.WithoutRenewal())
	lease, err := mu.Lease(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.LockContext(t.Context()))
	require.ErrorIs(t, lease.Err(), holdfast.ErrLost, "we still trust what the peer has")
	again, err := mu.Lease(t.Context())
	require.NoError(t, err)
	require.False(t, time.Now().Before(m.Until()), "the peer still trusts what we have")
	require.NoError(t, again.Release(t.Context()))
}
