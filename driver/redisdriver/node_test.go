package redisdriver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// several is more callers than each have a call of their own where the server is far, or slow.
const several = 12

// island is a Cluster, and a driver of a client on a wire.
type island struct {
	*redistest.Cluster
	d   *redisdriver.Driver
	rdb *redis.ClusterClient
	w   *wire
}

func onIsland(t *testing.T, c *redistest.Cluster, mods ...func(*redis.ClusterOptions)) *island {
	t.Helper()
	i := &island{Cluster: c, rdb: c.Client(t, mods...), w: &wire{}}
	i.rdb.AddHook(i.w)
	i.d = redisdriver.New(i.rdb)
	t.Cleanup(func() { require.NoError(t, i.d.Close()) })
	return i
}

// beside returns n names of mutexes on the node of another, each in a slot of its own.
func (i *island) beside(t *testing.T, other, format string, n int) (names []string) {
	t.Helper()
	for k := 0; len(names) < n; k++ {
		if name := fmt.Sprintf(format, k); i.d.Node(driver.Mutex, name) == i.d.Node(driver.Mutex, other) {
			names = append(names, name)
		}
	}
	return names
}

// gather has callers ask for mutexes of one node in that order: the first with a call of its own, and the
// others behind it. It returns what they are answered.
func (i *island) gather(t *testing.T, who string, names ...string) map[string]driver.Status {
	t.Helper()
	open := i.w.shut(func(n int, _ run) bool { return n == 0 })
	defer open()
	var mu sync.Mutex
	answers := map[string]driver.Status{}
	var all sync.WaitGroup
	for n, name := range names {
		all.Go(func() {
			g, err := i.ask(who, name)
			mu.Lock()
			defer mu.Unlock()
			assert.NoError(t, err, name)
			answers[name] = g.Status
		})
		i.awaitCaller(t, n)
	}
	open()
	all.Wait()
	return answers
}

// try has callers of mutexes of one node share a call, so that the driver knows what the node can do.
func (i *island) try(t *testing.T, names ...string) {
	t.Helper()
	until(t, "a shared call", func(int) bool {
		i.gather(t, "early", names...)
		return i.w.shares(i.key(names[len(names)-1]))
	})
}

// awaitCaller returns when a caller waits behind a call and the n-1 that came before. Or it goes alone,
// since the call has had no answer for long.
func (i *island) awaitCaller(t *testing.T, n int) {
	require.Eventually(t, func() bool {
		calls := len(i.w.seen())
		return calls > 1 || calls == 1 && i.d.Waiting() == n
	}, 10*time.Second, 100*time.Microsecond)
}

// runs is how many runs were for a mutex.
func (i *island) runs(name string) (n int) {
	for _, r := range i.w.seen() {
		if slices.Contains(r.keys, i.key(name)) {
			n++
		}
	}
	return n
}

// A Cluster takes time to start, so it is the scene of several things.
func TestNodesOfACluster(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t)
	replaces(t, c, false)
	for _, scene := range []struct {
		name string
		body func(*testing.T, *redistest.Cluster)
	}{
		{"CallersOfEachNodeShareCalls", callersOfEachNodeShareCalls},
		{"SlotThatMovesTakesNoNeighbourAlong", slotThatMovesTakesNoNeighbourAlong},
		{"NodeThatHangsHoldsUpOnlyItsOwn", nodeThatHangsHoldsUpOnlyItsOwn},
		{"RenewalsShareCallsOfANode", renewalsShareCallsOfANode},
		{"CallsToADistantNodeLeaveNoLockOut", callsToADistantNodeLeaveNoLockOut},
		{"LooksShareCallsOfANode", looksShareCallsOfANode},
		{"KeysThatAreChangedOnTheirWayGoAlone", keysThatAreChangedOnTheirWayGoAlone},
		{"NodeThatServesOtherKeysGetsEachAlone", nodeThatServesOtherKeysGetsEachAlone},
		{"ClientForReadingSharesNoCalls", clientForReadingSharesNoCalls},
		{"NodeThatIsDownIsNotAskedAgainForEach", nodeThatIsDownIsNotAskedAgainForEach},
		{"SlotsMoveWhileCallsRun", slotsMoveWhileCallsRun},
		{"MastersAreReplacedWhileCallsRun", mastersAreReplacedWhileCallsRun},
	} {
		t.Run(scene.name, func(t *testing.T) { scene.body(t, c) })
	}
}

