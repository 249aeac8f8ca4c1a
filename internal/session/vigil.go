package session

import "time"

// A caller that waits for the store itself can do nothing else if the store falls silent. So
// another goroutine then does what has to be done beside it.

// Hanging is a call that may hang.
type Hanging interface {
	// Hangs is called once, on a goroutine of its own, if the call has not returned in time.
	// It sends to v.Met when End may go on.
	Hangs(v *Vigil)
}

// Vigil watches over one call of the store. It costs nothing but a timer that is used again.
type Vigil struct {
	Over chan struct{} // closed when the call has returned after all
	Met  chan struct{} // see Hanging; has room for it

	s     *Session
	timer *time.Timer
	call  Hanging
}

// Watch begins to watch over a call that should take less than d.
func (s *Session) Watch(call Hanging, d time.Duration) *Vigil {
	v, _ := s.vigils.Get().(*Vigil)
	if v == nil {
		v = &Vigil{Over: make(chan struct{}), Met: make(chan struct{}, 1), s: s, call: call}
		v.timer = time.AfterFunc(d, func() { v.call.Hangs(v) })
		return v
	}
	v.call = call
	v.timer.Reset(d)
	return v
}

// End ends the watch when the call has returned, and reports whether Hangs was called. Then
// it waits until the goroutines have met. The timer decides, so there is no third case.
func (v *Vigil) End() (hung bool) {
	if v.timer.Stop() {
		v.call = nil
		v.s.vigils.Put(v)
		return false
	}
	close(v.Over)
	<-v.Met
	return true
}
