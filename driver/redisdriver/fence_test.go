package redisdriver_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
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
			held.release()
			n.are(next.pushed())
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
			p.release()
			p = n.comes()
			n.are(p.must(driver.Granted))
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
			p.release()
		}
		require.NoError(t, n.rdb.Set(t.Context(), name, before, time.Minute).Err())
		time.Sleep(2 * time.Millisecond) // a failover takes longer
		n.are(n.comes().must(driver.Granted))
	})
}

// A clock that was set back gives no numbers: they go on one by one, each beyond the last. So it is
// when the lock was free meanwhile.
func TestFencesGoOnWhenTheClockIsSetBack(t *testing.T) {
	s, clock := redistest.RealWithClock(t)
	n := watchNumbers(t, s)
	for _, free := range []bool{false, true} {
		clock.Set(0)
		p := n.comes()
		n.are(p.must(driver.Granted))
		if free {
			p.release()
		}
		clock.Set(-30 * time.Second)
		if !free {
			p.release()
		}
		for range 3 {
			p = n.comes()
			g := p.must(driver.Granted)
			require.Equal(t, n.given+1, g.Fence)
			require.EqualValues(t, 1, g.Fences)
			n.given = g.Fence
			p.release()
		}
	}
}

// early has scripts read the clock, which is set by an hour before they write.
type early struct {
	through
	back, forward atomic.Bool
}

func (e *early) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if err := e.sees(cmd); err != nil {
				return err
			}
		}
		return next(ctx, cmds)
	}
}

func (e *early) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := e.sees(cmd); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

func (e *early) sees(cmd redis.Cmder) error {
	const clock = "redis.call('TIME')"
	on := e.back.Load() || e.forward.Load()
	if on && cmd.Name() == "evalsha" {
		cmd.SetErr(serverError("NOSCRIPT No matching script.")) // so that the text comes
	}
	if !on || cmd.Name() != "eval" {
		return cmd.Err()
	}
	text := cmd.Args()[1].(string)
	if e.back.Load() {
		text = strings.Replace(text, clock, "{ "+clock+"[1] + 3600, "+clock+"[2] }", 1)
	} else {
		text = regexp.MustCompile(`('PEXPIREAT', [^,]+|'PXAT'), int\(`).ReplaceAllString(text, "$0-3600000 + ")
	}
	cmd.Args()[1] = text
	return cmd.Err()
}

// A lock that is in use, or that gave a fence which the clock has not reached, is not forgotten if
// the clock is set back just when a script runs.
func TestKeyOutlivesAClockThatIsSetBackWithinAScript(t *testing.T) {
	for name, does := range map[string]func(a, b *party){
		"acquire": func(a, _ *party) { a.must(driver.Granted) },
		"renew":   func(a, _ *party) { a.must(driver.Granted); require.NoError(a.t, renewed(a)) },
		"release": func(a, _ *party) { a.must(driver.Granted); a.release() },
		"wait":    func(a, b *party) { a.must(driver.Granted); b.must(driver.Queued) },
		"steal": func(a, b *party) {
			a.must(driver.Granted)
			_, err := b.d.Steal(context.Background(), &b.req)
			require.NoError(b.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				e, rdb := &early{}, s.Client(t)
				rdb.AddHook(e)
				d := open(t, rdb, s)
				a, b := join(t, d, "a", ttl), join(t, d, "b", ttl)
				e.back.Store(true)
				does(a, b)
				e.back.Store(false)
				left, err := s.Client(t).PTTL(t.Context(), key(s)).Result()
				require.NoError(t, err)
				require.Greater(t, left, time.Hour)
			})
		})
	}
}

// A clock that is set forward ends leases and keys. It leaves none that never ends, as of a lock with
// a tombstone whose end moves just then.
func TestNoKeyIsLeftWithoutAnEndByAClockThatIsSetForwardWithinAScript(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		e, rdb := &early{}, s.Client(t)
		rdb.AddHook(e)
		d := open(t, rdb, s)
		holds(t, d, "a", ttl)
		b, c := waits(t, d, "b", ttl), join(t, d, "c", 2*time.Minute)
		require.NoError(t, d.ForceRelease(t.Context(), driver.Mutex, "rule"))
		b.release()
		e.forward.Store(true)
		_, err := d.Acquire(t.Context(), &c.req)
		e.forward.Store(false)
		require.NoError(t, err)
		left, err := s.Client(t).PTTL(t.Context(), key(s)).Result()
		require.NoError(t, err)
		require.NotEqual(t, time.Duration(-1), left)
	})
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
		info, err = n.d.Inspect(t.Context(), driver.Mutex, "rule")
		require.NoError(t, err)
		require.Equal(t, g.Fence, info.Holders[0].Fence)
		require.Greater(t, g.Fences, int64(1))
		require.Equal(t, g.Fence+g.Fences-1, info.Holders[0].LastFence)
	})
}

// Rule 12. A grant that is pushed may use numbers for its process, and the next grant, in the
// same microsecond, has none of them.
func TestNumbersOfAPushedGrantAreNotThoseOfTheNext(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
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

// Rule 12. A key that nobody knows may be one that was lost: only the time itself is sure to lie beyond
// all that was given. So it is on the short ways, and on the general one, which thieves go, and those who had
// a place in its queue.
func TestKeyThatNobodyKnowsGivesOneFence(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		for name, how := range map[string]func(*driver.Request){
			"mutex":         func(*driver.Request) {},
			"placed":        func(r *driver.Request) { r.Place.Number = 7 },
			"owner":         func(r *driver.Request) { r.Owner = "o" },
			"writer":        func(r *driver.Request) { r.Kind = driver.RWMutex },
			"placed-reader": func(r *driver.Request) { r.Kind, r.Shared, r.Place.Number = driver.RWMutex, true, 7 },
			"permits":       func(r *driver.Request) { r.Kind, r.Weight, r.Limit = driver.Semaphore, 2, 3 },
		} {
			p := join(t, d, name, ttl)
			p.req.Name, p.req.Fences = name, 32
			how(&p.req)
			g := p.must(driver.Granted)
			require.EqualValues(t, 1, g.Fences, name)
			require.Equal(t, time.Now().UnixMicro(), g.Fence, name)
		}
		thief := join(t, d, "thief", ttl)
		thief.req.Fences = 32
		g, err := d.Steal(t.Context(), &thief.req)
		require.NoError(t, err)
		require.EqualValues(t, 1, g.Fences)
	})
}

func (n *numbers) comes() *party {
	n.n++
	p := join(n.t, n.d, fmt.Sprint("t", n.n), time.Minute)
	p.req.Fences = many
	return p
}

// Rule 12. A fence ahead of the clock, as another server may have had it, must not be
// forgotten before the clock is there: the next would be smaller.
func TestFenceAheadOfTheClockIsRemembered(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		a := join(t, d, "a", ttl)
		ahead := a.must(driver.Granted).Fence + (10 * time.Minute).Microseconds()
		first, err := d.RaiseFence(context.Background(), a.lease(), ahead, 1)
		require.NoError(t, err)
		require.Equal(t, ahead, first)
		b, c := waits(t, d, "b", ttl), join(t, d, "c", ttl) // now the lock is a hash
		a.release()
		require.Equal(t, first+1, b.must(driver.Granted).Fence)
		b.release()
		second := c.must(driver.Granted).Fence // and now a string
		require.Equal(t, first+2, second)
		c.release()
		time.Sleep(5 * time.Minute) // longer than the key is kept otherwise
		require.Greater(t, join(t, d, "e", ttl).must(driver.Granted).Fence, second)
	})
}
