package session

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/leasectx"
)

// Alarm rings a bell after a time, on a goroutine of its own, unless it is stopped before that.
// Nearly all are stopped, as there is one for each command that somebody waits for. So they are
// used again.
type Alarm struct {
	s     *Session
	timer *time.Timer
	bell  Bell
	quiet context.Context // until it rings
	end   context.CancelFunc
}

// Bell is what an Alarm rings.
type Bell interface{ Ring(*Alarm) }

// Alarm returns an alarm that rings the bell after d.
func (s *Session) Alarm(d time.Duration, bell Bell) *Alarm {
	a, _ := s.alarms.Get().(*Alarm)
	if a == nil {
		a = &Alarm{s: s, bell: bell}
		a.quiet, a.end = context.WithCancel(context.Background())
		a.timer = time.AfterFunc(d, func() { a.end(); a.bell.Ring(a) })
		return a
	}
	a.bell = bell
	a.timer.Reset(d)
	return a
}

// Quiet returns a context with the values of one of the session, that ends when the alarm rings.
//
// It has no deadline. With ContextTimeoutEnabled go-redis would take that for the deadline of the answer, which
// may come from far away.
func (a *Alarm) Quiet(values context.Context) context.Context {
	if values == a.s.life {
		return a.quiet
	}
	return leasectx.Merged(a.quiet, values)
}

// Stop stops the alarm, after which it must not be used. It reports false if the alarm rings, or has rung.
func (a *Alarm) Stop() bool {
	if !a.timer.Stop() {
		return false
	}
	a.bell = nil
	a.s.alarms.Put(a)
	return true
}
