package model_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	lockrecord "github.com/holdfast-go/holdfast/internal/test/record"
)

// scenario is a world to search. Times are in ms.
type scenario struct {
	limit  int64
	room   int64 // so many may wait, 0: as many as there are
	claims []want

	ttl, tick, retention int64
	asks                 uint8 // of each claim at most
	mail                 int   // messages under way at most
	ticks                uint8 // that pass at most, 0 for no end of time

	faults // so many of each, at most
	back   int64

	wrongs
}

// wrongs are rules of a client that are wrong, to show that they are.
type wrongs struct {
	believeFromReceipt bool // of an answer, not from when the request was sent
	believeNewest      bool // count trust from the newest ask, not from that of the grant
	forgetLateGrant    bool // if a later ask finds the lock taken
}

// want is what a claim asks for.
type want struct {
	weight int64
	try    bool  // do not wait
	lower  bool  // may give up a part of what it holds
	after  int   // the claim, counted from 1, that must be over before
	fences int64 // that are of use
}

// faults are what may still go wrong.
type faults struct {
	lose, double, crash, force, cut, setBack uint8
}

// forgets reports whether a key can end while the world goes on, so that it matters how long a
// message has been under way.
func (sc *scenario) forgets() bool {
	return sc.ticks == 0 || int64(sc.ticks)*sc.tick >= sc.retention
}

const (
	claims = 4
	mail   = 10
)

// state is the whole world at one moment.
type state struct {
	record    uint32
	claims    [claims]claim
	mail      [mail]message // in order
	left      faults
	ticks     uint8 // that may still pass
	hears     uint8 // claims whose client has a subscription, as a set
	faultless bool  // nothing was lost, nor late for it
}

// phase is what a claim does.
type phase uint8

const (
	idle    phase = iota
	waiting       // for the lock
	holding       // as it believes
	leaving       // gives up the token, until the server has said so
	over
	crashed
)

// claim is one token at the store, as internal/token and the driver have it.
type claim struct {
	phase   phase
	asks    uint8    // that were sent
	open    uint8    // asks of which it is not known whether they still reach the server
	ticks   [5]uint8 // since each ask was sent
	since   uint8    // ticks since the request was sent from which trust counts
	served  uint8    // the last ask that is known to be granted
	place   uint8    // that it was told last
	again   bool     // should ask now
	strayed bool     // an ask was answered after the token was given up
	forced  bool     // the lock was taken from it
	lowered bool     // gave up a part
	done    bool     // and the server has said so
}

// move is one thing that happens.
type move struct {
	what    string
	claim   uint8
	message message
}

func (m move) String() string {
	if m.message.kind != 0 {
		return fmt.Sprintf("%s %s", m.what, m.message)
	}
	return strings.ReplaceAll(m.what, "$", letters[m.claim:m.claim+1])
}

func (m message) String() string {
	names := [...]string{"", "ask", "renewal", "release", "downgrade", "answer to ask", "answer to renewal", "answer to release",
		"answer to downgrade", "granted on ask", "ask again", "lost"}
	text := fmt.Sprintf("%c: %s", letters[m.claim], names[m.kind])
	if m.kind == ask || m.kind == asked || m.kind == granted {
		text += fmt.Sprintf(" %d", m.ask)
	}
	switch {
	case m.kind == asked:
		text += ": " + [...]string{"buried", "busy", "queued", "granted", "exceeded", "conflict", "full"}[m.status]
	case m.kind == renewed || m.kind == released || m.kind == lowered:
		text += ": " + [...]string{"it has none", "held", "waited"}[m.status]
	case m.kind == release && !m.settled:
		text += " (an ask may be under way)"
	}
	return text
}

func (sc *scenario) start() state {
	s := state{left: sc.faults, ticks: sc.ticks, hears: 1<<claims - 1, faultless: true}
	for i := range s.claims {
		if i >= len(sc.claims) {
			s.claims[i].phase = over
		}
	}
	return s
}

// trusts reports whether a lease is trusted so many ticks after the request was sent.
func (sc *scenario) trusts(ticks uint8) bool {
	return int64(ticks)*sc.tick < sc.ttl-(sc.ttl/100+2)
}

