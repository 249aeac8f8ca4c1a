package cluster_test

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
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// city is a Cluster as a deployment.
type city struct {
	deployment
	*redistest.Cluster
}

func newCity(t *testing.T) *city {
	t.Helper()
	c := &city{Cluster: redistest.NewCluster(t)}
	t.Cleanup(func() {
		if t.Failed() {
			c.LogBeliefs(t)
		}
	})
	c.deployment = deployment{t: t, prefix: "city", connect: func(t *testing.T) redis.UniversalClient { return c.Cluster.Client(t) }}
	return c
}

// trust has no node taken for dead, and replaced, because the machine stood still for a moment.
func (c *city) trust(t *testing.T) {
	t.Helper()
	for _, s := range c.Nodes {
		require.NoError(t, s.Client(t).ConfigSet(t.Context(), "cluster-node-timeout", "20000").Err())
	}
}

func (c *city) key(k driver.Kind, name string) string {
	return c.prefix + ":2:" + string(k) + ":" + name
}

// opened is a client on another driver.
func (c *city) opened(t *testing.T, open func(redis.UniversalClient) driver.Driver) *holdfast.Client {
	t.Helper()
	locks := holdfast.Open(open(c.connect(t)))
	t.Cleanup(func() { assert.NoError(t, locks.Close()) })
	return locks
}

// residents are several clients.
func (c *city) residents(t *testing.T, n int, opts ...holdfast.Option) []*holdfast.Client {
	var all []*holdfast.Client
	for range n {
		all = append(all, c.client(t, opts...))
	}
	return all
}

// A Cluster takes time to start, so it is the scene of several things, one after the other.
// But what they do most is wait, so there are two of it.
func TestCluster(t *testing.T) {
	t.Parallel()
	type scene struct {
		name string
		body func(*testing.T, *city)
	}
	t.Run("all nodes are well", func(t *testing.T) {
		t.Parallel()
		c := newCity(t)
		c.trust(t)
		for _, s := range []scene{
			{"EveryNameIsALock", everyNameIsALock},
			{"GrantsCrossNodes", grantsCrossNodes},
			{"CircleOfWaitsHasOneVictim", endsCircles},
			{"WaitersPollWhereScriptsMayNotPublish", waitersPollWhereScriptsMayNotPublish},
			{"WaitersFollowTheirSlot", waitersFollowTheirSlot},
			{"FirstWaiterComesWhileTheSlotMoves", firstWaiterComesWhileTheSlotMoves},
			{"RenewalsFollowTheirSlot", renewalsFollowTheirSlot},
			{"LocksOfOtherProtocolsFollowTheirSlot", locksOfOtherProtocolsFollowTheirSlot},
		} {
			t.Run(s.name, func(t *testing.T) { s.body(t, c) })
		}
		c.requireTidy(t)
	})
	t.Run("a node fails", func(t *testing.T) {
		redistest.SoakOnly(t)
		t.Parallel()
		c := newCity(t)
		for _, s := range []scene{
			{"FrozenNodeDelaysOnlyItsOwn", frozenNodeDelaysOnlyItsOwn},
			{"FrozenNodeDelaysOnlyWhatIsThereNow", frozenNodeDelaysOnlyWhatIsThereNow},
			{"WaitersFollowAReplacedMaster", waitersFollowAReplacedMaster},
			{"WaitersOutliveAMaster", waitersOutliveAMaster},
		} {
			t.Run(s.name, func(t *testing.T) { s.body(t, c) })
		}
		c.requireTidy(t)
	})
}

// requireTidy requires that what is left of the locks goes in time, and that no token was logged.
func (c *city) requireTidy(t *testing.T) {
	t.Helper()
	for _, key := range c.Keys(t, c.prefix) {
		left := c.Owner(t, key).Client(t).PTTL(t.Context(), key).Val()
		assert.Positive(t, left, "%q stays for ever", key)
		assert.Less(t, left, 2*time.Minute, "%q", key)
	}
	lab.RequireNoToken(t, c.log.String())
}

