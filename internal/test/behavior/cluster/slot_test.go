package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/getset"
	"github.com/holdfast-go/holdfast/driver/redisson"
	"github.com/holdfast-go/holdfast/driver/setnx"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// What happens to locks while their slot moves to another node.

// The slot is half-open for seconds, in both of its halves, while everybody waits.
func waitersFollowTheirSlot(t *testing.T, c *city) {
	const name = "{street}1"
	// A client that listens on the node that gives the slot away seems gone to the other, which
	// passes it over until its next heartbeat.
	clients := c.residents(t, 5, holdfast.WithTTL(6*time.Second))
	all := throngs(t, name, clients, 10)
	for _, w := range all {
		w.everybody(2, lab.Soon*2)
	}
	from := c.Owner(t, c.key(driver.Mutex, name))
	m := c.Move(t, c.key(driver.Mutex, name), c.OtherMaster(t, c.key(driver.Mutex, name)))
	time.Sleep(time.Second)
	m.Carry(t)
	for _, w := range all {
		w.everybody(1, 2*lab.Soon)
	}
	time.Sleep(time.Second)
	m.Finish(t)
	require.NotSame(t, from, c.Owner(t, c.key(driver.Mutex, name)))
	for kind, w := range all {
		w.everybody(2, 2*lab.Soon)
		w.disperse()
		assert.Zero(t, w.lost, "a slot that moves takes no lease away")
		requireUnused(t, kindsOf(clients[0], name)[kind])
	}
}

// A lock that gets its first waiter changes its form. That must not fail half done at the node
// that the slot is leaving, which cannot write a key that is missing.
func firstWaiterComesWhileTheSlotMoves(t *testing.T, c *city) {
	// Each in a slot of its own: to move one twice takes time.
	name := func(kind driver.Kind) string { return fmt.Sprintf("{square of the %s}1", kind) }
	alone := func(locks *holdfast.Client) map[driver.Kind]lab.Leasing {
		return map[driver.Kind]lab.Leasing{
			driver.Mutex: locks.Mutex(name(driver.Mutex)).Lease, driver.RWMutex: locks.RWMutex(name(driver.RWMutex)).Lease,
			driver.Semaphore: lab.Permits(locks.Semaphore(name(driver.Semaphore), lab.CrowdOf), lab.CrowdOf),
		}
	}
	// The node that gets the slot may not have seen anybody listen, see above.
	soon := holdfast.WithTTL(6 * time.Second)
	locks, others := c.client(t, soon), c.client(t, soon)
	l := &lab.Lab{T: t}
	for kind, acquire := range alone(locks) {
		lease := l.Take(acquire)
		key := c.key(kind, name(kind))
		m := c.Move(t, key, c.OtherMaster(t, key))
		next := l.Ask(alone(others)[kind])
		require.Eventually(t, func() bool {
			info, err := kindsOf(locks, name(kind))[kind].Inspect(t.Context())
			return err == nil && len(info.Queue) == 1
		}, lab.Soon, time.Millisecond, kind)
		require.NoError(t, lease.Renew(t.Context()), kind)
		m.Finish(t)
		require.NoError(t, lease.Release(t.Context()), kind)
		require.NoError(t, next.Granted(2*lab.Soon).Release(t.Context()), kind)
	}
}

func renewalsFollowTheirSlot(t *testing.T, c *city) {
	const ttl = 3 * time.Second
	locks := c.client(t, holdfast.WithTTL(ttl))
	l := &lab.Lab{T: t}
	// A confirmation has to follow, too: it goes to one node.
	confirm := func(name string) {
		lease, err := locks.Mutex(name, holdfast.WithReplicas(1, lab.Soon)).TryLease(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	}
	var leases []*holdfast.Lease
	for i := range 20 {
		leases = append(leases, l.Take(locks.Mutex(fmt.Sprint("{moving}", i)).Lease), l.Take(locks.Mutex(fmt.Sprint("staying", i)).Lease))
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

// Locks of which others decide what the keys are called, and how many there are. A script
// on two keys has to wait while one of them has been carried over.
func locksOfOtherProtocolsFollowTheirSlot(t *testing.T, c *city) {
	for protocol, open := range map[string]func(redis.UniversalClient) driver.Driver{
		"setnx":    func(rdb redis.UniversalClient) driver.Driver { return setnx.New(rdb) },
		"getset":   func(rdb redis.UniversalClient) driver.Driver { return getset.New(rdb) },
		"redisson": func(rdb redis.UniversalClient) driver.Driver { return redisson.New(rdb) },
	} {
		t.Run(protocol, func(t *testing.T) {
			one, other := c.opened(t, open), c.opened(t, open)
			l := &lab.Lab{T: t}
			for _, name := range []string{"a", "{%s}b", "a{%sb}c", " ", "\xff", "é", strings.Repeat("x", driver.MaxName)} {
				// In slots of their own: to move one twice takes time.
				if name = strings.Replace(name, "%s", protocol, 1); !strings.Contains(name, protocol) {
					name = protocol + name
				}
				name = name[:min(len(name), driver.MaxName)]
				held := l.Take(one.Mutex(name).Lease)
				m := c.Move(t, name, c.OtherMaster(t, name))
				m.Carry(t)
				_, err := other.Mutex(name).TryLease(t.Context())
				require.ErrorIs(t, err, driver.ErrTransient, "%q", name)
				m.Finish(t)
				_, err = other.Mutex(name).TryLease(t.Context())
				require.ErrorIs(t, err, holdfast.ErrLocked, "%q", name)
				require.NoError(t, held.Renew(t.Context()), "%q", name)
				require.NoError(t, held.Release(t.Context()), "%q", name)
				next, err := other.Mutex(name).TryLease(t.Context())
				require.NoError(t, err, "%q", name)
				require.NoError(t, next.Release(t.Context()), "%q", name)
			}
		})
	}
}
