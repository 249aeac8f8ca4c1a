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
// Two clocks are asked. The monotonic one cannot be set, but stands still while a
// virtual machine is suspended. The wall clock sees the suspension, but can be set;
// if it is set forward, trust ends early, which is safe.
type Trust struct {
	sent     time.Time // has a monotonic reading
	wall     time.Time // has none
	duration time.Duration
}

// step is by how much tests set the wall clock forward.
var step atomic.Int64

func wall() time.Time { return time.Now().Round(0).Add(time.Duration(step.Load())) }

// Stamp is the moment just before a request is sent.
type Stamp struct{ sent, wall time.Time }

// Now returns the present moment.
func Now() Stamp { return Stamp{sent: time.Now(), wall: wall()} }

// Sub returns the time from o to s by the monotonic clock.
func (s Stamp) Sub(o Stamp) time.Duration { return s.sent.Sub(o.sent) }

// NewTrust returns the trust that follows from a request sent at s, if it grants or
// renews a lease of length ttl.
func NewTrust(s Stamp, ttl time.Duration) Trust {
	return Trust{sent: s.sent, wall: s.wall, duration: ttl - (ttl/100 + 2*time.Millisecond)}
}

// Left returns how much time remains, negative or zero if trust has ended.
func (t Trust) Left() time.Duration {
	return t.duration - max(time.Since(t.sent), wall().Sub(t.wall))
}

// Deadline returns when trust ends.
func (t Trust) Deadline() time.Time { return t.sent.Add(t.duration) }