// replaces says whether a master that seems to be gone is replaced. One that stands still for 2 s seems
// to be, and what it has been told last is lost.
func replaces(t *testing.T, c *redistest.Cluster, yes bool) {
	t.Helper()
	no := map[bool]string{true: "no", false: "yes"}[yes]
	for _, node := range c.Nodes {
		require.NoError(t, node.Client(t).ConfigSet(t.Context(), "cluster-replica-no-failover", no).Err())
	}
}

func callersOfEachNodeShareCalls(t *testing.T, c *redistest.Cluster) {
	i := onIsland(t, c, func(o *redis.ClusterOptions) { o.PoolSize = 300 })
	i.w.rtt = 2 * time.Millisecond
	requireNone(t, i.w.crowd(t, i.d, "tried", 200)) // and so are the nodes
	until(t, "shared calls", func(round int) bool {
		requireNone(t, i.w.crowd(t, i.d, fmt.Sprint("many", round, "-"), 200))
		all, most := locksIn(i.w.seen())
		require.Equal(t, 200, all, "each is asked for once")
		require.LessOrEqual(t, most, 64, "for no longer may a call hold up the server")
		for _, r := range i.w.seen() {
			for _, key := range r.keys {
				require.Same(t, c.Owner(t, r.keys[0]), c.Owner(t, key), "a call is for locks of one node")
			}
		}
		return len(i.w.seen()) < 100
	})
	i.d.Batch(false)
	requireNone(t, i.w.crowd(t, i.d, "off", 60))
	require.Len(t, i.w.seen(), 60)
}

// One call is for a lock that has moved ahead of its slot, one whose slot moves but which is still
// there, one of that slot that was never used, one whose slot is another node's by now, and some
// of others. The client has heard of none of that.
func slotThatMovesTakesNoNeighbourAlong(t *testing.T, c *redistest.Cluster) {
	until(t, "a shared call", func(round int) bool {
		i := onIsland(t, c)
		first := fmt.Sprint("ship", round)
		tags := i.beside(t, first, fmt.Sprintf("{%d-%%d}", round), 3)
		ahead, still, unused, given := tags[0]+"ahead", tags[1]+"still", tags[1]+"unused", tags[2]+"given"
		neighbours := i.beside(t, first, fmt.Sprintf("neighbour%d-%%d", round), several)
		i.try(t, append(neighbours, first)...)
		for _, name := range append(neighbours, first) {
			require.NoError(t, i.d.Release(t.Context(), i.lease("early", name)))
		}
		held := []string{ahead, still, given}
		for _, name := range held {
			g, err := i.ask("holder", name)
			require.NoError(t, err)
			require.Equal(t, driver.Granted, g.Status)
		}
		there := c.OtherMaster(t, i.key(first))
		one, two := c.Move(t, i.key(ahead), there), c.Move(t, i.key(still), there)
		one.Carry(t)
		c.Move(t, i.key(given), there).Finish(t)

		answers := i.gather(t, "late", append([]string{first, ahead, still, unused, given}, neighbours...)...)
		for _, name := range held {
			require.Equal(t, driver.Busy, answers[name], name)
		}
		for _, name := range append(neighbours, first, unused) {
			require.Equal(t, driver.Granted, answers[name], name)
		}
		all := true // else the call before was so long that some went alone at once
		for _, name := range append(neighbours, ahead, still, unused, given) {
			all = all && i.w.shares(i.key(name))
		}
		asked := map[string]int{}
		for _, name := range append(neighbours, first, ahead, still, unused, given) {
			asked[name] = i.runs(name)
		}
		one.Finish(t)
		two.Finish(t)
		for name, status := range answers {
			g, err := i.ask("third", name)
			require.NoError(t, err)
			require.Equal(t, driver.Busy, g.Status, name)
			who := "late"
			if status == driver.Busy {
				who = "holder"
			}
			require.NoError(t, i.d.Release(t.Context(), i.lease(who, name)), "%s was lost", name)
		}
		for _, name := range append(neighbours, first, still) {
			require.True(t, !all || asked[name] == 1, "%s is asked for once", name)
		}
		for _, name := range []string{ahead, unused, given} {
			require.True(t, !all || asked[name] == 2, "%s is not there, and goes alone", name)
		}
		return all
	})
}

// Callers of the other nodes share calls meanwhile.
func nodeThatHangsHoldsUpOnlyItsOwn(t *testing.T, c *redistest.Cluster) {
	i := onIsland(t, c)
	i.w.rtt = 2 * time.Millisecond
	requireNone(t, i.w.crowd(t, i.d, "tried", 200))
	until(t, "shared calls", func(round int) bool { return i.callsPastANodeThatHangs(t, fmt.Sprint("hang", round, "-")) < 1./2 })
}

