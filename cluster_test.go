package holdfast_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// city is a Cluster as a deployment.
type city struct {
	deployment
	*redistest.Cluster
}

func newCity(t *testing.T) *city {
	t.Helper()
	c := &city{Cluster: redistest.NewCluster(t)}
	c.deployment = deployment{t: t, prefix: "city", connect: func(t *testing.T) redis.UniversalClient { return c.Cluster.Client(t) }}
	return c
}

func (c *city) key(k driver.Kind, name string) string {
	return c.prefix + ":1:" + string(k) + ":" + name
}

// residents are several clients.
func (c *city) residents(t *testing.T, n int, opts ...holdfast.Option) []*holdfast.Client {
	var all []*holdfast.Client
	for range n {
		all = append(all, c.client(t, opts...))
	}
	return all
}

// All of it happens to one Cluster, one thing after the other, because it takes time to
// start.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := newCity(t)
	for _, s := range []struct {
		name string
		body func(*testing.T, *city)
	}{
		{"EveryNameIsALock", everyNameIsALock},
		{"GrantsCrossNodes", grantsCrossNodes},
		{"WaitersFollowTheirSlot", waitersFollowTheirSlot},
		{"RenewalsFollowTheirSlot", renewalsFollowTheirSlot},
		{"FrozenNodeDelaysOnlyItsOwn", frozenNodeDelaysOnlyItsOwn},
		{"WaitersFollowAReplacedMaster", waitersFollowAReplacedMaster},
		{"WaitersOutliveAMaster", waitersOutliveAMaster},
	} {
		t.Run(s.name, func(t *testing.T) {
			began := time.Now()
			s.body(t, c)
			t.Logf("took %v", time.Since(began))
		})
	}
	for _, key := range c.Keys(t, c.prefix) {
		left := c.Owner(t, key).Client(t).PTTL(t.Context(), key).Val()
		assert.Positive(t, left, "%q stays for ever", key)
		assert.Less(t, left, 2*time.Minute, "%q", key)
	}
	requireNoToken(t, c.log.String())
}

func everyNameIsALock(t *testing.T, c *city) {
	one, other := c.client(t), c.client(t)
	lab := &lab{t: t}
	for i, name := range []string{
		"{", "}", "{}", "}{", "{}b", "{a}b", "a{b}c", "{{a}}", "{a}{b}", "a{", "a{}{b}", " ", "\n", "\r\n", "\x00", "\xff\xfe", "é", "日本",
		"*", ":", `"`, "a b c", strings.Repeat("x", driver.MaxName), strings.Repeat("{\xff", driver.MaxName/2),
	} {
		forms := [][2]leasing{
			{one.Mutex(name).Lease, other.Mutex(name).Lease},
			{one.RWMutex(name).Lease, other.RWMutex(name).RLease},
			{permits(one.Semaphore(name, 2), 2), permits(other.Semaphore(name, 2), 1)},
		}
		f := forms[i%len(forms)]
		held := lab.take(f[0])
		next := lab.ask(f[1])
		require.Eventually(t, func() bool {
			return slices.ContainsFunc([]lock{one.Mutex(name), one.RWMutex(name), one.Semaphore(name, 2)}, func(k lock) bool {
				info, err := k.Inspect(t.Context())
				return err == nil && len(info.Queue) == 1
			})
		}, soon, time.Millisecond, "%q", name)
		require.NoError(t, held.Renew(t.Context()), "%q", name)
		require.NoError(t, held.Release(t.Context()), "%q", name)
		lease := next.granted(soon)
		require.Greater(t, lease.Fence(), held.Fence(), "%q", name)
		require.NoError(t, lease.Release(t.Context()), "%q", name)
	}
}

// A client listens on one node for news of locks on all of them.
func grantsCrossNodes(t *testing.T, c *city) {
	one, other := c.client(t), c.client(t)
	lab := &lab{t: t}
	owners := map[*redistest.Server]string{}
	for i := 0; len(owners) < 3; i++ {
		name := fmt.Sprint("n", i)
		owners[c.Owner(t, c.key(driver.Mutex, name))] = name
	}
	for _, name := range owners {
		for range 3 {
			held := lab.take(one.Mutex(name).Lease)
			p := lab.ask(other.Mutex(name).Lease)
			require.Eventually(t, func() bool {
				info, err := one.Mutex(name).Inspect(t.Context())
				return err == nil && len(info.Queue) == 1
			}, soon, time.Millisecond)
			require.NoError(t, held.Release(t.Context()))
			require.NoError(t, p.granted(soon).Release(t.Context())) // long before the next heartbeat
		}
	}
}