// oldest is the number of ticks from which on it makes no difference how many they are.
func (sc *scenario) oldest() uint8 { return uint8(sc.ttl/sc.tick) + 1 }

// under returns how many messages of these kinds are under way for a claim.
func (s *state) under(i int, kinds ...kind) (n int) {
	for _, m := range s.mail {
		if int(m.claim) == i && slices.Contains(kinds, m.kind) {
			n++
		}
	}
	return n
}

// messages returns how many are under way.
func (s *state) messages() (n int) {
	for n < mail && s.mail[n].kind != 0 {
		n++
	}
	return n
}

// send puts a message under way. There is room, see next.
func (s *state) send(m message) {
	i := s.messages()
	for ; i > 0 && less(m, s.mail[i-1]); i-- {
		s.mail[i] = s.mail[i-1]
	}
	s.mail[i] = m
}

func less(a, b message) bool { return a.order() < b.order() }

func (m message) order() uint64 {
	settled := uint64(0)
	if m.settled {
		settled = 1
	}
	return uint64(m.kind)<<48 | uint64(m.claim)<<40 | uint64(m.ask)<<32 | uint64(m.status)<<24 | uint64(m.place)<<16 | uint64(m.ticks)<<8 | settled
}

func (s *state) take(i int) message {
	m := s.mail[i]
	copy(s.mail[i:], s.mail[i+1:])
	s.mail[mail-1] = message{}
	return m
}

// drop takes messages away that nobody listens to any more.
func (s *state) drop(i int, kinds ...kind) {
	for j := 0; j < s.messages(); {
		if int(s.mail[j].claim) == i && slices.Contains(kinds, s.mail[j].kind) {
			s.take(j)
		} else {
			j++
		}
	}
}

// world is a search of a scenario.
type world struct {
	*store
	wrong string // with the move that is being made
}

// next calls f with each state that can follow.
func (w *world) next(s *state, f func(move, *state)) {
	all := s.messages()
	room := all < w.mail
	for i := range all {
		m := s.mail[i]
		if i > 0 && m == s.mail[i-1] {
			continue
		}
		to := *s
		to.take(i)
		w.deliver(&to, m)
		f(move{"delivered ", m.claim, m}, &to)

		if s.left.lose > 0 {
			to := *s
			to.take(i)
			to.left.lose--
			to.faultless = false
			f(move{"LOST      ", m.claim, m}, &to)
		}
		// Nothing repeats an ask behind the claim's back, see rule 5 of package redisdriver. And
		// a call returns once.
		if s.left.double > 0 && room && m.kind != ask && m.kind != asked {
			to := *s
			to.left.double--
			to.send(m)
			f(move{"DOUBLED   ", m.claim, m}, &to)
		}
	}
	for i := range w.claims {
		w.acts(s, i, room, f)
	}
	if s.left.force > 0 && w.contents[s.record].holds != 0 {
		to := *s
		to.left.force--
		for i := range to.claims {
			if p := to.claims[i].phase; w.contents[s.record].holds>>i&1 == 1 && (p == waiting || p == holding) {
				to.claims[i].forced = true
			}
		}
		w.serve(&to, message{kind: force})
		f(move{what: "FORCED: taken from all"}, &to)
	}
	if s.left.setBack > 0 {
		to := *s
		to.left.setBack--
		to.faultless = false
		to.record = w.later(s.record, -w.back)
		f(move{what: fmt.Sprintf("SET BACK: the server's clock, by %d ms", w.back)}, &to)
	}
	if to := *s; w.tick(&to) {
		f(move{what: fmt.Sprintf("%d ms pass", w.scenario.tick)}, &to)
	}
}

