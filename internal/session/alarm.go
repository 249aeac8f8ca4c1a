package session

import "time"

// Alarm rings a bell after a time, on a goroutine of its own, unless it is stopped before that.
// Nearly all are stopped, as there is one for each command that somebody waits for. So they are
// used again.
type Alarm struct {
	s     *Session
	timer *time.Timer
	bell  Bell
}

// Bell is what an Alarm rings.
type Bell interface{ Ring(*Alarm) }

// Alarm returns an alarm that rings the bell after d.
func (s *Session) Alarm(d time.Duration, bell Bell) *Alarm {
	a, _ := s.alarms.Get().(*Alarm)
	if a == nil {
		a = &Alarm{s: s, bell: bell}
		a.timer = time.AfterFunc(d, func() { a.bell.Ring(a) })
		return a
	}
	a.bell = bell
	a.timer.Reset(d)
	return a
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
