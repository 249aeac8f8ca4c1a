package redisdriver_test

import (
	"cmp"
	"math"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// model is one lock as the contract in package driver has it, with the numbers of the rules in
// docs/protocol.md: a list of holders and a line of waiters. Times are in ms.
type model struct {
	kind    driver.Kind
	now     int64
	holders []*modelHold // in the order of their grants
	queue   []*modelWait // by place
	tombs   map[string]int64
	news    []modelNews // of the step under way

	limit   int64 // kept when the lock is free, but then it is for requests to say
	resized bool

	resizedAt int64

	// The fences of a grant are fence to fence+reserved-1. They are seen only after the
	// step, so these are of the last grant that was seen. They go on when the key
	// is gone, but it does not know them then.
	fence, reserved int64
	known           bool

	tail, birth int64           // last place given out, and the numbering that it is of, 0 for none
	born        func() int64    // what the next numbering is called
	deaf        map[string]bool // clients whose subscription is broken
	earliest    int64           // no lease ends before, in the record of several; renewals do not move it

	seats map[string]modelSeat // what the clients remember, by token

	granted map[string]uint64 // asks that the clients know to be granted, the last of each token
	over    map[string]bool   // tokens whose time is over, which nobody need have noticed yet
	ended   map[string]bool   // tokens that were released or forced
	holes   bool              // the places of those who wait need not be without gaps
}

// modelAsk is what a token asks for. It does not change.
type modelAsk struct {
	token, client       string
	weight, limit       int64
	ttl, fences         int64
	shared, wait, wakes bool
}

type modelHold struct {
	*modelAsk
	weight, expires, since int64
	fence, last            int64 // 0 until they are seen
}

type modelWait struct {
	*modelAsk
	place, alive int64
	ask          uint64
	heard        bool // as in script/lib/record.lua
	perhaps      bool // it may be overdue still, see enter
}

type modelSeat struct{ birth, place int64 }

// modelNews is what the client of a token is told.
type modelNews struct {
	token  string
	status driver.Status
	ask    uint64
}

func newModel(k driver.Kind) *model {
	m := &model{kind: k, reserved: 1, deaf: map[string]bool{}, ended: map[string]bool{}, seats: map[string]modelSeat{}, granted: map[string]uint64{}}
	m.forget()
	return m
}

// forget is what happens when the key is gone. Fences go on nevertheless.
func (m *model) forget() {
	m.holders, m.queue, m.tombs = nil, nil, map[string]int64{}
	m.limit, m.resized = 0, false
	m.over, m.known = map[string]bool{}, false
	m.renumber()
	if m.kind != driver.Semaphore {
		m.limit = wholeLock
	}
}

// renumber is what happens when the lock is thin, which has no places.
func (m *model) renumber() { m.tail, m.birth, m.holes = 0, 0, false }

// mayForget reports whether nothing is left that anybody counts on.
func (m *model) mayForget() bool {
	for _, w := range m.queue {
		if w.alive >= m.now {
			return false
		}
	}
	for _, until := range m.tombs {
		if until > m.now {
			return false
		}
	}
	return len(m.live()) == 0 && (!m.resized || m.now >= m.resizedAt+retained.Milliseconds())
}

// live are the holders whose lease has not ended: it lasts its TTL and the grace.
func (m *model) live() []*modelHold {
	var live []*modelHold
	for _, h := range m.holders {
		if h.expires >= m.now {
			live = append(live, h)
		}
	}
	return live
}

// purge ends the leases whose time is over.
func (m *model) purge() {
	for _, h := range m.holders {
		if h.expires < m.now {
			m.over[h.token] = true
		}
	}
	m.holders = m.live()
}

func (m *model) used() (sum int64) {
	for _, h := range m.holders {
		sum += h.weight
	}
	return sum
}

// nextEnd is when the next lease ends, as far as the store has looked: a heartbeat goes through the
// line only if that may be before the next one. Until then it keeps the places of the silent.
func (m *model) nextEnd() int64 {
	end := int64(math.MaxInt64)
	for _, h := range m.holders {
		end = min(end, h.expires)
	}
	if len(m.holders) > 1 && m.earliest >= m.now {
		end = min(end, m.earliest)
	}
	return end
}

func (m *model) holding(token string) *modelHold {
	for _, h := range m.holders {
		if h.token == token {
			return h
		}
	}
	return nil
}

func (m *model) waiting(token string) *modelWait {
	for _, w := range m.queue {
		if w.token == token {
			return w
		}
	}
	return nil
}

func (m *model) hold(r *modelAsk) {
	m.holders = append(m.holders, &modelHold{modelAsk: r, weight: r.weight, expires: m.now + r.ttl + graceOf(r.ttl), since: m.now})
	delete(m.over, r.token)
	if r.weight == m.limit {
		clear(m.over)
	}
}

// extend gives a holder its full TTL again, and never takes time away.
func (m *model) extend(h *modelHold) {
	h.expires = max(h.expires, m.now+h.ttl+graceOf(h.ttl))
}

// withdraw takes a token out of the line.
func (m *model) withdraw(token string) {
	m.queue = slices.DeleteFunc(m.queue, func(w *modelWait) bool { return w.token == token })
	m.holes = true
}

// grant serves the line from its head, until what is left is not enough for the next.
// by is the token whose request this is: it has not gone.
func (m *model) grant(by string) {
	for len(m.queue) > 0 {
		w := m.queue[0]
		switch {
		case w.alive < m.now:
			m.over[w.token], m.holes = true, true // silent for too long
		case m.used() >= m.limit && w.weight <= m.limit:
			return
		case m.seemsGone(w, by):
			m.holes = true
		case w.weight > m.limit:
			m.tell(w.modelAsk, modelNews{w.token, driver.Queued, 0})
			m.holes = true
		case w.weight > m.limit-m.used():
			return
		default:
			m.hold(w.modelAsk)
			m.tell(w.modelAsk, modelNews{w.token, driver.Granted, w.ask})
			m.queue = m.queue[1:]
			if m.used() >= m.limit {
				return
			}
			continue
		}
		m.queue = m.queue[1:]
	}
}

// seemsGone reports whether nobody listens for a waiter whose client listened at its last
// ask. by is the token that asks, which has not gone.
func (m *model) seemsGone(w *modelWait, by string) bool {
	return w.heard && w.token != by && m.deaf[w.client]
}

func (m *model) tell(r *modelAsk, n modelNews) {
	if r.wakes && !m.deaf[r.client] {
		m.news = append(m.news, n)
	}
}

// enter puts a token into the line, in its old place if it has one there, or notes that
// it still waits.
func (m *model) enter(r *modelAsk, ask uint64) *modelWait {
	alive, heard := m.now+r.ttl*2/3, r.wakes && !m.deaf[r.client]
	if w := m.waiting(r.token); w != nil {
		if ask >= w.ask { // else it is a straggler, which says nothing of now
			w.alive, w.ask, w.heard = alive, ask, heard
		}
		return w
	}
	// The store need not have dropped it when it could: an early ask then revives nothing.
	w := &modelWait{modelAsk: r, alive: alive, ask: ask, heard: heard, perhaps: ask == 1 && m.over[r.token]}
	if m.birth == 0 {
		m.birth = m.born()
	}
	if seat := m.seats[r.token]; seat.place > 0 && seat.birth == m.birth && m.vacant(seat.place) {
		w.place, m.holes = seat.place, true
	} else {
		m.tail++
		w.place = m.tail
	}
	m.queue = append(m.queue, w)
	slices.SortFunc(m.queue, func(a, b *modelWait) int { return cmp.Compare(a.place, b.place) })
	return w
}

// vacant reports whether a place was given out, and nobody waits there.
func (m *model) vacant(place int64) bool {
	return place <= m.tail && !slices.ContainsFunc(m.queue, func(w *modelWait) bool { return w.place == place })
}
