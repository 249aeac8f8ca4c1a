package redisdriver_test

import (
	"errors"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// What the model answers to each request. An answer is a list of what the contract
// allows, and the model goes on from what it got.

// modelAnswer is what a request may be answered. errs are what an error must match one
// of; a nil among them is success.
type modelAnswer struct {
	status driver.Status
	errs   []error
}

func (a modelAnswer) allows(status driver.Status, err error) bool {
	for _, want := range a.errs {
		if want == nil && err == nil || want != nil && errors.Is(err, want) {
			return err != nil || status == a.status
		}
	}
	return false
}

func replies(s driver.Status) modelAnswer { return modelAnswer{s, []error{nil}} }
func outcome(errs ...error) modelAnswer   { return modelAnswer{errs: errs} }

// held is the outcome for a token that should hold the lock.
func held(h *modelHold) modelAnswer {
	if h == nil {
		return outcome(driver.ErrNotHeld)
	}
	return outcome(nil)
}

// dead reports whether a token must not acquire anything.
func (m *model) dead(token string) bool { return m.tombs[token] > m.now }

// acquire is one ask of a token. The answer itself needs no news.
func (m *model) acquire(r *modelAsk, ask uint64) modelAnswer {
	a := m.decide(r, ask)
	if m.holding(r.token) != nil {
		m.served(r.token, ask)
	}
	m.news = slices.DeleteFunc(m.news, func(n modelNews) bool { return n.token == r.token })
	return a
}

func (m *model) decide(r *modelAsk, ask uint64) modelAnswer {
	if m.dead(r.token) {
		m.unheard(r.token)
		return outcome(driver.ErrNotHeld)
	}
	m.purge()
	if h := m.holding(r.token); h != nil {
		m.extend(h)
		m.grant(r.token)
		return replies(driver.Granted)
	}
	if refusal := m.refuse(r); refusal != nil {
		m.unheard(r.token)
		return outcome(refusal...)
	}
	if !r.wait {
		return m.try(r)
	}
	seat := m.wait(r, ask)
	if m.holding(r.token) != nil {
		return replies(driver.Granted)
	}
	if ask > m.granted[r.token] { // else it is an answer from before the grant
		m.seats[r.token] = seat
	}
	return replies(driver.Queued)
}

// served is what a client that hears of a grant makes of it: it has no place any more.
func (m *model) served(token string, ask uint64) {
	m.granted[token] = max(m.granted[token], ask)
	delete(m.seats, token)
}

// unheard is what a client keeps of a token that it need not hear of any more.
func (m *model) unheard(token string) {
	delete(m.granted, token)
	delete(m.seats, token)
}

// refuse returns the errors that a request with this limit and weight may get.
func (m *model) refuse(r *modelAsk) (errs []error) {
	if m.kind != driver.Semaphore {
		return nil
	}
	if !m.resized && m.limit != r.limit {
		if len(m.queue) > 0 {
			m.grant(r.token) // perhaps those who wait have all fallen silent
		}
		if len(m.holders)+len(m.queue) == 0 {
			m.limit = r.limit
		} else {
			errs = append(errs, driver.ErrLimitConflict)
		}
	}
	if r.weight > m.limit {
		if m.waiting(r.token) != nil {
			m.withdraw(r.token) // it waited before the limit was lowered
		}
		m.grant(r.token)
		errs = append(errs, driver.ErrLimitExceeded)
	}
	return errs
}

// try takes what is left if nobody waits for it.
func (m *model) try(r *modelAsk) modelAnswer {
	m.grant(r.token)
	if len(m.queue) == 0 && r.weight <= m.limit-m.used() {
		m.hold(r)
		return replies(driver.Granted)
	}
	m.unheard(r.token)
	return replies(driver.Busy)
}

// wait takes a place in the line, which may be served at once.
func (m *model) wait(r *modelAsk, ask uint64) modelSeat {
	if len(m.queue) == 0 && r.weight <= m.limit-m.used() {
		m.hold(r)
		return modelSeat{}
	}
	w := m.enter(r, ask)
	if m.used() < m.limit || ask != 1 && m.now+r.ttl/3 > m.nextEnd() {
		m.grant(r.token) // which may drop it: a straggler does not say that it still waits
	}
	return modelSeat{m.birth, w.place}
}

// release gives up what a token has. With unsettled, no ask of it may succeed for a
// while.
func (m *model) release(token string, unsettled bool) modelAnswer {
	var a modelAnswer
	m.purge()
	waited := m.waiting(token)
	switch {
	case m.holding(token) != nil || waited != nil && waited.alive >= m.now:
		a = outcome(nil)
	case m.over[token] || waited != nil: // nobody need have noticed that it is over
		a = outcome(nil, driver.ErrNotHeld)
	default:
		a = outcome(driver.ErrNotHeld)
	}
	m.drop(token)
	m.unheard(token)
	delete(m.over, token)
	if unsettled {
		m.tombs[token] = m.now + retained.Milliseconds()
	}
	m.ended[token] = true
	m.grant(token)
	return a
}

// drop takes a token out of everything.
func (m *model) drop(token string) {
	if m.waiting(token) != nil {
		m.withdraw(token)
	}
	for i, h := range m.holders {
		if h.token == token {
			m.holders = append(m.holders[:i:i], m.holders[i+1:]...)
			break
		}
	}
}

func (m *model) renew(token string) modelAnswer {
	m.purge()
	h := m.holding(token)
	if h != nil {
		m.extend(h)
	}
	m.grant(token)
	return held(h)
}

// force takes the lock from all who hold it.
func (m *model) force() modelAnswer {
	m.purge()
	if len(m.holders) == 0 {
		m.grant("") // what has expired is found now
		return outcome(driver.ErrNotHeld)
	}
	for _, h := range m.holders {
		m.tell(h.modelAsk, modelNews{h.token, driver.Lost, 0})
		m.tombs[h.token], m.ended[h.token] = m.now+retained.Milliseconds(), true
	}
	m.holders = nil
	m.grant("")
	return outcome(nil)
}

// downgrade gives up all but weight.
func (m *model) downgrade(token string, weight int64) modelAnswer {
	if m.kind == driver.Mutex {
		return outcome(errors.ErrUnsupported)
	}
	m.purge()
	h := m.holding(token)
	if h != nil {
		h.weight = min(h.weight, weight)
	}
	m.grant("") // a token that does not hold it may wait, and have gone
	return held(h)
}

func (m *model) resize(limit int64) modelAnswer {
	m.purge()
	m.limit, m.resized, m.resizedAt = limit, true, m.now
	m.grant("")
	return outcome(nil)
}
