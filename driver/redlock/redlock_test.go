package redlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redlock"
	"github.com/holdfast-go/holdfast/internal/test/behavior"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestNewPanicsWithoutAMajorityToSpeakOf(t *testing.T) {
	s := redistest.Mini(t)
	node := func() driver.Driver { return native(s.Client(t), "test:") }
	a, b, c, d := node(), node(), node(), node()
	for name, nodes := range map[string][]driver.Driver{
		"none": nil, "one": {a}, "two": {a, b}, "four": {a, b, c, d}, "nil": {a, b, nil}, "twice": {a, b, a},
		"no uptime": {a, b, struct{ driver.Driver }{c}},
	} {
		require.Panics(t, func() { redlock.New(nodes) }, name)
	}
	require.NotPanics(t, func() {
		redlock.New([]driver.Driver{a, b, struct{ driver.Driver }{c}}, redlock.WithDelayedRestart(0))
	})
	require.Panics(t, func() { redlock.WithTimeout(0) })
	require.Panics(t, func() { redlock.WithDelayedRestart(-1) })
	for _, n := range []driver.Driver{a, b, c, d} {
		require.NoError(t, n.Close())
	}
}

// Permits counted on each node by itself are more in all than there are: each of 3 nodes
// with a limit of 2 has 2 votes, which is enough for 3 majorities.
func TestSemaphoresAreRefused(t *testing.T) {
	q := newQuorum(t, native, 3)
	locks := q.client()
	_, err := locks.Semaphore("orders", 2).TryLease(t.Context(), 1)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = locks.RWMutex("orders").TryRLease(t.Context())
	require.NoError(t, err)
}

// Package deadlock finds no circle where nobody shows what holders say of themselves, and says so.
func TestCirclesAreFoundIfTheNodesShowThem(t *testing.T) {
	for name, k := range map[string]kind{"native": native, "plain": plain} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := opener(k, reals(t, 3))
			behavior.Circles(t, func(tb testing.TB, opts ...holdfast.Option) *holdfast.Client {
				return holdfast.Open(open(t), opts...)
			})
		})
	}
}

func TestAbilitiesAreThoseOfTheNodes(t *testing.T) {
	n, s := newQuorum(t, native, 3).driver(), newQuorum(t, plain, 3).driver()
	for name, able := range map[string]func(driver.Driver) bool{
		"inspect":   func(d driver.Driver) bool { _, ok := driver.As[driver.Inspector](d); return ok },
		"force":     func(d driver.Driver) bool { _, ok := driver.As[driver.Forcer](d); return ok },
		"downgrade": func(d driver.Driver) bool { _, ok := driver.As[driver.Downgrader](d); return ok },
	} {
		require.True(t, able(n), name)
		require.False(t, able(s), name)
	}
}

// A node that has just been started may have been restarted: it may have voted for another.
func TestYoungNodesDoNotCount(t *testing.T) {
	q := newQuorum(t, native, 3)
	d := q.driver(redlock.WithDelayedRestart(time.Hour))
	_, err := d.Acquire(t.Context(), request("young"))
	require.ErrorIs(t, err, driver.ErrTransient)
	require.ErrorContains(t, err, "restarted")
	for i := range q.servers {
		q.requireFree(i)
	}
}

func TestTTLIsNoLongerThanARestartIsDelayed(t *testing.T) {
	d := newQuorum(t, native, 3).driver(redlock.WithDelayedRestart(ttl - 1))
	_, err := d.Acquire(t.Context(), request("long"))
	require.ErrorIs(t, err, driver.ErrNotExecuted)
	require.NotErrorIs(t, err, driver.ErrTransient)
	require.ErrorContains(t, err, "longer than")
	require.ErrorContains(t, d.Renew(t.Context(), []driver.Lease{lease("long")})[0], "longer than")
}

// The majority of one holder and that of the next can have one node in common.
func TestFencesIncreaseThoughMajoritiesDiffer(t *testing.T) {
	q := newQuorum(t, native, 5)
	// One node's fences are ahead of all the others', as its clock might be.
	ahead := q.node(0)
	g, err := ahead.Acquire(t.Context(), request("ahead"))
	require.NoError(t, err)
	raiser, _ := driver.As[redlock.FenceRaiser](ahead)
	_, err = raiser.RaiseFence(t.Context(), lease("ahead"), g.Fence+time.Hour.Microseconds(), 1)
	require.NoError(t, err)
	require.NoError(t, ahead.Release(t.Context(), lease("ahead")))
	require.NoError(t, ahead.Close())

	d := q.driver()
	last := int64(0)
	for _, held := range [][]int{{3, 4}, {0, 1}, {2, 3}, {1, 4}, {0, 2}, {0, 1}} {
		var releases []func()
		for _, i := range held {
			releases = append(releases, q.occupy(i, "another"))
		}
		token := "token-" + time.Now().Format("150405.000000000")
		g, err := d.Acquire(t.Context(), request(token))
		require.NoError(t, err)
		require.Equal(t, driver.Granted, g.Status)
		require.Greater(t, g.Fence, last, "FOUL: a fence that does not grow: nodes %v did not vote", held)
		last = g.Fence
		require.NoError(t, d.Release(t.Context(), lease(token)))
		for _, release := range releases {
			release()
		}
	}
}

func TestReadersTogetherHaveFencesOfTheirOwn(t *testing.T) {
	q := newQuorum(t, native, 3)
	writer, err := q.client().RWMutex("orders").Lease(t.Context())
	require.NoError(t, err)
	var mu sync.Mutex
	fences := map[int64]bool{}
	var wg sync.WaitGroup
	for range 12 {
		readers := q.client().RWMutex("orders")
		wg.Go(func() {
			l, err := readers.RLease(context.Background())
			if !assert.NoError(t, err) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			assert.False(t, fences[l.Fence()], "FOUL: fence %d was given twice", l.Fence())
			assert.Greater(t, l.Fence(), writer.Fence(), "FOUL: a fence that does not grow")
			fences[l.Fence()] = true
		})
	}
	require.NoError(t, writer.Release(t.Context()))
	wg.Wait()
	require.Len(t, fences, 12)
}

// An answer that is lost leaves no vote behind, also if the ask arrives after all.
func TestLateAskAcquiresNothing(t *testing.T) {
	for name, k := range map[string]kind{"native": native, "setnx": plain} {
		t.Run(name, func(t *testing.T) {
			q := newQuorum(t, k, 3)
			q.occupy(0, "warm")() // the scripts are known
			proxy := redistest.NewProxy(t, q.servers[0])
			nodes := []driver.Driver{k(proxy.Client(t, fast), "test:"), q.node(1), q.node(2)}
			d := redlock.New(nodes, options(nil)...)
			defer func() { require.NoError(t, d.Close()) }()
			leave1, leave2 := q.occupy(1, "another"), q.occupy(2, "another")
			caught, release := proxy.HoldRequest(redistest.Containing("evalsha", "late"))
			g, err := d.Acquire(t.Context(), request("late"))
			require.NoError(t, err)
			require.Equal(t, driver.Busy, g.Status)
			<-caught
			release()
			q.requireFree(0)
			leave1()
			leave2()
		})
	}
}
