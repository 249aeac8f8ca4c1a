package bench

import (
	"sync/atomic"
	"time"
)

// Stint is how long a turn lasts: some time, or so many cycles of all together.
type Stint struct {
	Time time.Duration
	Ops  int64
}

// clock tells when a stint is over.
type clock struct {
	left  atomic.Int64
	over  atomic.Bool
	began time.Time
	ended atomic.Int64 // ns after it began, 0 if nobody waited for that
	timer *time.Timer
}

func startClock(until Stint) *clock {
	c := &clock{began: time.Now()}
	c.left.Store(until.Ops)
	if until.Ops == 0 {
		c.left.Store(1 << 62)
	}
	if until.Time > 0 {
		c.timer = time.AfterFunc(until.Time, func() {
			c.ended.Store(int64(time.Since(c.began)))
			c.over.Store(true)
		})
	}
	return c
}

// another reports whether there is time for another cycle.
func (c *clock) another() bool { return !c.over.Load() && c.left.Add(-1) >= 0 }

// stop returns how long the stint was.
func (c *clock) stop() time.Duration {
	if c.timer != nil {
		c.timer.Stop()
	}
	if ended := c.ended.Load(); ended > 0 {
		return time.Duration(ended)
	}
	return time.Since(c.began)
}
