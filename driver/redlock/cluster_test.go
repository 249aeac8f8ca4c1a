package redlock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redlock"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

const ttl = 5 * time.Second

// quorum is some real servers, and how locks are kept on them.
type quorum struct {
	*testing.T
	kind
	servers []*redistest.Server
}

func newQuorum(t *testing.T, k kind, n int) *quorum { return &quorum{t, k, reals(t, n)} }

// node returns another driver of one server, which the test closes.
func (q *quorum) node(i int, mods ...func(*redis.Options)) driver.Driver {
	return q.kind(q.servers[i].Client(q, mods...), "test:")
}

// nodes returns another driver of each server.
func (q *quorum) nodes(mods ...func(*redis.Options)) []driver.Driver {
	var nodes []driver.Driver
	for i := range q.servers {
		nodes = append(nodes, q.node(i, mods...))
	}
	return nodes
}

// options are those of a driver over servers that have just been started. How long a node may take
// is mostly not the subject, and a machine that stands still must not cost votes.
func options(opts []redlock.Option) []redlock.Option {
	return append([]redlock.Option{redlock.WithDelayedRestart(0), redlock.WithTimeout(5 * time.Second)}, opts...)
}

// driver returns another driver over all of them, as another process would have one. The
// servers have just been started.
func (q *quorum) driver(opts ...redlock.Option) driver.Driver {
	q.Helper()
	return q.over(q.nodes(), opts...)
}

func (q *quorum) over(nodes []driver.Driver, opts ...redlock.Option) driver.Driver {
	q.Helper()
	d := redlock.New(nodes, options(opts)...)
	q.Cleanup(func() { assert.NoError(q, d.Close()) })
	return d
}

// fast is for nodes that are down: go-redis would try to connect for a while.
func fast(o *redis.Options) { o.MaxRetries, o.DialerRetries = -1, 1 }

// client returns another client that keeps its locks there.
func (q *quorum) client(opts ...redlock.Option) *holdfast.Client {
	q.Helper()
	c := holdfast.Open(redlock.New(q.nodes(), options(opts)...))
	q.Cleanup(func() { assert.NoError(q, c.Close()) })
	return c
}

// occupy takes the lock on one node.
func (q *quorum) occupy(i int, token string) (release func()) {
	q.Helper()
	d := q.node(i)
	g, err := d.Acquire(q.Context(), request(token))
	require.NoError(q, err)
	require.Equal(q, driver.Granted, g.Status, "node %d", i)
	return func() {
		q.Helper()
		require.NoError(q, d.Release(q.Context(), lease(token)))
		require.NoError(q, d.Close())
	}
}

// requireFree requires that nothing of the lock is left on a node.
func (q *quorum) requireFree(i int) {
	q.Helper()
	require.Eventually(q, func() bool {
		d := q.node(i)
		defer func() { require.NoError(q, d.Close()) }()
		g, err := d.Acquire(q.Context(), request("probe"))
		if err != nil || g.Status != driver.Granted {
			return false
		}
		return d.Release(q.Context(), lease("probe")) == nil
	}, ttl*4/5, 5*time.Millisecond, "node %d is not free before a lease would end by itself", i)
}

func request(token string) *driver.Request {
	return &driver.Request{Kind: driver.Mutex, Name: "orders", Token: token, Ask: 1, TTL: ttl}
}

func lease(token string) driver.Lease {
	return driver.Lease{Kind: driver.Mutex, Name: "orders", Token: token, TTL: ttl}
}