// acts calls f with what a claim can do by itself.
func (w *world) acts(s *state, i int, room bool, f func(move, *state)) {
	c, want := &s.claims[i], w.claims[i]
	do := func(what string, change func(*state, *claim)) {
		to := *s
		change(&to, &to.claims[i])
		f(move{what: what, claim: uint8(i)}, &to)
	}
	switch c.phase {
	case idle:
		// Of claims that want the same, it is the first one that asks first.
		twin := i > 0 && want == w.claims[i-1] && s.claims[i-1].phase == idle
		if room && !twin && (want.after == 0 || s.claims[want.after-1].phase >= over) {
			do("$ asks", func(to *state, c *claim) { to.ask(i) })
		}
	case waiting:
		due := c.again || c.ticks[c.asks-1] > 0
		if room && due && c.asks < w.asks && s.under(i, ask, asked) < 3 {
			do("$ asks again", func(to *state, c *claim) { to.ask(i) })
		}
		if room {
			do("$ gives up", func(to *state, c *claim) { to.leave(i) })
		}
	case holding:
		if room {
			do("$ releases", func(to *state, c *claim) { to.leave(i) })
		}
		if room && c.since > 0 && s.under(i, renew, renewed) == 0 {
			do("$ renews", func(to *state, c *claim) { to.send(message{kind: renew, claim: uint8(i)}) })
		}
		if room && want.lower && !c.done && s.under(i, lower, lowered) == 0 {
			do("$ downgrades", func(to *state, c *claim) {
				c.lowered = true
				to.send(message{kind: lower, claim: uint8(i)})
			})
		}
	case leaving:
		if room && s.under(i, release, released) == 0 {
			do("$ releases again", func(to *state, c *claim) { to.leave(i) })
		}
	}
	if s.left.crash > 0 && c.phase != idle && c.phase < over {
		crash := func(to *state, c *claim) {
			to.left.crash--
			*c = claim{phase: crashed}
			to.drop(i, asked, renewed, released, lowered, granted, askAgain, lost)
		}
		do("$ CRASHES, as Redis sees", func(to *state, c *claim) {
			crash(to, c)
			to.hears &^= 1 << i
		})
		do("$ CRASHES", crash)
	}
	switch hears := s.hears>>i&1 == 1; {
	case hears && s.left.cut > 0 && (c.phase == waiting || c.phase == holding):
		do("$ is CUT OFF from news", func(to *state, c *claim) {
			to.left.cut--
			to.faultless = false
			to.hears &^= 1 << i
			to.drop(i, granted, askAgain, lost)
		})
	case !hears && c.phase < over:
		do("$ hears news again", func(to *state, c *claim) {
			to.hears |= 1 << i
			c.again = c.phase == waiting
		})
	}
}

// ask sends the next ask of a claim.
func (s *state) ask(i int) {
	c := &s.claims[i]
	c.phase, c.again = waiting, false
	c.ticks[c.asks] = 0
	c.open++
	c.asks++
	s.send(message{kind: ask, claim: uint8(i), ask: c.asks, place: c.place})
}

// tidy makes answers to asks the same that make no difference any more.
func (s *state) tidy(i int) {
	if s.claims[i].phase == waiting {
		return
	}
	for j := range s.messages() {
		if m := &s.mail[j]; int(m.claim) == i && m.kind == asked {
			status := min(m.status, queued)
			if m.status == full {
				status = busy
			}
			*m = message{kind: asked, claim: m.claim, status: status}
			if s.claims[i].phase == holding || m.status == buried {
				m.status = busy
			}
		}
	}
	s.sort()
}

func (s *state) sort() {
	slices.SortFunc(s.mail[:s.messages()], func(a, b message) int { return cmp.Compare(a.order(), b.order()) })
}

// leave gives up a token, and with it all news of it.
func (s *state) leave(i int) {
	c := &s.claims[i]
	// Fields that are of no interest any more are made the same for all.
	*c = claim{phase: leaving, open: c.open, strayed: c.strayed}
	s.drop(i, granted, askAgain, lost, renewed, lowered)
	s.send(message{kind: release, claim: uint8(i), settled: c.open == 0})
	s.tidy(i)
}

