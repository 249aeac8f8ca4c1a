//go:build unix

package lab

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/crew"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/internal/test/referee"
)

// Arena is where the processes of one test compete. The test itself only looks on.
type Arena struct {
	*testing.T
	Server *redistest.Server
	Redis  *redis.Client
	Locks  *holdfast.Client
	TTL    time.Duration
	Kind   driver.Kind
}

// NewArena returns an arena on the shared Redis. The leases of its processes have the TTL.
func NewArena(t *testing.T, ttl time.Duration) *Arena {
	t.Helper()
	s := redistest.Shared(t)
	rdb := s.Client(t)
	a := &Arena{t, s, rdb, holdfast.New(rdb, holdfast.WithPrefix(s.Prefix())), ttl, driver.Mutex}
	t.Cleanup(func() {
		assert.NoError(t, a.Locks.Close())
		assert.NotEmpty(t, s.Keys(t, s.Prefix()))
		s.RequireTTLs(t, s.Prefix())
	})
	return a
}

// lock is one of the kind that the processes compete for.
func (a *Arena) lock(name string) Lock {
	switch a.Kind {
	case driver.RWMutex:
		return a.Locks.RWMutex(name)
	case driver.Semaphore:
		return a.Locks.Semaphore(name, 1)
	}
	return a.Locks.Mutex(name)
}

// Inspect returns what the store knows of the lock.
func (a *Arena) Inspect(lock string) holdfast.Info {
	a.Helper()
	info, err := a.lock(lock).Inspect(a.Context())
	require.NoError(a, err)
	return info
}

// Until looks at the lock until it is as it should be.
func (a *Arena) Until(lock, what string, good func(holdfast.Info) bool) {
	a.Helper()
	for end := time.Now().Add(Patience); ; time.Sleep(time.Millisecond) {
		info := a.Inspect(lock)
		if good(info) {
			return
		}
		if time.Now().After(end) {
			a.Fatalf("never seen: %s; %s", what, a.Situation(lock))
		}
	}
}

// UntilHeldBy waits until the store knows that the process holds the lock.
func (a *Arena) UntilHeldBy(c *Contender, lock string) {
	a.Helper()
	a.Until(lock, fmt.Sprintf("held by %d", c.Pid()), func(i holdfast.Info) bool {
		return len(i.Holders) > 0 && IsFrom(c, i.Holders[0].Holder)
	})
}

// UntilQueued waits until exactly these are in the queue, in whatever order.
func (a *Arena) UntilQueued(lock string, cs ...*Contender) {
	a.Helper()
	a.Until(lock, fmt.Sprintf("%d in the queue", len(cs)), func(i holdfast.Info) bool {
		return len(i.Queue) == len(cs) && !slices.ContainsFunc(cs, func(c *Contender) bool {
			return !slices.ContainsFunc(i.Queue, func(w holdfast.Waiter) bool { return IsFrom(c, w.Holder) })
		})
	})
}

// UntilRenewed waits for the moment when the most of the lease is left.
func (a *Arena) UntilRenewed(lock string) {
	a.Helper()
	left := a.TTL * 2
	a.Until(lock, "renewal", func(i holdfast.Info) bool {
		before := left
		if len(i.Holders) > 0 {
			left = i.Holders[0].TimeLeft
		}
		return left > before
	})
}

// UntilGone waits until the server knows that the process is dead.
func (a *Arena) UntilGone(c *Contender) {
	a.Helper()
	require.Eventually(a, func() bool {
		clients, err := a.Redis.ClientList(a.Context()).Result()
		return err == nil && !strings.Contains(clients, "name="+connectionName(c.Pid())+" ")
	}, Patience, time.Millisecond)
}

// IsFrom reports whether the store names the process as the holder or the waiter.
func IsFrom(c *Contender, holder string) bool {
	return strings.HasSuffix(holder, ":"+strconv.Itoa(c.Pid()))
}

// Situation tells who holds the lock and who waits, for a test that fails.
func (a *Arena) Situation(lock string) string {
	info, err := a.lock(lock).Inspect(a.Context())
	switch {
	case err != nil:
		return err.Error()
	case len(info.Holders) == 0:
		return fmt.Sprintf("%s is free, queue %+v", lock, info.Queue)
	default:
		return fmt.Sprintf("%s is held by %+v, queue %+v", lock, info.Holders, info.Queue)
	}
}

// Rehearse has all but the first wait once, for a client listens for its turn, and
// can be missed, only since it first had to wait.
func (a *Arena) Rehearse(cs []*Contender) {
	a.Helper()
	cs[0].Lease("rehearsal")
	a.Wait("lease", "rehearsal", cs[1:]...)
	require.Eventually(a, func() bool {
		listening, err := a.Redis.PubSubChannels(a.Context(), a.Server.Prefix()+"*").Result()
		return err == nil && len(listening) == len(cs)-1
	}, Patience, time.Millisecond)
	cs[0].Release("rehearsal")
	for _, c := range cs[1:] {
		c.Expect("leased", "rehearsal")
		c.Release("rehearsal")
	}
}