// The slot is half-open for seconds, in both of its halves, while everybody waits.
func waitersFollowTheirSlot(t *testing.T, c *city) {
	const name = "{street}1"
	// Whoever listens on the node that gives the slot away seems gone to the other, which
	// passes it over until its next heartbeat.
	clients := c.residents(t, 5, holdfast.WithTTL(6*time.Second))
	all := throngs(t, name, clients, 10)
	for _, w := range all {
		w.everybody(2, soon*2)
	}
	from := c.Owner(t, c.key(driver.Mutex, name))
	m := c.Move(t, c.key(driver.Mutex, name), c.OtherMaster(t, c.key(driver.Mutex, name)))
	time.Sleep(time.Second)
	m.Carry(t)
	for _, w := range all {
		w.everybody(1, 2*soon)
	}
	time.Sleep(time.Second)
	m.Finish(t)
	require.NotSame(t, from, c.Owner(t, c.key(driver.Mutex, name)))
	for kind, w := range all {
		w.everybody(2, 2*soon)
		w.disperse()
		assert.Zero(t, w.lost, "a slot that moves takes no lease away")
		requireUnused(t, kindsOf(clients[0], name)[kind])
	}
}

func renewalsFollowTheirSlot(t *testing.T, c *city) {
	const ttl = 1500 * time.Millisecond
	locks := c.client(t, holdfast.WithTTL(ttl))
	lab := &lab{t: t}
	// A confirmation has to follow, too: it goes to one node.
	confirm := func(name string) {
		lease, err := locks.Mutex(name, holdfast.WithReplicas(1, soon)).TryLease(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	}
	var leases []*holdfast.Lease
	for i := range 20 {
		leases = append(leases, lab.take(locks.Mutex(fmt.Sprint("{moving}", i)).Lease), lab.take(locks.Mutex(fmt.Sprint("staying", i)).Lease))
	}
	key := c.key(driver.Mutex, "{moving}0")
	m := c.Move(t, key, c.OtherMaster(t, key))
	confirm("{moving}over there")
	m.Carry(t)
	confirm("{moving}over there")
	time.Sleep(ttl + ttl/3)
	m.Finish(t)
	confirm("{moving}here")
	time.Sleep(ttl + ttl/3)
	for _, lease := range leases {
		require.NoError(t, lease.Err(), lease.Name())
		info, err := locks.Mutex(lease.Name()).Inspect(t.Context())
		require.NoError(t, err)
		require.Len(t, info.Holders, 1, lease.Name())
		require.Equal(t, lease.Fence(), info.Holders[0].Fence, lease.Name())
		require.NoError(t, lease.Release(t.Context()))
	}
}

// Leases on the other nodes are renewed while one does not answer.
func frozenNodeDelaysOnlyItsOwn(t *testing.T, c *city) {
	const ttl = 1500 * time.Millisecond
	locks := c.client(t, holdfast.WithTTL(ttl))
	lab := &lab{t: t}
	frozen := c.Owner(t, c.key(driver.Mutex, "f0"))
	cover := func(all string) {
		for _, s := range c.Nodes {
			require.NoError(t, s.Client(t).ConfigSet(t.Context(), "cluster-require-full-coverage", all).Err())
		}
	}
	cover("no") // else all are down when one is
	defer cover("yes")
	var theirs, others []*holdfast.Lease
	for i := range 30 {
		name := fmt.Sprint("f", i)
		lease := lab.take(locks.Mutex(name).Lease)
		if c.Owner(t, c.key(driver.Mutex, name)) == frozen {
			theirs = append(theirs, lease)
		} else {
			others = append(others, lease)
		}
	}
	frozen.Pause()
	for _, lease := range theirs {
		lab.loses(lease, 3*ttl)
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

// A replica takes over in good order, so nothing may be lost.
func waitersFollowAReplacedMaster(t *testing.T, c *city) {
	const name = "{mayor}1"
	clients := c.residents(t, 5, holdfast.WithTTL(6*time.Second))
	all := throngs(t, name, clients, 4)
	for _, w := range all {
		w.everybody(2, 2*soon)
	}
	old := c.Owner(t, c.key(driver.Mutex, name))
	c.Swap(t, old)
	require.NotSame(t, old, c.AwaitNewOwner(t, c.key(driver.Mutex, name), old))
	for kind, w := range all {
		w.everybody(2, 2*soon)
		w.disperse()
		assert.Zero(t, w.lost)
		requireUnused(t, kindsOf(clients[0], name)[kind])
	}
	c.RequireWhole()
}

// The master that has the lock is killed, and its replica takes over. What it was not told
// of the last moments is lost.
func waitersOutliveAMaster(t *testing.T, c *city) {
	const name = "{palace}1"
	clients := c.residents(t, 5, holdfast.WithTTL(3*time.Second))
	all := throngs(t, name, clients, 4)
	for _, w := range all {
		w.everybody(2, 2*soon)
	}
	old := c.Owner(t, c.key(driver.Mutex, name))
	killed := time.Now()
	old.Kill()
	c.AwaitNewOwner(t, c.key(driver.Mutex, name), old)
	t.Logf("replaced after %v", time.Since(killed))
	for _, w := range all {
		w.everybody(2, 3*soon)
	}
	t.Logf("everybody was served %v after it was killed", time.Since(killed))
	old.Restart() // as a replica
	c.RequireWhole()
	for kind, w := range all {
		w.everybody(2, 2*soon)
		w.disperse()
		requireUnused(t, kindsOf(clients[0], name)[kind])
	}
}
