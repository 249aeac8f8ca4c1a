package cohort_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/internal/cohort"
)

// member is somebody who came to want the lock, as far as the test has heard of them.
type member struct {
	key  string
	w    *waiter
	term *term
}

// model is what must be true of a cohort whatever happens, in whatever order.
type model struct {
	*rapid.T
	line    *line
	waiting []*member // in the order of their arrival, and told nothing
	asker   *member   // at the store, or told to go there
	holder  *member   // has the present term, or was told so
	before  []*member // hold terms that were lost or replaced
	present *term     // as the store sees it, held or idle
	gone    []*waiter // has had their news, or left
}

// Nobody who waits is forgotten, each is told one thing, in the order of their arrival, and
// no two of them are at the store or have the term.
func TestNobodyIsForgottenWhateverHappens(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := &model{T: r, line: &line{}}
		r.Repeat(map[string]func(*rapid.T){
			"join":     func(r *rapid.T) { m.join(m.anyKey(), true) },
			"try":      func(r *rapid.T) { m.join(m.anyKey(), false) },
			"win":      func(r *rapid.T) { m.win(rapid.Bool().Draw(r, "stays")) },
			"fail":     func(r *rapid.T) { m.fail() },
			"bequeath": func(r *rapid.T) { m.bequeath() },
			"next":     func(r *rapid.T) { m.next() },
			"late":     func(r *rapid.T) { m.late() },
			"leave":    func(r *rapid.T) { m.leave(rapid.IntRange(0, 10).Draw(r, "who")) },
			"lose":     func(r *rapid.T) { m.lose() },
			"rest":     func(r *rapid.T) { m.rest() },
			"turn":     func(r *rapid.T) { m.turn() },
			"":         func(r *rapid.T) { m.check() },
		})
		for m.asker != nil || m.holder != nil {
			m.win(false)
			m.next()
			m.check()
		}
		if len(m.waiting) > 0 {
			r.Fatalf("%d wait for ever", len(m.waiting))
		}
	})
}

func (m *model) anyKey() string {
	return rapid.SampledFrom([]string{"k", "k", "k", "other"}).Draw(m.T, "key")
}

func (m *model) join(key string, wait bool) {
	idle := m.present != nil && m.holder == nil
	suits := idle && m.present.Suits(&key)
	who := &member{key: key, w: cohort.NewWaiter[*term, string]()}
	n, ended := m.line.Join(who.w, &key, wait)
	if (ended != nil) != (idle && !suits) || ended != nil && ended != m.present {
		m.Fatalf("the idle term %v ended as %v", m.present, ended)
	}
	if ended != nil {
		m.present = nil
	}
	switch n.Status {
	case cohort.Held:
		m.require(suits && n.Term == m.present, "was given a term that is not idle or does not suit")
		m.holder, who.term = who, n.Term
	case cohort.Ask:
		m.require(m.asker == nil && m.present == nil && len(m.waiting) == 0, "need not ask the store")
		m.asker = who
	case cohort.Busy:
		m.require(!wait && (m.asker != nil || m.present != nil), "nobody is there")
	case cohort.Wait:
		m.waiting = append(m.waiting, who)
	}
	m.hear(nil)
}

// hear finds out who has just been told something. held is the term that passes, if one does.
func (m *model) hear(held *term) {
	for len(m.waiting) > 0 && len(m.waiting[0].w.News()) > 0 {
		who := m.waiting[0]
		m.waiting = m.waiting[1:]
		n := <-who.w.News()
		m.gone = append(m.gone, who.w)
		switch {
		case held != nil:
			m.require(n == news{cohort.Held, held} && m.holder == nil && held.key == who.key, "the term should pass to it")
			m.holder, who.term, held = who, held, nil
		default:
			m.require(n.Status == cohort.Ask && m.asker == nil, "should be at the store alone")
			m.asker, who.term = who, n.Term
		}
	}
	m.require(held == nil, "nobody was told that the term passes")
}

func (m *model) win(stays bool) {
	if m.asker == nil {
		return
	}
	who := m.asker
	if m.holder != nil {
		m.before = append(m.before, m.holder)
	}
	who.term = &term{key: who.key, stays: stays}
	m.asker, m.holder, m.present = nil, who, who.term
	m.line.Won(who.term)
	m.hear(nil)
}

func (m *model) fail() {
	if m.asker != nil {
		m.asker = nil
		m.line.Failed()
		m.hear(nil)
	}
}

func (m *model) bequeath() {
	if m.asker == nil {
		return
	}
	attempt, heir := &term{key: m.asker.key}, len(m.waiting) > 0 && m.waiting[0].key == m.asker.key
	passed := m.line.Bequeath(attempt)
	m.require(passed == heir, "the attempt should pass to one who asks alike")
	if !passed {
		m.fail()
		return
	}
	m.asker = nil
	m.hear(nil)
	m.require(m.asker != nil && m.asker.term == attempt, "the heir should have the attempt")
}

func (m *model) next() {
	if m.holder == nil {
		return
	}
	t := m.holder.term
	pass := m.asker == nil && len(m.waiting) > 0 && t.Suits(&m.waiting[0].key)
	keep := m.asker == nil && len(m.waiting) == 0 && t.stays
	m.holder = nil
	switch m.line.Next(t) {
	case cohort.Passed:
		m.require(pass, "the term should not pass")
		m.hear(t)
	case cohort.Kept:
		m.require(keep, "the term should not be kept")
	case cohort.Over:
		m.require(!pass && !keep, "the term should go on")
		m.present = nil
		m.hear(nil)
	}
}

// late lets somebody go out whose term was lost.
func (m *model) late() {
	if len(m.before) > 0 {
		m.require(m.line.Next(m.before[0].term) == cohort.Over, "a term that was lost went on")
		m.before = m.before[1:]
		m.hear(nil)
	}
}

func (m *model) leave(i int) {
	if i >= len(m.waiting) {
		return
	}
	who := m.waiting[i]
	m.waiting = slices.Delete(m.waiting, i, i+1)
	m.gone = append(m.gone, who.w)
	_, late := m.line.Leave(who.w)
	m.require(!late, "it was told nothing")
	m.hear(nil)
}

func (m *model) lose() {
	if m.present == nil {
		return
	}
	m.require(m.line.Over(m.present, false), "that is the present term")
	if m.holder != nil {
		m.before = append(m.before, m.holder)
	}
	m.holder, m.present = nil, nil
	m.hear(nil)
}

// rest is that nobody has wanted an idle term for long.
func (m *model) rest() {
	if m.present != nil {
		over := m.line.Over(m.present, true)
		m.require(over == (m.holder == nil), "the term is idle or not")
		if over {
			m.present = nil
		}
		m.hear(nil)
	}
}

// turn is that somebody else wants the lock.
func (m *model) turn() {
	if m.present != nil {
		m.present.over, m.present.stays = true, false
		m.line.Review()
		m.hear(nil)
	}
}

func (m *model) check() {
	m.require(m.line.Term() == m.present, "another is the present term")
	for _, w := range m.gone {
		m.require(len(w.News()) == 0, "was told twice")
	}
	for i, who := range m.waiting {
		m.require(len(who.w.News()) == 0, "was told before those who came before it")
		later := m.holder != nil && m.present.Suits(&who.key)
		m.require(i > 0 || m.asker != nil || later, "the first is forgotten")
	}
}

func (m *model) require(is bool, otherwise string) {
	m.Helper()
	if !is {
		m.Fatal(otherwise)
	}
}