// callsPastANodeThatHangs is how many calls each caller of the other nodes takes.
func (i *island) callsPastANodeThatHangs(t *testing.T, prefix string) float64 {
	hangs := i.d.Node(driver.Mutex, "hangs")
	open := i.w.shut(func(_ int, r run) bool {
		return i.d.Node(driver.Mutex, strings.TrimPrefix(r.keys[0], i.key(""))) == hangs
	})
	var theirs, others sync.WaitGroup
	defer theirs.Wait()
	defer open()
	n := 0
	for k := range 200 {
		name := fmt.Sprint(prefix, k)
		ask := func() {
			if _, err := i.ask("somebody", name); err != nil {
				t.Error(err)
			}
		}
		if i.d.Node(driver.Mutex, name) == hangs {
			theirs.Go(ask)
		} else {
			n++
			others.Go(ask)
		}
	}
	others.Wait()
	calls := 0
	for _, r := range i.w.seen() {
		if i.d.Node(driver.Mutex, strings.TrimPrefix(r.keys[0], i.key(""))) != hangs {
			calls++
		}
	}
	return float64(calls) / float64(n)
}

func renewalsShareCallsOfANode(t *testing.T, c *redistest.Cluster) {
	i := onIsland(t, c)
	names := i.beside(t, "renewed", "lease%d", 100)
	tag := i.beside(t, "renewed", "{tag%d}", 1)[0]
	names[99] = tag + "lease"
	var leases []driver.Lease
	for _, name := range names {
		_, err := i.ask("somebody", name)
		require.NoError(t, err)
		leases = append(leases, i.lease("somebody", name))
	}
	requireNone(t, i.d.Renew(t.Context(), leases)) // the scripts are known
	piped := func() int {
		i.w.piped = 0
		requireNone(t, i.d.Renew(t.Context(), leases))
		return i.w.piped
	}
	require.Equal(t, 100, piped(), "nobody knows yet what the node can do")
	i.try(t, i.beside(t, "renewed", "others%d", several)...)
	piped() // those scripts are known, too
	require.Equal(t, 2, piped())

	m := c.Move(t, i.key(names[99]), c.OtherMaster(t, i.key(names[99])))
	m.Carry(t)
	piped() // the node that it goes to knows the script, too
	require.Equal(t, 3, piped(), "that one goes alone")
	m.Finish(t)
	require.Equal(t, 3, piped())

	leases = leases[:99] // which are there
	contend(t, i.d, leases)
	piped()
	i.w.pipes = nil
	piped()
	require.Len(t, i.w.pipes, 2, "trips")
}

func callsToADistantNodeLeaveNoLockOut(t *testing.T, c *redistest.Cluster) {
	near, far := onIsland(t, c), onIsland(t, c)
	names := near.beside(t, "distant", "held%d", 60)
	for _, name := range names {
		_, err := near.ask("holder", name)
		require.NoError(t, err)
	}
	far.w.rtt = 40 * time.Millisecond
	far.try(t, far.beside(t, "distant", "tried%d", several)...)
	until(t, "shared calls", func(round int) bool {
		for _, status := range far.gather(t, fmt.Sprint("late", round), names...) {
			require.Equal(t, driver.Busy, status)
		}
		all, most := locksIn(far.w.seen())
		require.Equal(t, len(names), all, "each is asked for once")
		return most > 8
	})
}

// tenancy is a hook that keeps the programs of some users apart: it adds a name to all keys.
type tenancy struct{ through }

func (tenancy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); strings.HasPrefix(cmd.Name(), "eval") {
			for k, key := range args[3 : 3+args[2].(int)] {
				args[3+k] = "tenant:" + strings.TrimPrefix(key.(string), "tenant:")
			}
		}
		return next(ctx, cmd)
	}
}

// A lock that has two keys has two holders.
func keysThatAreChangedOnTheirWayGoAlone(t *testing.T, c *redistest.Cluster) {
	one, other := onIsland(t, c), onIsland(t, c)
	for _, i := range []*island{one, other} {
		i.rdb.AddHook(tenancy{})
		i.w.rtt = 2 * time.Millisecond
	}
	other.d.Batch(false)
	requireNone(t, one.w.crowd(t, one.d, "tenant", 100))
	for k := range 100 {
		g, err := other.ask("another", fmt.Sprint("tenant", k))
		require.NoError(t, err)
		require.Equal(t, driver.Busy, g.Status)
	}
}

// careless is a hook that stands for nodes that let a script use all keys.
type careless struct {
	through
	asked atomic.Int64
}

