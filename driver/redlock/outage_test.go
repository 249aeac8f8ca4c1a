package redlock_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redlock"
)

// cycle acquires, renews and releases, and returns how long the slowest of them took.
func (q *quorum) cycle(d driver.Driver, token string) time.Duration {
	q.Helper()
	var slowest time.Duration
	step := func(f func()) {
		start := time.Now()
		f()
		slowest = max(slowest, time.Since(start))
	}
	step(func() {
		g, err := d.Acquire(q.Context(), request(token))
		require.NoError(q, err)
		require.Equal(q, driver.Granted, g.Status)
	})
	step(func() { require.NoError(q, d.Renew(q.Context(), []driver.Lease{lease(token)})[0]) })
	step(func() { require.NoError(q, d.Release(q.Context(), lease(token))) })
	return slowest
}

// A frozen node costs its timeout, and not even that while it owes an answer. Nothing piles
// up before it. That is so of whatever kind a node is.
func TestFrozenNodeCostsNoMoreThanItsTimeout(t *testing.T) {
	const timeout = 300 * time.Millisecond
	q := newQuorum(t, native, 5)
	d := q.driver(redlock.WithTimeout(timeout))
	var usual time.Duration
	for i := range 20 {
		usual = max(usual, q.cycle(d, fmt.Sprint("before-", i)))
	}
	q.servers[2].Pause()
	first := q.cycle(d, "first")
	require.Less(t, first, timeout+100*time.Millisecond+5*usual, "usual: %v", usual)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.Less(c, q.cycle(d, fmt.Sprint("next-", time.Now().UnixNano())), timeout/2+5*usual)
	}, 5*time.Second, time.Millisecond, "it is waited for although it owes an answer")

	before := runtime.NumGoroutine()
	for i := range 300 {
		q.cycle(d, fmt.Sprint("frozen-", i))
	}
	require.Less(t, runtime.NumGoroutine(), before+150, "goroutines wait for the frozen node")
	q.servers[2].Resume()
	for i := range q.servers {
		q.requireFree(i)
	}
	require.NoError(t, q.node(2).Close())
}

func TestThreeOfFiveDown(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, native, 5)
	locks := q.client()
	mu := locks.Mutex("orders")
	for _, s := range q.servers[:3] {
		s.Stop()
	}
	_, err := mu.TryLease(t.Context())
	require.ErrorIs(t, err, driver.ErrTransient)
	require.NotErrorIs(t, err, holdfast.ErrLocked, "nobody has it")
	require.ErrorContains(t, err, "3 of 5 nodes fail")

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = mu.Lease(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, driver.ErrTransient)

	waiting := make(chan error, 1)
	go func() {
		l, err := mu.Lease(t.Context())
		if err == nil {
			err = l.Release(t.Context())
		}
		waiting <- err
	}()
	select {
	case err := <-waiting:
		t.Fatal("acquired with 2 of 5 nodes: ", err)
	case <-time.After(300 * time.Millisecond):
	}
	for _, s := range q.servers[:3] {
		s.Restart()
	}
	select {
	case err := <-waiting:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("the nodes are back, but the lock is not")
	}
	for i := range q.servers {
		q.requireFree(i)
	}
}

// A holder goes on with what is left of its majority, and no longer.
func TestHolderKeepsTheLockWithAMajority(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, native, 3)
	locks := q.client(redlock.WithTimeout(300 * time.Millisecond)) // on a loaded machine a vote may take more than 50 ms
	lease, err := locks.Mutex("orders", holdfast.WithTTL(2*time.Second)).Lease(t.Context())
	require.NoError(t, err)
	q.servers[0].Stop()
	for start := time.Now(); time.Since(start) < 4*time.Second; time.Sleep(50 * time.Millisecond) {
		require.NoError(t, lease.Err())
	}
	q.servers[1].Stop()
	select {
	case <-lease.Done():
		require.ErrorIs(t, lease.Err(), holdfast.ErrLost)
	case <-time.After(5 * time.Second):
		t.Fatal("it believes in a lease on one node of three")
	}
}
