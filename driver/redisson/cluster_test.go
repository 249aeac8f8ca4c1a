package redisson_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisson"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// eachCluster runs body with PUBLISH and with SPUBLISH, on one Cluster.
func eachCluster(t *testing.T, body func(*testing.T, *redistest.Cluster, *redisson.Driver, java)) {
	t.Parallel()
	c := redistest.NewCluster(t)
	for command, opts := range map[string][]redisson.Option{"PUBLISH": nil, "SPUBLISH": {redisson.WithShardedPubSub()}} {
		t.Run(command, func(t *testing.T) {
			rdb := c.Client(t)
			j := newJava(rdb)
			j.publishes = command
			body(t, c, open(t, rdb, opts...), j)
		})
	}
}

// The keys of a script have to be in one slot.
func TestKeysAreInTheSlotOfTheLock(t *testing.T) {
	eachCluster(t, func(t *testing.T, c *redistest.Cluster, d *redisson.Driver, j java) {
		require.Equal(t, c.Owner(t, "orders:42").Addr(), d.Node(driver.Mutex, "orders:42"))
		require.Empty(t, redisson.New(c.Nodes[0].Client(t)).Node(driver.Mutex, "orders:42"), "there is only one")
		for _, name := range []string{"orders:42", "{a}b", "a{b}c{d}", "é\n{x}}", "a{b", "{", "a{{b}c"} {
			for _, owner := range []string{"", "o"} {
				name := name + j.publishes + owner
				r, l := of(owner, name, "me", long)
				granted(t, d, r)
				require.NoError(t, d.Renew(t.Context(), []driver.Lease{l})[0])
				l.Unsettled = true
				require.NoError(t, d.Release(t.Context(), l), "%q", name)
				_, err := d.Acquire(t.Context(), r)
				require.ErrorIs(t, err, driver.ErrNotHeld, "%q", name)
				granted(t, d, request(name, "you"))
				require.NoError(t, d.ForceRelease(t.Context(), driver.Mutex, name))
			}
		}
		for _, name := range []string{"a}b", "{}", "{}a{b}"} {
			_, err := d.Acquire(t.Context(), request(name, "me"))
			require.ErrorContains(t, err, "CROSSSLOT", "%q", name)
			require.ErrorIs(t, err, driver.ErrNotExecuted)
			require.NotErrorIs(t, err, driver.ErrTransient)
		}
	})
}

func TestReleasesAreHeardOnAllNodes(t *testing.T) {
	eachCluster(t, func(t *testing.T, c *redistest.Cluster, d *redisson.Driver, j java) {
		nodes := map[*redistest.Server]bool{}
		for _, name := range []string{"{a}", "{b}", "{c}", "{d}"} {
			name += j.publishes
			nodes[c.Owner(t, name)] = true
			j.mustLock(t, name, time.Hour)
			e := newWaiting(t, d, name, "me")
			require.False(t, e.told().Reconnect)
			require.Greater(t, e.asks().RetryAfter, 50*time.Minute)
			_, err := j.unlock(t.Context(), name)
			require.NoError(t, err)
			e.told()
			granted(t, d, e.r)
			waits, got := make(chan struct{}, 1), make(chan error, 1)
			go func() { got <- j.lock(t.Context(), name, func() { waits <- struct{}{} }) }()
			<-waits
			require.NoError(t, d.Release(t.Context(), lease(name, "me")))
			require.NoError(t, soon(t, got))
		}
		require.Greater(t, len(nodes), 1)
	})
}

// A sharded channel goes away with its slot; the others stay.
func TestWaitersFollowTheirSlot(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t)
	rdb := c.Client(t)
	d, j := open(t, rdb, redisson.WithShardedPubSub()), newJava(rdb)
	j.publishes = "SPUBLISH"
	neighbour := another(t, c, "a")
	j.mustLock(t, "a", time.Hour)
	j.mustLock(t, neighbour, time.Hour)
	moves, stays := newWaiting(t, d, "a", "me"), newWaiting(t, d, neighbour, "me")
	require.False(t, moves.told().Reconnect)
	require.False(t, stays.told().Reconnect)

	m := c.Move(t, "a", c.OtherMaster(t, "a"))
	m.Finish(t)
	require.True(t, moves.told().Reconnect)
	require.Empty(t, stays.news)
	require.True(t, moves.asksUntilTold().Reconnect)
	require.Eventually(t, func() bool { return moves.asks().RetryAfter > 50*time.Minute }, 10*time.Second, 10*time.Millisecond)
	for len(moves.news) > 0 {
		moves.told()
	}
	_, err := j.unlock(t.Context(), "a")
	require.NoError(t, err)
	moves.told()
	granted(t, d, moves.r)
}

// another returns a name on the node of this one, in another slot.
func another(t *testing.T, c *redistest.Cluster, name string) string {
	t.Helper()
	for n := 'b'; ; n++ {
		if c.Owner(t, string(n)) == c.Owner(t, name) {
			return string(n)
		}
	}
}