func (h *careless) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && procedure(cmd) == asksANode {
			h.asked.Add(1)
			answer(cmd, int64(0))
		}
		return err
	}
}

func nodeThatServesOtherKeysGetsEachAlone(t *testing.T, c *redistest.Cluster) {
	i := onIsland(t, c)
	i.w.rtt = 2 * time.Millisecond
	h := &careless{}
	i.rdb.AddHook(h)
	requireNone(t, i.w.crowd(t, i.d, "careless", 100))
	requireNone(t, i.w.crowd(t, i.d, "later", 100))
	_, most := locksIn(i.w.seen())
	require.Equal(t, 1, most)
	require.Less(t, h.asked.Load(), int64(30), "a node is not asked again at once")
}

// A master that was made a replica answers such a client what it knows, which may be old.
func clientForReadingSharesNoCalls(t *testing.T, c *redistest.Cluster) {
	i := onIsland(t, c, func(o *redis.ClusterOptions) { o.RouteRandomly = true })
	i.w.rtt = 2 * time.Millisecond
	requireNone(t, i.w.crowd(t, i.d, "reader", 60))
	require.Len(t, i.w.seen(), 60)
}

// A node that lacks a slot serves nothing.
func nodeThatIsDownIsNotAskedAgainForEach(t *testing.T, c *redistest.Cluster) {
	i := onIsland(t, c)
	names := i.beside(t, "down", "down%d", several)
	i.try(t, names...)
	node := c.Owner(t, i.key(names[0])).Client(t)
	slot := node.ClusterKeySlot(t.Context(), i.key("down")).Val()
	require.NoError(t, node.ClusterDelSlots(t.Context(), int(slot)).Err())
	defer c.RequireWhole()
	defer func() { require.NoError(t, node.ClusterAddSlots(context.Background(), int(slot)).Err()) }()
	require.Eventually(t, func() bool {
		return strings.Contains(node.ClusterInfo(t.Context()).Val(), "cluster_state:fail")
	}, 10*time.Second, time.Millisecond)

	until(t, "a shared call", func(int) bool {
		open := i.w.shut(func(n int, _ run) bool { return n == 0 })
		var all sync.WaitGroup
		for n, name := range names {
			all.Go(func() {
				_, err := i.ask("late", name)
				assert.ErrorIs(t, err, driver.ErrTransient, name)
				assert.ErrorIs(t, err, driver.ErrNotExecuted, name)
				assert.ErrorContains(t, err, "CLUSTERDOWN", name)
			})
			i.awaitCaller(t, n)
		}
		open()
		all.Wait()
		for _, name := range names {
			require.Equal(t, 1, i.runs(name), name)
		}
		return i.w.shares(i.key(names[several-1]))
	})
}

// rush is clients that go in and out of locks, each all at once, and a referee beside them.
type rush struct {
	t       *testing.T
	clients []*island
	names   []string
	keeps   bool // the store loses nothing

	mu      sync.Mutex
	inside  map[string]time.Time // until when who is inside may trust its lease
	fences  map[string]int64
	visits  map[string]int
	tickets int
}

const rushTTL = 5 * time.Second // far longer than a visit

func newRush(t *testing.T, c *redistest.Cluster, name string) *rush {
	r := &rush{t: t, clients: []*island{onIsland(t, c), onIsland(t, c)}, inside: map[string]time.Time{}, fences: map[string]int64{}, visits: map[string]int{}}
	r.names = r.clients[0].beside(t, name, name+"%d", several)
	return r
}

// during has them go in and out while something happens.
func (r *rush) during(happens func()) {
	ctx, end := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer end()
	for _, i := range r.clients {
		all.Go(func() {
			for ctx.Err() == nil {
				var together sync.WaitGroup
				for _, name := range r.names {
					together.Go(func() { r.visit(i, name) })
				}
				together.Wait()
				time.Sleep(30 * time.Millisecond) // nodes that get no time do not elect a master
			}
		})
	}
	happens()
}

