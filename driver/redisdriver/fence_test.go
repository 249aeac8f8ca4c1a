package redisdriver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// Rule 12. Fences are numbers that the server's clock has shown since the last one was given.

// many is more fences than there can be.
const many = 1 << 40

// numbers watches the fences of a lock.
type numbers struct {
	s     *redistest.Server
	t     *testing.T
	d     *redisdriver.Driver
	rdb   *redis.Client
	n     int
	given int64 // the last
}

func (n *numbers) comes() *party {
	n.n++
	p := join(n.t, n.d, fmt.Sprint("t", n.n), time.Minute)
	p.req.Fences = many
	return p
}

// are takes note of fences. They lie beyond all before, and not beyond the clock.
func (n *numbers) are(g driver.Grant) driver.Grant {
	n.t.Helper()
	require.Greater(n.t, g.Fence, n.given)
	require.Positive(n.t, g.Fences)
	n.given = g.Fence + g.Fences - 1
	now, err := n.rdb.Time(context.Background()).Result()
	require.NoError(n.t, err)
	require.LessOrEqual(n.t, n.given, now.UnixMicro(), "ahead of the server's clock")
	return g
}

func (n *numbers) extended(p *party) {
	n.t.Helper()
	g, err := n.d.Extend(context.Background(), p.lease(), many)
	require.NoError(n.t, err)
	n.are(g)
}

func watchNumbers(t *testing.T, s *redistest.Server) *numbers {
	rdb := s.Client(t)
	return &numbers{t: t, s: s, d: open(t, rdb, s), rdb: rdb}
}

// eachNumbers is redistest.Each; in a bubble the clock would stand still.
func eachNumbers(t *testing.T, body func(*testing.T, *numbers)) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) { body(t, watchNumbers(t, s)) })
}

func TestFencesAreNeverAheadOfTheClock(t *testing.T) {
	eachNumbers(t, func(t *testing.T, n *numbers) {
		held := n.comes()
		n.are(held.must(driver.Granted))
		for range 100 {
			next := n.comes()
			next.must(driver.Queued)
			n.extended(held)
			held.release()
			n.are(next.pushed())
			n.extended(next)
			n.extended(next)
			next.release()
			held = n.comes()
			n.are(held.must(driver.Granted))
		}
	})
}

// However much is lost, as in a failover: numbers go on beyond those that were given.
func TestFencesIncreaseOverALossWhateverWasGivenBefore(t *testing.T) {
	eachNumbers(t, func(t *testing.T, n *numbers) {
		for range 50 {
			p := n.comes()
			g := n.are(p.must(driver.Granted))
			require.EqualValues(t, 1, g.Fences, "of what was given before nothing is known")
			n.extended(p)
			p.release()
			p = n.comes()
			n.are(p.must(driver.Granted))
			n.extended(p)
			require.NoError(t, n.rdb.Del(t.Context(), key(n.s)).Err())
		}
	})
}

// A master that has been told of the last grants too late gives none of their numbers.
func TestFencesIncreaseOverAFailoverToAnOlderState(t *testing.T) {
	eachNumbers(t, func(t *testing.T, n *numbers) {
		name := key(n.s)
		p := n.comes()
		n.are(p.must(driver.Granted))
		p.release()
		before := n.rdb.Get(t.Context(), name).Val()
		for range 20 {
			p := n.comes()
			n.are(p.must(driver.Granted))
			n.extended(p)
			p.release()
		}
		require.NoError(t, n.rdb.Set(t.Context(), name, before, time.Minute).Err())
		time.Sleep(2 * time.Millisecond) // a failover takes longer
		n.are(n.comes().must(driver.Granted))
	})
}

// A clock that was set back gives no numbers: they go on one by one, each beyond the last.
func TestFencesGoOnWhenTheClockIsSetBack(t *testing.T) {
	s, clock := redistest.RealWithClock(t)
	n := watchNumbers(t, s)
	p := n.comes()
	n.are(p.must(driver.Granted))
	clock.Set(-30 * time.Second)
	for range 3 {
		p.release()
		p = n.comes()
		g := p.must(driver.Granted)
		require.Equal(t, n.given+1, g.Fence)
		require.EqualValues(t, 1, g.Fences)
		more, err := n.d.Extend(t.Context(), p.lease(), many)
		require.NoError(t, err)
		require.Equal(t, n.given+2, more.Fence)
		require.EqualValues(t, 1, more.Fences)
		n.given = more.Fence
	}
}

// A person who looks up a fence that a resource has recorded finds it among those of its holder.
func TestInspectShowsTheRangeOfTheFencesInUse(t *testing.T) {
	eachNumbers(t, func(t *testing.T, n *numbers) {
		n.comes().must(driver.Granted)
		info, err := n.d.Inspect(t.Context(), driver.Mutex, "rule")
		require.NoError(t, err)
		require.Equal(t, info.Holders[0].Fence, info.Holders[0].LastFence)
		require.NoError(t, n.d.ForceRelease(t.Context(), driver.Mutex, "rule"))
		p := n.comes()
		g := p.must(driver.Granted)
		more, err := n.d.Extend(t.Context(), p.lease(), many)
		require.NoError(t, err)
		info, err = n.d.Inspect(t.Context(), driver.Mutex, "rule")
		require.NoError(t, err)
		require.Equal(t, g.Fence, info.Holders[0].Fence)
		require.Equal(t, more.Fence+more.Fences-1, info.Holders[0].LastFence)
	})
}

// Rule 12. A grant that is pushed may use numbers for its process, and the next grant, in the
// same microsecond, has none of them.
func TestNumbersOfAPushedGrantAreNotThoseOfTheNext(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		d := open(t, s.Client(t), s)
		a, b, c := join(t, d, "a", ttl), join(t, d, "b", ttl), join(t, d, "c", ttl)
		b.req.Fences, c.req.Fences = 32, 32
		a.must(driver.Granted)
		b.must(driver.Queued)
		c.must(driver.Queued)
		time.Sleep(time.Second) // in which the clock shows numbers
		a.release()
		first := b.must(driver.Granted)
		require.EqualValues(t, 32, first.Fences)
		b.release()
		require.GreaterOrEqual(t, c.must(driver.Granted).Fence, first.Fence+first.Fences)
	})
}
