package interop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redlock"
	"github.com/holdfast-go/holdfast/driver/setnx"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// quorum is three servers whose locks we share with redsync.
type quorum struct {
	*testing.T
	servers []*redistest.Server
	locks   *holdfast.Client
}

func newQuorum(t *testing.T) *quorum {
	q := &quorum{T: t}
	var nodes []driver.Driver
	for range 3 {
		s := redistest.Real(t)
		q.servers = append(q.servers, s)
		nodes = append(nodes, setnx.New(s.Client(t), setnx.WithPrefix("test:")))
	}
	q.locks = holdfast.Open(redlock.New(nodes, redlock.WithDelayedRestart(0), // they have just been started
		redlock.WithTimeout(5*time.Second))) // how long a vote may take is not what is tested
	t.Cleanup(func() { assert.NoError(t, q.locks.Close()) })
	return q
}

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
	q := newQuorum(t)
	lease, err := q.locks.Mutex("orders").Lease(t.Context())
	require.NoError(t, err)
	require.Zero(t, lease.Fence(), "these nodes have none")
	m := q.peer(long)
	q.keptOut(m)
	require.NoError(t, lease.Renew(t.Context()), "the attempt has cost nothing")
	require.NoError(t, lease.Release(t.Context()))
	require.NoError(t, m.TryLockContext(t.Context()))
	ok, err := m.UnlockContext(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
}

func TestWeAreKeptOutUntilRedsyncReleases(t *testing.T) {
	q := newQuorum(t)
	m, mu := q.peer(long), q.locks.Mutex("orders", holdfast.WithTTL(6*time.Second))
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
	redistest.SoakOnly(t)
	q := newQuorum(t)
	const ttl = 500 * time.Millisecond
	m, mu := q.peer(ttl), q.locks.Mutex("orders", holdfast.WithTTL(ttl), holdfast.WithoutRenewal())
	lease, err := mu.Lease(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.LockContext(t.Context()))
	require.ErrorIs(t, lease.Err(), holdfast.ErrLost, "FOUL: we still trust what the peer has")
	again, err := mu.Lease(t.Context())
	require.NoError(t, err)
	require.False(t, time.Now().Before(m.Until()), "FOUL: the peer still trusts what we have")
	require.NoError(t, again.Release(t.Context()))
}