// serve has the server carry out a request.
func (w *world) serve(s *state, m message) {
	ticks := m.ticks
	m.ticks = 0 // which Redis does not know
	e := w.do(s.record, m, s.hears)
	if e.wrong != "" {
		w.wrong = e.wrong
		return
	}
	s.record = e.record
	if e.moved { // places of the numbering that was are places no more
		for i := range s.claims {
			s.claims[i].place = 0
		}
		for i := range s.messages() {
			s.mail[i].place = 0
		}
		s.sort()
	}
	if p := s.claims[m.claim].phase; m.kind != force && p != crashed && (m.kind == ask || m.kind == release && p == leaving || p == holding) {
		answer := e.answer
		if m.kind == renew {
			answer.ticks = ticks
		}
		s.send(answer)
		s.tidy(int(m.claim))
	}
	for _, news := range e.news {
		p := s.claims[news.claim].phase
		if s.hears>>news.claim&1 == 1 && (p == waiting || p == holding && news.kind == lost) {
			s.send(news)
		}
	}
}

// deliver has a message arrive.
func (w *world) deliver(s *state, m message) {
	if m.kind < asked {
		w.serve(s, m)
		return
	}
	c := &s.claims[m.claim]
	i := int(m.claim)
	switch m.kind {
	case asked:
		c.open--
		w.asked(s, c, m)
	case granted:
		if c.phase == waiting {
			c.served = max(c.served, m.ask)
			c.place = 0
			w.believe(s, i, m.ask)
		}
	case askAgain:
		c.again = c.again || c.phase == waiting
	case renewed:
		if c.phase == holding && m.status == held {
			if w.believeFromReceipt {
				m.ticks = 0
			}
			c.since = min(c.since, m.ticks)
		} else if c.phase == holding {
			s.leave(i)
		}
	case lost:
		if c.phase == holding {
			s.leave(i)
		}
	case lowered:
		c.done = c.done || c.phase == holding
	case released:
		if c.phase != leaving {
			break
		}
		if c.strayed {
			c.strayed = false
			s.send(message{kind: release, claim: m.claim, settled: c.open == 0})
			break
		}
		*c = claim{phase: over, open: c.open}
	}
}

// asked has the answer to an ask arrive.
func (w *world) asked(s *state, c *claim, m message) {
	i := int(m.claim)
	switch {
	case m.status == full && c.phase != waiting:
	case c.phase == over && m.status > busy:
		s.leave(i)
	case c.phase == leaving && m.status > busy:
		c.strayed = true
	case c.phase != waiting:
	case m.status == grantedNow:
		c.served = max(c.served, m.ask)
		c.place = 0
		w.believe(s, i, m.ask)
	case m.status == queued:
		if m.ask > c.served {
			c.place = m.place
		}
	case m.status == full && c.place > 0:
		w.wrong = "a claim that was told to wait is told: " + m.String()
	case (m.status == busy && w.claims[i].try || m.status == full) && c.open == 0 && (c.served == 0 || w.forgetLateGrant):
		*c = claim{phase: over}
	case m.status == busy && w.claims[i].try, m.status == full, m.status == buried && c.forced:
		s.leave(i)
	default:
		w.wrong = "a claim that waits is told: " + m.String()
	}
}

// believe has a claim hold the lock from a grant that rests on an ask.
func (w *world) believe(s *state, i int, ask uint8) {
	c := &s.claims[i]
	since := c.ticks[ask-1]
	if w.believeNewest {
		since = c.ticks[c.asks-1]
	}
	if w.believeFromReceipt {
		since = 0
	}
	if !w.trusts(since) {
		c.again = true
		return
	}
	*c = claim{phase: holding, open: c.open, since: since, forced: c.forced}
	s.drop(i, granted, askAgain)
	s.tidy(i)
}

// tick lets time pass, unless a message has been under way for longer than a network holds
// one up: then it must arrive first, or be lost.
func (w *world) tick(s *state) bool {
	if w.scenario.ticks > 0 {
		if s.ticks == 0 {
			return false
		}
		s.ticks--
	}
	oldest, forgets := w.oldest(), w.forgets()
	for _, m := range s.mail {
		if m.kind == ask && int64(m.ticks+1)*w.scenario.tick >= w.retention {
			return false
		}
	}
	s.record = w.later(s.record, w.scenario.tick)
	for i := range s.messages() {
		switch m := &s.mail[i]; {
		case m.kind == renew || m.kind == renewed:
			m.ticks = min(m.ticks+1, oldest)
		case m.kind == ask && forgets:
			m.ticks++
		}
	}
	for i := range w.claims {
		c := &s.claims[i]
		for j := range c.asks {
			c.ticks[j] = min(c.ticks[j]+1, oldest)
		}
		if c.phase != holding {
			continue
		}
		if c.since++; !w.trusts(c.since) {
			*c = claim{phase: leaving, open: c.open}
			s.drop(i, lost, renewed, lowered)
		}
	}
	return true
}