// Wait has the processes ask for the lock, each when the one before is in the queue.
func (a *Arena) Wait(do, lock string, cs ...*Contender) {
	a.Helper()
	for i, c := range cs {
		c.Tell(Order{Do: do, Lock: lock})
		a.UntilQueued(lock, cs[:i+1]...)
	}
}

// Contender is the outside of a process of its own.
type Contender struct {
	*crew.Process
	Arena *Arena
	early []Report // came before they were asked for
}

// endpoint is a server, or what stands before it.
type endpoint interface {
	Network() string
	Addr() string
}

// Contenders starts n processes that use the server.
func (a *Arena) Contenders(n int) []*Contender {
	a.Helper()
	return a.ContendersAt(a.Server, n)
}

// ContendersAt starts n processes that use what stands before the server.
func (a *Arena) ContendersAt(server endpoint, n int) []*Contender {
	a.Helper()
	return a.ContendersAs("contender", server, n)
}

// ContendersAs starts processes of another role. It is registered with crew and calls [Contend].
func (a *Arena) ContendersAs(role string, server endpoint, n int) []*Contender {
	a.Helper()
	cs := make([]*Contender, n)
	for i := range cs {
		cs[i] = &Contender{Arena: a, Process: crew.Start(a, role,
			"CONTENDER_NETWORK="+server.Network(),
			"CONTENDER_ADDR="+server.Addr(),
			"CONTENDER_PREFIX="+a.Server.Prefix(),
			"CONTENDER_TTL="+a.TTL.String(),
		)}
	}
	for _, c := range cs {
		require.Empty(a, c.Expect("ready", "").Err)
	}
	return cs
}

// Expect returns the next report of that kind.
func (c *Contender) Expect(what, lock string) Report {
	c.Arena.Helper()
	asked := func(r Report) bool { return r.What == what && r.Lock == lock }
	if i := slices.IndexFunc(c.early, asked); i >= 0 {
		r := c.early[i]
		c.early = slices.Delete(c.early, i, i+1)
		return r
	}
	for {
		r, err := crew.Listen[Report](c.Process, time.After(crew.Patience))
		switch {
		case err != nil:
			c.Arena.Fatalf("process %d, asked for %s %s: %v; %s", c.Pid(), what, lock, err, c.Arena.Situation(lock))
		case asked(r):
			return r
		case r.What == "refused" && r.Lock == lock:
			c.Arena.Fatalf("process %d: %s; %s", c.Pid(), r.Err, c.Arena.Situation(lock))
		}
		c.early = append(c.early, r)
	}
}

// Lease has the process take the lock, which must be free.
func (c *Contender) Lease(lock string) Report {
	c.Arena.Helper()
	c.Tell(Order{Do: "lease", Lock: lock})
	return c.Expect("leased", lock)
}

// Release has the process give the lock up, which it must still hold.
func (c *Contender) Release(lock string) Report {
	c.Arena.Helper()
	c.Tell(Order{Do: "release", Lock: lock})
	r := c.Expect("released", lock)
	require.Empty(c.Arena, r.Err)
	return r
}

// Queue has the processes ask, each when the one before is in the queue.
func (a *Arena) Queue(o Order, behind []*Contender, cs ...*Contender) {
	a.Helper()
	o.Do, o.Lock = "lease", "l"
	for _, c := range cs {
		c.Tell(o)
		behind = append(behind, c)
		a.UntilQueued("l", behind...)
	}
}

// Kinds have what a process can ask for: a little, beside others, or all there is.
var Kinds = map[driver.Kind]struct{ Little, All Order }{
	driver.RWMutex:   {Order{Kind: "read"}, Order{Kind: "write"}},
	driver.Semaphore: {Order{Kind: "permits", Weight: 1, Limit: 3}, Order{Kind: "permits", Weight: 3, Limit: 3}},
}

// Take has the process lease what is free.
func (c *Contender) Take(o Order) Report {
	c.Arena.Helper()
	o.Do, o.Lock = "lease", "l"
	c.Tell(o)
	return c.Expect("leased", "l")
}

// FleetOf is how many processes a fleet has.
const FleetOf = 4

// Hammer has every process go in and out in as many goroutines as there are orders, before the
// referee, and returns how often they did.
func (a *Arena) Hammer(cs []*Contender, r *referee.Referee, orders ...Order) int64 {
	a.Helper()
	for _, c := range cs {
		for _, o := range orders {
			o.Do, o.Lock = "hammer", "l"
			c.Tell(o)
		}
	}
	return a.Hammered(cs, r, len(orders))
}

// Hammered waits until so many goroutines of every process went in and out for the last time.
func (a *Arena) Hammered(cs []*Contender, r *referee.Referee, each int) int64 {
	a.Helper()
	var all []*referee.Hold
	for _, c := range cs {
		for range each {
			all = append(all, c.Expect("hammered", "l").Holds...)
		}
	}
	r.Judge(all)
	return int64(len(all))
}

// NewFleet returns an arena for locks of that kind, with processes in it.
func NewFleet(t *testing.T, kind driver.Kind, ttl time.Duration) (*Arena, []*Contender) {
	t.Helper()
	a := NewArena(t, ttl)
	a.Kind = kind
	return a, a.Contenders(FleetOf)
}
