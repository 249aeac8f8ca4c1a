package zkdriver_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/contend"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/internal/test/zktest"
)

// chaosFor is how long TestChaos lasts:
//
//	HOLDFAST_SOAK=1 go test -run TestChaos -timeout 30m -v . -chaos 10m
var chaosFor = flag.Duration("chaos", 30*time.Second, "how long TestChaos lasts, with HOLDFAST_SOAK=1")

// chaos is three members, and clients of them in processes of their own, to all of which something
// happens all the time.
type chaos struct {
	*testing.T
	mesh    *zktest.Mesh
	members []*zktest.Server
	referee *contend.Referee
	crew    []*contend.Contender
}

// faults are what happens. Each is over when it returns.
var faults = []struct {
	name string
	do   func(*chaos)
}{
	{"the leader is killed", func(c *chaos) {
		old := c.leader()
		old.Kill()
		c.rest()
		old.Restart()
	}},
	{"the leader is paused", func(c *chaos) { c.pause(c.leader()) }},
	{"a follower is paused", func(c *chaos) { c.pause(c.follower()) }},
	{"the leader is cut off", func(c *chaos) { c.cutOff(c.leader()) }},
	{"a follower is cut off", func(c *chaos) { c.cutOff(c.follower()) }},
	{"a client is paused", func(c *chaos) {
		one := c.crew[rand.IntN(len(c.crew))]
		one.Pause()
		c.rest()
		one.Resume()
	}},
	{"a client is killed", func(c *chaos) {
		i := rand.IntN(len(c.crew))
		c.crew[i].Kill()
		c.crew[i] = c.client()
	}},
}

func TestChaos(t *testing.T) {
	redistest.SoakOnly(t)
	c := &chaos{T: t, mesh: zktest.NewMesh(t), referee: contend.NewReferee(t)}
	c.members = zktest.Ensemble(t, 3, c.mesh.Reach)
	for range 6 {
		c.crew = append(c.crew, c.client())
	}
	times := map[string]int{}
	order := rand.Perm(len(faults)) // so that a short run has each of them
	for began := time.Now(); time.Since(began) < *chaosFor; {
		f := faults[order[0]]
		if order = order[1:]; len(order) == 0 {
			order = rand.Perm(len(faults))
		}
		before, at := c.referee.Count(), time.Now()
		f.do(c)
		c.referee.Advances(10)
		times[f.name]++
		t.Logf("%6v %s: %d holds within %v", time.Since(began).Round(time.Second), f.name, c.referee.Count()-before, time.Since(at).Round(time.Millisecond))
	}
	for _, one := range c.crew {
		one.Kill()
	}
	holds := c.referee.Decide()
	t.Logf("%d holds; %v", holds, times)
}

// client starts one that knows all members.
func (c *chaos) client() *contend.Contender {
	one := c.referee.Contender(contend.Kinds[0], zktest.Addrs(c.members)...)
	one.Tell("hammer")
	return one
}

func (c *chaos) leader() *zktest.Server { return zktest.Leader(c, c.members) }

func (c *chaos) follower() *zktest.Server {
	return zktest.Others(c.members, c.leader())[rand.IntN(len(c.members)-1)]
}

// rest is for about as long as a lease: sometimes it ends, sometimes not.
func (c *chaos) rest() { time.Sleep(contend.TTL/3 + rand.N(3*contend.TTL)) }

func (c *chaos) pause(member *zktest.Server) {
	member.Pause()
	c.rest()
	member.Resume()
	c.well()
}

func (c *chaos) cutOff(member *zktest.Server) {
	at := slices.Index(c.members, member)
	c.mesh.CutOff(at, true)
	c.rest()
	c.mesh.CutOff(at, false)
	c.well()
}

// well waits until all members serve: two of three may not be away at the same time.
func (c *chaos) well() {
	c.Helper()
	require.Eventually(c, func() bool {
		return !slices.ContainsFunc(c.members, func(m *zktest.Server) bool { return m.Mode() == "" })
	}, contend.Patience, 100*time.Millisecond)
}
