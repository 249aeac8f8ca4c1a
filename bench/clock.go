package bench

import (
	"sync"
	"sync/atomic"
	"time"
)

// Stint is how long a turn lasts: some time, or so many cycles of all together.
type Stint struct {
	Time time.Duration
	Ops  int64
}

// most returns how long a stint may last.
func (s Stint) most() time.Duration {
	if s.Ops > 0 {
		return time.Minute
	}
	return s.Time
}

// clock tells when a stint is over.
type clock struct {
	until Stint
	left  atomic.Int64 // cycles that may yet begin
	began time.Time
	timer *time.Timer
	once  sync.Once
	ended time.Time // before over is closed
	done  atomic.Bool
	over  chan struct{}
}

func newClock(until Stint) *clock {
	c := &clock{until: until, over: make(chan struct{})}
	c.left.Store(until.Ops)
	if until.Ops == 0 {
		c.left.Store(1 << 62)
	}
	return c
}

func (c *clock) start() {
	c.began = time.Now()
	if c.until.Time > 0 {
		c.timer = time.AfterFunc(c.until.Time, c.end)
	}
}

func (c *clock) end() {
	c.once.Do(func() {
		c.ended = time.Now()
		c.done.Store(true)
		close(c.over)
	})
}

// another reports whether there is time for another cycle, or one left.
func (c *clock) another() bool { return !c.done.Load() && c.left.Add(-1) >= 0 }

// stop returns how long the stint was.
func (c *clock) stop() time.Duration {
	if c.timer != nil {
		c.timer.Stop()
	}
	c.end() // if nobody has
	return c.ended.Sub(c.began)
}
