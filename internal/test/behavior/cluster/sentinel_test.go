package cluster_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// The master is killed, just after its replicas were cut off from it, and Sentinel promotes
// one that does not know of the last moments. Then it comes back, as a master that knows
// nothing at all.
func TestSentinelFailoverThatLosesWrites(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	const ttl = 3 * time.Second
	s := redistest.NewSentinels(t)
	d := &deployment{t: t, prefix: "village", connect: func(t *testing.T) redis.UniversalClient { return s.Client(t) }}
	locks, other := d.client(t), d.client(t)
	l := &lab.Lab{T: t}
	var clients []*holdfast.Client
	for range 4 {
		clients = append(clients, d.client(t, holdfast.WithTTL(ttl)))
	}
	all := throngs(t, "busy", clients, 4)
	for _, w := range all {
		w.everybody(2, 2*lab.Soon)
	}
	safe := l.Take(locks.Mutex("safe", holdfast.WithReplicas(2, lab.Soon)).Lease)

	old := s.Master(t)
	for _, replica := range s.Servers {
		if replica != old {
			replica.Detach(t, old)
		}
	}
	doomed := l.Take(locks.Mutex("doomed", holdfast.WithTTL(ttl)).Lease)
	_, err := other.Mutex("unsafe", holdfast.WithReplicas(1, 50*time.Millisecond)).TryLease(t.Context())
	require.ErrorIs(t, err, holdfast.ErrNotConfirmed)
	for _, w := range all { // of which no replica knows
		w.everybody(2, 2*lab.Soon)
	}
	killed := time.Now()
	old.Kill()
	for _, replica := range s.Servers {
		if replica != old {
			require.NoError(t, replica.Client(t).ConfigSet(t.Context(), "masterauth", "").Err())
		}
	}
	next := s.AwaitNewMaster(t, old)
	t.Logf("replaced after %v", time.Since(killed))

	after := l.Take(other.Mutex("doomed").Lease)
	assert.Greater(t, after.Fence(), doomed.Fence(), "FOUL: fences went back")
	for _, w := range all {
		w.everybody(2, 2*lab.Soon)
	}
	t.Logf("everybody was served %v after it was killed", time.Since(killed))
	l.Loses(doomed, ttl)
	require.ErrorIs(t, doomed.Release(t.Context()), holdfast.ErrLost)

	old.Restart()
	for _, w := range all {
		w.everybody(2, 2*lab.Soon)
	}
	old.Follow(t, next) // as Sentinel would have it after 10 s
	for kind, w := range all {
		w.everybody(2, 2*lab.Soon)
		w.disperse()
		requireUnused(t, kindsOf(clients[0], "busy")[kind])
	}
	for _, lease := range []*holdfast.Lease{safe, after} {
		require.NoError(t, lease.Err(), lease.Name())
		require.NoError(t, lease.Renew(t.Context()), lease.Name())
		_, err := clients[0].Mutex(lease.Name()).TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		require.NoError(t, lease.Release(t.Context()))
		requireUnused(t, locks.Mutex(lease.Name()))
	}
	next.RequireTTLs(t, d.prefix)
	lab.RequireNoToken(t, d.log.String())
}

// The Sentinels replace a master that lives on, and a client does not hear of that. Its lease
// is renewed by the old master, which nobody else looks at, until that is made a replica: so
// there are two holders for some seconds. If the master wants replicas before it writes, there
// are two for no longer than it takes to see that it has none, and a TTL.
func TestClientThatDoesNotHearOfAFailover(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	const ttl = 2 * time.Second
	scene := func(t *testing.T, settings map[string]string) (l *lab.Lab, stale *holdfast.Client, before, after *holdfast.Lease, switched time.Time) {
		t.Parallel()
		l = &lab.Lab{T: t}
		s := redistest.NewSentinels(t)
		for _, server := range s.Servers {
			for name, value := range settings {
				require.NoError(t, server.Client(t).ConfigSet(t.Context(), name, value).Err())
			}
		}
		old := s.Master(t)
		cut := &deployment{t: t, prefix: "village", connect: func(t *testing.T) redis.UniversalClient { return old.Client(t) }}
		d := &deployment{t: t, prefix: "village", connect: func(t *testing.T) redis.UniversalClient { return s.Client(t) }}
		stale = cut.client(t, holdfast.WithTTL(ttl))
		before = l.Take(stale.Mutex("x", holdfast.WithReplicas(2, lab.Soon)).Lease)
		switched = time.Now()
		s.Failover(t)
		after = l.Take(d.client(t, holdfast.WithTTL(ttl)).Mutex("x").Lease)
		t.Logf("another holds the lock %v after the switch began", time.Since(switched))
		assert.Greater(t, after.Fence(), before.Fence(), "FOUL: fences went back")
		return l, stale, before, after, switched
	}
	t.Run("by default", func(t *testing.T) {
		l, _, before, after, switched := scene(t, nil)
		require.NoError(t, before.Renew(t.Context()), "at the old master")
		require.NoError(t, after.Err())
		l.Loses(before, 20*time.Second)
		t.Logf("there were two until %v after the switch began", time.Since(switched))
		require.NoError(t, after.Release(t.Context()))
	})
	t.Run("with min-replicas-to-write", func(t *testing.T) {
		l, stale, before, after, switched := scene(t, map[string]string{"min-replicas-to-write": "1", "min-replicas-max-lag": "1"})
		// It counts its replicas once a second.
		l.Loses(before, time.Until(switched.Add(time.Second+time.Second+ttl+2*time.Second)))
		t.Logf("there were two until %v after the switch began", time.Since(switched))
		require.ErrorContains(t, before.Err(), "NOREPLICAS")

		// A waiter does not give up for that.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := stale.Mutex("y").Lease(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "NOREPLICAS")
		require.NoError(t, after.Release(t.Context()))
	})
}
