package redlock_test

import (
	"fmt"
	"math/bits"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redlock"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// Each of 5 nodes is free, or held by another, or down, in every combination of free and
// not: three that are free win, and nothing is left of an attempt on any node.
func TestWonIfAndOnlyIfAMajorityIsFree(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	for name, k := range map[string]kind{"native": native, "setnx": plain} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQuorum(t, k, 5)
			for i := range uint(1 << 5) {
				mask := i ^ i>>1 // from one to the next, one node changes
				q.occupied(mask)
				q.dead(mask)
			}
		})
	}
}

// occupied is the case that nodes whose bit is not set are held.
func (q *quorum) occupied(free uint) {
	q.Helper()
	var releases []func()
	for i := range q.servers {
		if free>>i&1 == 0 {
			releases = append(releases, q.occupy(i, "another"))
		}
	}
	g, err := q.attempt(fmt.Sprintf("occupied-%d", free), free)
	require.NoError(q, err)
	if bits.OnesCount(free) >= 3 {
		require.Equal(q, driver.Granted, g.Status, "free: %05b", free)
	} else {
		require.Equal(q, driver.Busy, g.Status, "free: %05b", free)
	}
	for _, release := range releases {
		release() // it is theirs still
	}
}

// dead is the case that nodes whose bit is not set are down.
func (q *quorum) dead(alive uint) {
	q.Helper()
	for i, s := range q.servers {
		if alive>>i&1 == 0 {
			s.Stop()
		}
	}
	g, err := q.attempt(fmt.Sprintf("dead-%d", alive), alive)
	if bits.OnesCount(alive) >= 3 {
		require.NoError(q, err)
		require.Equal(q, driver.Granted, g.Status, "alive: %05b", alive)
	} else {
		require.ErrorIs(q, err, driver.ErrTransient, "alive: %05b, answered %+v", alive, g)
	}
	for i, s := range q.servers {
		if alive>>i&1 == 0 {
			s.Restart()
		}
	}
}

// attempt makes one, gives up what it got, and requires that nothing is left.
func (q *quorum) attempt(token string, free uint) (driver.Grant, error) {
	q.Helper()
	d := redlock.New(q.nodes(fast), redlock.WithDelayedRestart(0), redlock.WithTimeout(time.Second))
	defer func() { require.NoError(q, d.Close()) }()
	g, err := d.Acquire(q.Context(), request(token))
	if err == nil && g.Status == driver.Granted {
		require.EqualValues(q, 1, g.Ask)
		require.NoError(q, d.Renew(q.Context(), []driver.Lease{lease(token)})[0])
		require.NoError(q, d.Release(q.Context(), lease(token)))
	}
	if err != nil {
		l := lease(token)
		l.Unsettled = true
		_ = d.Release(q.Context(), l) // as many nodes are down as before
	}
	for i := range q.servers {
		if free>>i&1 == 1 {
			q.requireFree(i)
		}
	}
	return g, err
}
