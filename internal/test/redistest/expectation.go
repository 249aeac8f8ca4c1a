package redistest

import "slices"

// expectation is what the server still has to answer to one request. Replies come
// in the order of the requests, so the first of the list is what comes next.
type expectation struct {
	confirms string // the command of pub/sub that is confirmed, else ""
	frames   int
	drop     *drop
	hold     *hold
}

// expect notes how a request will be answered. It comes before the request is
// sent, because the answer may come at once.
func (l *link) expect(f *frame, faults faults) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	e := expectation{frames: 1, drop: faults.drop, hold: faults.hold}
	name := f.word(0)
	if name == "hello" && f.word(1) == "3" {
		l.resp3 = true
	}
	if isSubscription(name) {
		l.subscriber = true
		e.confirms, e.frames = name, len(f.words)-1
		if e.frames == 0 {
			return // UNSUBSCRIBE from all: only the server knows how many
		}
	}
	l.expected = append(l.expected, e)
	if isClosed(l.closed) {
		l.settleLocked()
	}
}

// receive says whether a frame from the server goes to the client, and whether the
// connection is to be closed after it: it was the reply to be dropped, or the last
// that a client which has gone was waiting for.
func (l *link) receive(f *frame) (forward, last bool) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	// RESP2 has no pushes: there messages and confirmations are arrays like any
	// other, but a subscriber gets no other arrays that start with those words.
	push := f.kind == '>' || f.kind == '*' && l.subscriber && !l.resp3
	if push {
		if channel, payload, ok := f.published(); ok {
			drop := l.proxy.dropPush
			return drop == nil || !drop(channel, payload), false
		}
	}
	confirms := ""
	if push && isSubscription(f.word(0)) {
		confirms = f.word(0)
	}
	if push && confirms == "" && f.kind == '>' || len(l.expected) == 0 {
		return true, false // invalidations and the like
	}
	e := &l.expected[0]
	switch {
	case confirms != "" && confirms != e.confirms:
		return true, false // nobody asked for it here: the slot has moved
	case confirms != "" && e.frames > 1 && e.drop == nil:
		e.frames--
		return true, false
	}
	done := *e
	l.expected = slices.Delete(l.expected, 0, 1)
	if done.hold != nil {
		done.hold.settle()
	}
	if done.drop != nil {
		close(done.drop.dropped)
	}
	return done.drop == nil, done.drop != nil || l.ending && len(l.expected) == 0
}

// heldLocked says whether the server has yet to answer a request that was held.
func (l *link) heldLocked() bool {
	return slices.ContainsFunc(l.expected, func(e expectation) bool { return e.hold != nil })
}

// settleLocked stops the goroutines that wait for the answer to a held request.
func (l *link) settleLocked() {
	for _, e := range l.expected {
		if e.hold != nil {
			e.hold.settle()
		}
	}
}
