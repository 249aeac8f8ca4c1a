package redisdriver

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// groups are where callers gather: one group for the only server, or one for each node of a
// Cluster, so that a node that hangs holds up no others.
//
// The locks of a node are in different slots, and the keys of a command must be in one. So a call
// for many locks has their keys among its arguments, and goes to the node that has the first. A
// lock that this node turns out not to have goes alone, see script/lib/node.lua.
type groups struct {
	room int         // connections of the client to a server
	can  atomic.Bool // calls may be for many locks, as far as we know
	off  atomic.Bool // the user does not want it

	only    *group               // of one server
	cluster *redis.ClusterClient // or nil
	mu      sync.Mutex
	nodes   map[string]*node // by address
}

// node is a node of a Cluster. There are few in the life of a client, so none is forgotten.
type node struct {
	*group
	closed time.Time // callers go alone until then
}

func newGroups(rdb redis.UniversalClient) *groups {
	g := &groups{nodes: map[string]*node{}}
	most := 0
	switch rdb := rdb.(type) {
	case *redis.Client:
		o := rdb.Options()
		g.room, most = o.PoolSize, o.MaxActiveConns
		g.only = g.group("")
		g.only.tried.Store(true)
		g.can.Store(true)
	case *redis.ClusterClient:
		o := rdb.Options()
		g.cluster, g.room, most = rdb, o.PoolSize, o.MaxActiveConns
		// On a connection for reading, a replica lets a script read locks that it cannot write.
		g.can.Store(!o.ReadOnly)
	}
	if most > 0 {
		g.room = min(g.room, most)
	}
	return g
}

func (g *groups) group(addr string) *group {
	return &group{groups: g, addr: addr, unused: sync.Pool{New: newCaller}, began: time.Now()}
}

// of returns the group for a key, nil if each call is to be for one lock.
func (g *groups) of(key any) *group {
	if !g.can.Load() || g.off.Load() {
		return nil
	}
	if g.only != nil {
		return g.only
	}
	addr := redisscript.Node(g.cluster, key.(string))
	if addr == "" {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[addr]
	if n == nil {
		n = &node{group: g.group(addr)}
		g.nodes[addr] = n
	}
	if !n.closed.IsZero() && time.Now().Before(n.closed) {
		return nil
	}
	return n.group
}

// pause is for how long a node is not tried again.
const pause = time.Minute

// close has callers of a node go alone for a while.
func (g *groups) close(addr string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nodes[addr].closed = time.Now().Add(pause)
}

// elsewhere is the answer for a lock that the node of a call does not have.
const elsewhere = "elsewhere"

// separable reports whether each of many whose call failed is to go alone, once. From now on
// all calls are for one lock if the keys are in different slots, as behind a proxy in front of
// several servers.
func (g *groups) separable(err error) bool {
	if redis.HasErrorPrefix(err, "CROSSSLOT") {
		g.can.Store(false)
	}
	return redisscript.Separable(err)
}

// several makes a call for several locks of one server.
//
// A server that speaks like a node of a Cluster need not be one. It may let a script use a key that
// others look for elsewhere, or a proxy or hook may change the keys that are declared. Then two
// would hold the lock. So a node is tried first, once.
func (d *Driver) several(ctx context.Context, g *group, call redisscript.Call) (any, error) {
	if !g.tried.Load() {
		keeps, err := d.keepsToItsKeys(ctx, g, call.Key())
		if err != nil {
			return nil, redisscript.Unwritten(err)
		}
		if !keeps {
			g.close(g.addr)
			return nil, errUndeclared
		}
		g.tried.Store(true)
	}
	return d.value(ctx, call)
}

var errUndeclared = redisscript.Refusal(errors.New("redisdriver: this node is not known to run scripts for its own keys alone"))

// keepsToItsKeys reports whether the node that has the key lets scripts use its own keys, declared
// or not, and no others. It needs a second node to find out.
func (d *Driver) keepsToItsKeys(ctx context.Context, g *group, key string) (bool, error) {
	for i := range 100 { // others may have few slots
		other := d.channel.base + "node:" + strconv.Itoa(i)
		if at := redisscript.Node(g.cluster, other); at == g.addr || at == "" {
			continue
		}
		v, err := d.value(ctx, nodeScript.one().On("cluster", 2, key).With(key, other))
		if redisscript.Answered(err) && redisscript.Separable(err) {
			return false, nil // it lets scripts use what is declared, and nothing else
		}
		return v == int64(1), err
	}
	return false, nil
}