func everyNameIsALock(t *testing.T, c *city) {
	one, other := c.client(t), c.client(t)
	l := &lab.Lab{T: t}
	for i, name := range []string{
		"{", "}", "{}", "}{", "{}b", "{a}b", "a{b}c", "{{a}}", "{a}{b}", "a{", "a{}{b}", " ", "\n", "\r\n", "\x00", "\xff\xfe", "é", "日本",
		"*", ":", `"`, "a b c", strings.Repeat("x", driver.MaxName), strings.Repeat("{\xff", driver.MaxName/2),
	} {
		forms := [][2]lab.Leasing{
			{one.Mutex(name).Lease, other.Mutex(name).Lease},
			{one.RWMutex(name).Lease, other.RWMutex(name).RLease},
			{lab.Permits(one.Semaphore(name, 2), 2), lab.Permits(other.Semaphore(name, 2), 1)},
		}
		f := forms[i%len(forms)]
		held := l.Take(f[0])
		next := l.Ask(f[1])
		require.Eventually(t, func() bool {
			return slices.ContainsFunc([]lab.Lock{one.Mutex(name), one.RWMutex(name), one.Semaphore(name, 2)}, func(k lab.Lock) bool {
				info, err := k.Inspect(t.Context())
				return err == nil && len(info.Queue) == 1
			})
		}, lab.Soon, time.Millisecond, "%q", name)
		require.NoError(t, held.Renew(t.Context()), "%q", name)
		require.NoError(t, held.Release(t.Context()), "%q", name)
		lease := next.Granted(lab.Soon)
		require.Greater(t, lease.Fence(), held.Fence(), "FOUL: fences went back: %q", name)
		require.NoError(t, lease.Release(t.Context()), "%q", name)
	}
}

// The locks of a circle are on different nodes.
func endsCircles(t *testing.T, c *city) {
	behavior.Circles(t, func(_ testing.TB, opts ...holdfast.Option) *holdfast.Client {
		return holdfast.Open(redisdriver.New(c.connect(t), redisdriver.WithPrefix(c.prefix)), opts...)
	})
}

// A client listens on one node for news of locks on all of them.
func grantsCrossNodes(t *testing.T, c *city) {
	one, other := c.client(t), c.client(t)
	l := &lab.Lab{T: t}
	owners := map[*redistest.Server]string{}
	for i := 0; len(owners) < 3; i++ {
		name := fmt.Sprint("n", i)
		owners[c.Owner(t, c.key(driver.Mutex, name))] = name
	}
	for _, name := range owners {
		for range 3 {
			held := l.Take(one.Mutex(name).Lease)
			p := l.Ask(other.Mutex(name).Lease)
			require.Eventually(t, func() bool {
				info, err := one.Mutex(name).Inspect(t.Context())
				return err == nil && len(info.Queue) == 1
			}, lab.Soon, time.Millisecond)
			require.NoError(t, held.Release(t.Context()))
			require.NoError(t, p.Granted(lab.Soon).Release(t.Context())) // long before the next heartbeat
		}
	}
}

// A command that is meant for another node of a Cluster is never answered by this one.
func TestClientOfOneNodeOfAClusterIsToldSo(t *testing.T) {
	t.Parallel()
	cluster := redistest.NewCluster(t)
	key := func(i int) string { return fmt.Sprintf("holdfast:2:mutex:%d", i) }
	here, there := cluster.Owner(t, key(0)), 1
	for cluster.Owner(t, key(there)).Addr() == here.Addr() {
		there++
	}
	c := holdfast.New(here.Client(t))
	defer func() { require.NoError(t, c.Close()) }()
	mu := c.Mutex(fmt.Sprint(there))
	for what, err := range lab.ErrorsOf(t, mu) {
		require.ErrorContains(t, err, "redis.NewClusterClient", what)
	}
	require.Contains(t, lab.Panics(t, mu.Lock), "redis.NewClusterClient")
}
