package keepalive

import (
	"errors"
	"time"
)

// ErrClock is the cause of the loss of a lease whose trust has ended by the wall clock
// alone.
var ErrClock = errors.New("the wall clock was set forward, or the machine was suspended")

// Trust is how long a holder may trust its lease.
//
// The request that proved the lease was sent at some moment. The store gave the full TTL
// when it handled the request, which was later. So until that moment plus TTL the lease
// exists, provided that both clocks advance at the same rate. A margin of TTL/100 + 2 ms
// covers a difference of 1 %.
//
// Two clocks are asked, and a [time.Time] holds the readings of both. The monotonic clock
// cannot be set, but stands still while a virtual machine is suspended. The wall clock sees
// the suspension, but can be set. If it is set forward, trust ends early, which is safe.
type Trust struct {
	sent     time.Time
	ttl      time.Duration
	wallLead time.Duration // of the wall clock, then
}

// NewTrust returns the trust that follows from a request that grants or renews a lease of
// length ttl. sent, a result of [time.Now], is when the request was sent.
func NewTrust(sent time.Time, ttl time.Duration) Trust {
	return Trust{sent, ttl, wallLead(sent)}
}

// Left returns how much time remains, negative or zero if trust has ended.
func (t Trust) Left() time.Duration { return t.LeftAt(time.Now()) }

// LeftAt is Left at a moment, a result of [time.Now] just now.
func (t Trust) LeftAt(now time.Time) time.Duration {
	return t.lasts() - now.Sub(t.sent) - t.skipped(now)
}

// Deadline returns when trust ends, unless the wall clock ends it earlier.
func (t Trust) Deadline() time.Time { return t.sent.Add(t.lasts()) }

func (t Trust) lasts() time.Duration { return t.ttl - (t.ttl/100 + 2*time.Millisecond) }

// Cause returns [ErrClock] if trust has ended by the wall clock alone, else nil.
func (t Trust) Cause() error {
	if left := t.Left(); left <= 0 && left+t.skipped(time.Now()) > 0 {
		return ErrClock
	}
	return nil
}

// skipped is what the monotonic clock has missed since the request was sent.
func (t Trust) skipped(now time.Time) time.Duration { return max(wallLead(now)-t.wallLead, 0) }

// caughtUp returns the same trust as if the monotonic clock had missed nothing, so that a
// timer can wait for its end.
func (t Trust) caughtUp(now time.Time) Trust {
	d := t.skipped(now)
	return Trust{t.sent.Add(-d), t.ttl, t.wallLead + d}
}

// wallLead is by how much the wall clock was ahead of the monotonic one at a moment. Only
// differences mean something.
func wallLead(at time.Time) time.Duration {
	return time.Duration(wallClock(at)-startWall) - at.Sub(start) // the first knows the wall clock alone
}

var (
	start     = time.Now()
	startWall = start.UnixNano()
	wallClock = time.Time.UnixNano // a variable so that tests can set the clock
)
