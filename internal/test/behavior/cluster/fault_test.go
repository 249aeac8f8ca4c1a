package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// What happens to locks when a node of their Cluster does not answer, or goes.

// cover says whether all nodes are down when one is, as they are by default.
func (c *city) cover(t *testing.T, all string) {
	t.Helper()
	for _, s := range c.Nodes {
		require.NoError(t, s.Client(t).ConfigSet(t.Context(), "cluster-require-full-coverage", all).Err())
	}
}

// Leases on the other nodes are renewed while one does not answer.
func frozenNodeDelaysOnlyItsOwn(t *testing.T, c *city) {
	const ttl = 1500 * time.Millisecond
	locks := c.client(t, holdfast.WithTTL(ttl))
	l := &lab.Lab{T: t}
	frozen := c.Owner(t, c.key(driver.Mutex, "f0"))
	c.cover(t, "no")
	defer c.cover(t, "yes")
	var theirs, others []*holdfast.Lease
	for i := range 30 {
		name := fmt.Sprint("f", i)
		lease := l.Take(locks.Mutex(name).Lease)
		if c.Owner(t, c.key(driver.Mutex, name)) == frozen {
			theirs = append(theirs, lease)
		} else {
			others = append(others, lease)
		}
	}
	frozen.Pause()
	for _, lease := range theirs {
		l.Loses(lease, 3*ttl)
	}
	time.Sleep(ttl)
	for _, lease := range others {
		require.NoError(t, lease.Err())
	}
	frozen.Resume()
	for _, lease := range others {
		require.NoError(t, lease.Release(t.Context()))
	}
	c.RequireWhole()
	for _, lease := range theirs {
		requireUnused(t, locks.Mutex(lease.Name()))
	}
}

// It counts where a lock is now, not where it was when it was acquired.
func frozenNodeDelaysOnlyWhatIsThereNow(t *testing.T, c *city) {
	const ttl = 1500 * time.Millisecond
	locks := c.client(t, holdfast.WithTTL(ttl))
	l := &lab.Lab{T: t}
	key := func(name string) string { return c.key(driver.Mutex, name) }
	home, away := c.Owner(t, key("stays")), c.OtherMaster(t, key("stays"))
	name := ""
	for i := 0; name == "" || c.Owner(t, key(name)) != home; i++ {
		name = fmt.Sprint("moves", i)
	}
	c.cover(t, "no")
	defer c.cover(t, "yes")
	stays, moves := l.Take(locks.Mutex("stays").Lease), l.Take(locks.Mutex(name).Lease)
	c.Move(t, key(name), away).Finish(t)
	time.Sleep(ttl) // the client hears of the move when it renews
	require.NoError(t, moves.Err())
	away.Pause()
	l.Loses(moves, 3*ttl)
	time.Sleep(ttl)
	assert.NoError(t, stays.Err())
	away.Resume()
	assert.NoError(t, stays.Release(t.Context()))
	c.RequireWhole()
	requireUnused(t, locks.Mutex(name))
}

// A replica takes over in good order, so nothing may be lost.
func waitersFollowAReplacedMaster(t *testing.T, c *city) {
	const name = "{mayor}1"
	clients := c.residents(t, 5, holdfast.WithTTL(6*time.Second))
	all := throngs(t, name, clients, 4)
	for _, w := range all {
		w.everybody(2, 2*lab.Soon)
	}
	old := c.Owner(t, c.key(driver.Mutex, name))
	c.Swap(t, old)
	require.NotSame(t, old, c.AwaitNewOwner(t, c.key(driver.Mutex, name), old))
	for kind, w := range all {
		w.everybody(2, 2*lab.Soon)
		w.disperse()
		assert.Zero(t, w.lost)
		requireUnused(t, kindsOf(clients[0], name)[kind])
	}
	c.RequireWhole()
}

// The master that has the lock is killed, and its replica takes over. Writes of the last moments
// that it was not told of are lost.
func waitersOutliveAMaster(t *testing.T, c *city) {
	const name = "{palace}1"
	clients := c.residents(t, 5, holdfast.WithTTL(3*time.Second))
	all := throngs(t, name, clients, 4)
	for _, w := range all {
		w.everybody(2, 2*lab.Soon)
	}
	old := c.Owner(t, c.key(driver.Mutex, name))
	killed := time.Now()
	old.Kill()
	c.AwaitNewOwner(t, c.key(driver.Mutex, name), old)
	t.Logf("replaced after %v", time.Since(killed))
	for _, w := range all {
		w.everybody(2, 3*lab.Soon)
	}
	t.Logf("everybody was served %v after it was killed", time.Since(killed))
	old.Restart() // as a replica
	c.RequireWhole()
	for kind, w := range all {
		w.everybody(2, 2*lab.Soon)
		w.disperse()
		requireUnused(t, kindsOf(clients[0], name)[kind])
	}
}