// check says what is wrong with a state, if anything.
func (w *world) check(s *state) string {
	at := &w.contents[s.record]
	sum := int64(0)
	for i := range w.claims {
		if c := &s.claims[i]; c.phase == holding && !c.forced {
			weight := w.claims[i].weight
			if c.lowered {
				weight = 1
			}
			sum += weight
		}
	}
	if sum > w.limit {
		return fmt.Sprintf("claims that trust their leases hold %d of %d", sum, w.limit)
	}
	for i := range w.claims {
		if c := &s.claims[i]; c.phase == holding && !c.forced && at.holds>>i&1 == 0 {
			return fmt.Sprintf("%c trusts its lease, which has ended", letters[i])
		}
	}
	if s.mail[0].kind != 0 {
		return ""
	}
	for i := range w.claims {
		c := &s.claims[i]
		switch {
		case c.phase == over && at.holds>>i&1 == 1:
			return fmt.Sprintf("%c holds the lock for nobody", letters[i])
		case c.phase == over && at.waits>>i&1 == 1:
			return fmt.Sprintf("%c waits for nobody", letters[i])
		case c.phase != waiting || !s.faultless || c.again || c.forced:
		case at.holds>>i&1 == 1:
			return fmt.Sprintf("%c has the lock, and was not told", letters[i])
		case at.waits>>i&1 == 0 && int64(c.ticks[c.asks-1])*w.scenario.tick <= w.ttl*2/3:
			return fmt.Sprintf("%c waits, and the server does not know", letters[i])
		}
	}
	return w.settle(*s)
}

// settle lets a world in which no message is under way come to rest, without further faults:
// waiters ask again, holders release. It says what is wrong if that does not serve everybody.
func (w *world) settle(s state) string {
	dead := false
	for i := range w.claims {
		dead = dead || s.claims[i].phase == crashed
	}
	serve := func(m message) (answer message) {
		e := w.do(s.record, m, s.hears)
		if e.wrong != "" {
			w.wrong = e.wrong
		}
		s.record = e.record
		if e.moved {
			for i := range s.claims {
				s.claims[i].place = 0
			}
		}
		return e.answer
	}
	rounds := len(w.claims) + 1
	ticks := int((w.ttl+lockrecord.Grace(w.ttl))/w.scenario.tick) + 2
	for round := range 2*rounds + ticks {
		waiters := false
		for i := range w.claims {
			c := &s.claims[i]
			for c.phase != idle && c.phase < over {
				if c.phase == waiting {
					a := serve(message{kind: ask, claim: uint8(i), ask: c.asks + 1 + uint8(round), place: c.place})
					if c.place = a.place; a.status == queued {
						waiters = true
						break
					}
				}
				c.phase = over
				serve(message{kind: release, claim: uint8(i), settled: true})
			}
		}
		if w.wrong != "" {
			return w.wrong
		}
		if !waiters {
			at := w.contents[s.record]
			for i, c := range s.claims {
				if (at.holds|at.waits)>>i&1 == 1 && c.phase != crashed {
					return fmt.Sprintf("at the end %c is still there", letters[i])
				}
			}
			r, most := w.records[s.record], now+w.retention
			if r.text != "" { // whose end stays as it was when somebody held it
				most += w.ttl + lockrecord.Grace(w.ttl)
			}
			if !dead && w.scenario.setBack == 0 && r.exists() && r.ends > most {
				return fmt.Sprintf("at the end the key lives %d ms too long", r.ends-most)
			}
			return ""
		}
		if round >= rounds {
			if !dead {
				return "the lock is free, and heartbeats do not find it"
			}
			s.record = w.later(s.record, w.scenario.tick)
		}
	}
	return "waiters are not served though all others have left, or are dead for longer than a lease lasts"
}
