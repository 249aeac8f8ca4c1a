package keepalive

import (
	"sync/atomic"
	"time"
)

// Trust is how long a holder may believe that it holds its lease.
//
// The request that proved the lease was sent at some moment; the store gave the
// full TTL when it handled the request, which was later. So until that moment plus
// TTL the lease exists, provided that both clocks advance at the same rate. A margin
// of TTL/100 + 2 ms covers a difference of 1 %.
//
// Two clocks are asked, and a [time.Time] holds the readings of both. The monotonic one
// cannot be set, but stands still while a virtual machine is suspended. The wall clock
// sees the suspension, but can be set; if it is set forward, trust ends early, which is
// safe.
type Trust struct {
	sent     time.Time
	duration time.Duration
}

// step is by how much tests set the wall clock forward.
var step atomic.Int64

// NewTrust returns the trust that follows from a request sent at that moment, a result
// of [time.Now], if it grants or renews a lease of length ttl.
func NewTrust(sent time.Time, ttl time.Duration) Trust {
	return Trust{sent: sent, duration: ttl - (ttl/100 + 2*time.Millisecond)}
}

// Left returns how much time remains, negative or zero if trust has ended.
func (t Trust) Left() time.Duration {
	now := time.Now()
	wall := now.Round(0).Sub(t.sent.Round(0)) + time.Duration(step.Load()) // Round(0) strips the other
	return t.duration - max(now.Sub(t.sent), wall)
}

// Deadline returns when trust ends.
func (t Trust) Deadline() time.Time { return t.sent.Add(t.duration) }
