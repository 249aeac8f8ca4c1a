package redlock_test

import (
	"context"
	"fmt"
	"math/bits"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/driver/redlock"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// claimant is a node that says that it is old, and for which that may be all there is.
type claimant struct {
	driver.Driver
	certain bool
	asked   atomic.Int32
}

func (c *claimant) Unwrap() driver.Driver { return c.Driver }

func (c *claimant) Uptime(context.Context) (sure, said time.Duration, err error) {
	c.asked.Add(1)
	if c.certain {
		sure = time.Hour
	}
	return sure, time.Hour, nil
}

// A minority of the nodes may have been restarted, forgotten whom they voted for, and have
// clocks that were set forward since. A client with votes has the lock if nobody else can have it then.
func TestVotesSufficeIfAndOnlyIfNoForgetfulMinorityCanHaveElectedAnother(t *testing.T) {
	for _, n := range []int{3, 5} {
		all := uint(1)<<n - 1
		for votes := range all + 1 {
			for certain := range all + 1 {
				if certain&^votes != 0 {
					continue
				}
				t.Run(fmt.Sprintf("%0*b of which %0*b are certain", n, votes, n, certain), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						require.Equal(t, exclusive(n, votes, certain), elected(t, n, votes, certain))
					})
				})
			}
		}
	}
}

// exclusive reports whether, of any majority that may have elected another, a node has voted
// for us that has not forgotten it, so that nobody has elected another.
func exclusive(n int, votes, certain uint) bool {
	minority := n / 2
	for majority := range uint(1) << n {
		for forgetful := range uint(1) << n {
			if bits.OnesCount(majority) > minority && bits.OnesCount(forgetful) <= minority &&
				forgetful&certain == 0 && majority&votes&^forgetful == 0 {
				return false
			}
		}
	}
	return true
}

// elected reports whether a client has the lock from the votes of these nodes.
func elected(t *testing.T, n int, votes, certain uint) bool {
	t.Helper()
	var nodes []driver.Driver
	for i := range n {
		var node driver.Driver = &claimant{Driver: memdriver.New(), certain: certain>>i&1 == 1}
		if votes>>i&1 == 0 {
			node = &away{node}
		}
		nodes = append(nodes, node)
	}
	d := redlock.New(nodes)
	defer func() { require.NoError(t, d.Close()) }()
	g, err := d.Acquire(t.Context(), request("token"))
	if err != nil {
		require.ErrorIs(t, err, driver.ErrTransient)
	}
	return err == nil && g.Status == driver.Granted
}

// The longer a client has seen a node, the better it knows its age, also if it got nothing there.
func TestNodeIsWatchedFromItsFirstAnswerOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []driver.Driver
		for range 3 {
			n := &claimant{Driver: memdriver.New()}
			_, err := n.Driver.Acquire(t.Context(), request("another"))
			require.NoError(t, err)
			nodes = append(nodes, n)
		}
		d := redlock.New(nodes)
		g, err := d.Acquire(t.Context(), request("token"))
		require.NoError(t, err)
		require.Equal(t, driver.Busy, g.Status)
		for _, n := range nodes {
			require.Positive(t, n.(*claimant).asked.Load())
		}
		require.NoError(t, d.Close())
	})
}

// X has the lock from the first two nodes, and does not reach the third, when the first
// restarts, and its clock is set forward, as by NTP after a boot. It says that it is old then.
// With the third it must elect nobody: neither by a client that knew it, nor by a new one.
func TestNodeWhoseClockIsSetAfterARestartElectsNobody(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	const longest = 4 * time.Second
	s, clock := redistest.RealWithClock(t)
	q := &quorum{t, native, append([]*redistest.Server{s}, reals(t, 2)...)}
	opts := []redlock.Option{redlock.WithTimeout(longest / 4), redlock.WithDelayedRestart(longest)}
	nodes := q.nodes()
	nodes[2] = away{nodes[2]}
	x, y := q.over(nodes, opts...), q.driver(opts...)
	q.watch(y, longest)
	q.watch(x, longest)
	q.short(x, "x", longest, driver.Granted)
	trusted := time.Now().Add(longest / 2)

	s.Restart()
	clock.Set(time.Hour)
	elections := map[string]driver.Driver{"y": y, "new": q.driver(opts...)}
	for i := 0; time.Now().Before(trusted); i++ {
		for name, d := range elections {
			require.False(t, q.elects(d, fmt.Sprint(name, i), longest), "%s has the lock, and so has x", name)
		}
		time.Sleep(10 * time.Millisecond)
	}
	_, said, err := q.uptime(0)
	require.NoError(t, err)
	require.Greater(t, said, 59*time.Minute)
	require.ErrorIs(t, x.Release(t.Context(), lease("x")), driver.ErrNotHeld, "the first has forgotten it, the third never heard")
	q.watch(y, longest)
}

// uptime is what a node says to a new client.
func (q *quorum) uptime(i int) (sure, said time.Duration, err error) {
	q.Helper()
	d := q.node(i)
	defer func() { require.NoError(q, d.Close()) }()
	u, ok := driver.As[redlock.Uptimer](d)
	require.True(q, ok)
	return u.Uptime(q.Context())
}
