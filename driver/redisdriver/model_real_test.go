package redisdriver_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// serverClock moves the clock of a real server by whole ticks. The time that really
// passes meanwhile is the slack: no lease, patience or tombstone ends so soon after a
// tick that it would matter.
type serverClock struct {
	*redistest.Clock
	offset int64
}

const (
	tick      = 10000
	realSlack = 2000
)

func (c *serverClock) now() int64   { return c.offset }
func (c *serverClock) slack() int64 { return realSlack }

func (c *serverClock) pass(ms int64) {
	c.offset += ms
	c.Set(time.Duration(c.offset) * time.Millisecond)
}

func (c *serverClock) hear(from chan hearing, more bool) (hearing, bool) {
	var late <-chan time.Time
	if more {
		late = time.After(5 * time.Second)
	} else {
		closed := make(chan time.Time)
		close(closed)
		late = closed
	}
	select {
	case h := <-from:
		return h, true
	default:
	}
	select {
	case h := <-from:
		return h, true
	case <-late:
		return hearing{}, false
	}
}

// On a real Redis, whose Lua and whose order of things are not those of miniredis.
func TestModelOnRealRedis(t *testing.T) {
	t.Parallel()
	s, stepped := redistest.RealWithClock(t)
	rdb, clock := s.Client(t), &serverClock{Clock: stepped}
	var drivers []*redisdriver.Driver
	for range 2 {
		d := warm(t, s.Client(t), s.Prefix())
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		drivers = append(drivers, d)
	}
	games := 0
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			steps := gamesOf(k, []int64{12000, 24000, 36000}, []int64{tick, tick, 2 * tick, 7 * tick}, doEdge)
			var seen forms
			play := func(list []modelStep) (took time.Duration, err error) {
				games++
				w := newWorld(k, s.Prefix(), fmt.Sprint("model", games), rdb, drivers, clock, &seen)
				began := time.Now()
				err = w.play(list)
				return time.Since(began), err
			}
			seen.playUntilAll(t, func(round int) {
				for i := range 5 { // it is so much faster than miniredis
					rapid.Check(t, func(rt *rapid.T) {
						othersThan(rt, 5*round+i)
						list := steps.Draw(rt, "steps")
						took, err := play(list)
						for n := 0; err != nil && took > realSlack*time.Millisecond && n < 5; n++ {
							took, err = play(list) // the machine stood still, so that leases ended which should not
						}
						if err != nil && took > realSlack*time.Millisecond {
							rt.Fatalf("after %v: %v\n%s", took, err, listing(list))
						} else if err != nil {
							rt.Fatalf("FOUL: %v\n%s", err, listing(list))
						}
					})
				}
			})
		})
	}
}