func (r *rush) visit(i *island, name string) {
	r.mu.Lock()
	r.tickets++
	ask := askFor(name)
	ask.Token, ask.TTL = fmt.Sprint("ticket", r.tickets), rushTTL
	r.mu.Unlock()
	trusted := time.Now().Add(rushTTL)
	g, err := i.d.Acquire(context.Background(), ask)
	if err == nil && g.Status != driver.Granted {
		return
	}
	held := err == nil
	if held {
		r.mu.Lock()
		if now := time.Now(); now.Before(trusted) { // else the machine stood still
			assert.False(r.t, now.Before(r.inside[name]) && r.keeps, "FOUL: two are inside %s", name)
			assert.Greater(r.t, g.Fence, r.fences[name], "FOUL: a fence of %s is not beyond the last", name)
		}
		r.inside[name], r.fences[name] = trusted, max(g.Fence, r.fences[name])
		r.visits[name]++
		r.mu.Unlock()
		time.Sleep(time.Millisecond)
		r.mu.Lock()
		delete(r.inside, name)
		r.mu.Unlock()
	}
	l := driver.Lease{Kind: driver.Mutex, Name: name, Token: ask.Token, TTL: rushTTL, Unsettled: !held}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := i.d.Release(context.Background(), l)
		switch {
		case err == nil, errors.Is(err, driver.ErrNotHeld) && !(held && r.keeps):
			return
		case errors.Is(err, driver.ErrNotHeld):
			assert.Fail(r.t, "a lock was lost", name)
			return
		case time.Now().After(end):
			assert.NoError(r.t, err, name)
			return
		}
		held, l.Unsettled = false, true // perhaps it was released
	}
}

// reaches returns when a lock has been held again.
func (r *rush) reaches(names ...string) {
	r.t.Helper()
	count := func(name string) int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.visits[name]
	}
	for _, name := range names {
		before := count(name)
		require.Eventually(r.t, func() bool { return count(name) > before }, 30*time.Second, time.Millisecond, name)
	}
}

// shares returns when both clients have shared calls for locks of the node again.
func (r *rush) shares() {
	r.t.Helper()
	for _, i := range r.clients {
		i.w.shut(nil)()
		require.Eventually(r.t, func() bool {
			return slices.ContainsFunc(r.names, func(name string) bool { return i.w.shares(i.key(name)) })
		},
			30*time.Second, time.Millisecond)
	}
}

// gone is how many locks were not where calls were sent.
func (r *rush) gone() (n int) {
	for _, i := range r.clients {
		i.w.mu.Lock()
		n += i.w.gone
		i.w.mu.Unlock()
	}
	return n
}

// Each slot is on its way for a while, with its lock at either end.
func slotsMoveWhileCallsRun(t *testing.T, c *redistest.Cluster) {
	r := newRush(t, c, "moving")
	r.keeps = true
	there := c.OtherMaster(t, r.clients[0].key(r.names[0]))
	r.during(func() {
		r.shares()
		for _, name := range r.names[:5] {
			m := c.Move(t, r.clients[0].key(name), there)
			r.reaches(name)
			before := r.gone()
			m.Carry(t)
			require.Eventually(t, func() bool { return r.gone() > before }, 30*time.Second, time.Millisecond, "it is asked for where it was")
			r.reaches(name)
			m.Finish(t)
			r.reaches(name)
		}
		r.reaches(r.names...)
		r.shares()
	})
}

// A master gives way to its replica, is killed, and comes back as a server that knows no script.
func mastersAreReplacedWhileCallsRun(t *testing.T, c *redistest.Cluster) {
	redistest.SoakOnly(t) // a node seems to be gone for seconds before it is replaced
	r := newRush(t, c, "replaced")
	key := r.clients[0].key(r.names[0])
	first := c.Owner(t, key)
	r.keeps = true
	r.during(func() {
		r.shares()
		c.Swap(t, first)
		c.AwaitNewOwner(t, key, first)
		r.reaches(r.names...)
		r.shares()
	})
	c.RequireWhole()
	second := c.Owner(t, key)
	r.keeps = false // the last moments may be lost
	replaces(t, c, true)
	r.during(func() {
		r.shares()
		second.Kill()
		c.AwaitNewOwner(t, key, second)
		r.reaches(r.names...)
		r.shares()
	})
	second.Restart()
	c.RequireWhole()
	replaces(t, c, false)
	r.keeps = true
	r.during(func() {
		c.Swap(t, c.Owner(t, key))
		require.Same(t, second, c.AwaitNewOwner(t, key, first))
		r.reaches(r.names...)
		r.shares()
	})
}

// ask asks for a mutex with a token of its own.
func (i *island) ask(who, name string) (driver.Grant, error) {
	r := askFor(name)
	r.Token = who + "-" + name
	return i.d.Acquire(context.Background(), r)
}

func (i *island) lease(who, name string) driver.Lease {
	return driver.Lease{Kind: driver.Mutex, Name: name, Token: who + "-" + name, TTL: time.Minute}
}

func (i *island) key(name string) string { return i.d.Key(driver.Mutex, name) }
