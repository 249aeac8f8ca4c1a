package local

import "time"

// Again locks again what its handle had before, if it lingers in this process and there is
// nothing else to think of. Otherwise it reports false and has changed nothing, and
// [Lock.Acquire] does the same and all the rest.
//
// A grant keeps its Lock in use. So a Lock with a grant is the one that the Registry knows, and
// a handle that remembers another one finds none in it.
func (k *Kept) Again(o *Options) bool {
	l := k.lock.Load()
	if l == nil || o.Linger == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.grant
	if g == nil || g.state != idle || g.opts != o || !g.turn.mayLinger() || g.lowered ||
		l.atStore != nil || l.waiting.first != nil || l.deposited.Load() > 0 {
		return false
	}
	h, now := g.holds[0], time.Now()
	if !h.anonymous || h.end != nil || !l.r.Session.Open() || g.trust().LeftAt(now) < g.TTL/2 {
		return false
	}
	g.state = held
	g.turn.again(now)
	l.refs.Add(1)
	l.deposit(h)
	return true
}

// mayLinger reports whether the grant is to be kept when its next hold ends, and whether
// nothing is to be asked of the store until then.
func (t *turn) mayLinger() bool { return t.lingering != nil && t.mayIdle() && !t.few() }

// again counts a hold that begins now. The clock is not read again when it ends, for that takes
// half as long as the rest: the lease has half of its TTL left, and the Keeper looks at the
// clock.
func (t *turn) again(now time.Time) {
	t.pass()
	t.lingering.since, t.lingering.again = now, true
}

// unstamp notes a hold that has begun otherwise.
func (t *turn) unstamp() {
	if t.lingering != nil {
		t.lingering.again = false
	}
}

// unseen reports whether the last hold of an idle grant may have lasted beyond its lease
// without anybody having noticed. Its end was not looked at, and then the process stood still
// for a while, for else the Keeper would have come in time.
func (g *Grant) unseen() bool { return g.turn.stamped() && g.trust().Left() < -time.Second }
