package redisdriver_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
)

// world is a lock in a store, beside its model. Every step is done to both, and then
// everything that can be seen of the lock is compared.
type world struct {
	kind    driver.Kind
	name    string
	key     string
	rdb     redis.UniversalClient // to look at the lock
	drivers []*redisdriver.Driver
	clock   worldClock
	ears    []*ears // of the clients; nil if they cannot be deafened
	forms   *forms  // what was seen of those that the lock can have
	form    string  // the one after the last step

	model   *model
	tokens  int
	resizes int
	slots   [6]*player // of the tokens in use
	left    [6]*player // of those that were in use before
	last    *player    // of the one that was released last
	players map[string]*player
	gone    map[string]bool // tokens that were released
	heard   chan hearing
}

// worldClock is how time passes for the store.
type worldClock interface {
	pass(ms int64)
	now() int64 // in ms, from any beginning
	// slack is how many ms the store's clock may be ahead of now.
	slack() int64
	// hear returns the next call of Wake; false if there will be none before the next
	// step. more says that one is expected.
	hear(from chan hearing, more bool) (hearing, bool)
}

// player is one token, and the client that uses it.
type player struct {
	d    *redisdriver.Driver
	req  driver.Request
	want *modelAsk
}

// hearing is a call of Wake.
type hearing struct {
	token string
	driver.Grant
}

func newWorld(k driver.Kind, prefix, name string, rdb redis.UniversalClient, drivers []*redisdriver.Driver, c worldClock, f *forms) *world {
	w := &world{
		kind: k, name: name, key: fmt.Sprintf("%s:2:%s:%s", prefix, k, name), rdb: rdb, drivers: drivers,
		clock: c, forms: f, form: "none", model: newModel(k), players: map[string]*player{}, gone: map[string]bool{}, heard: make(chan hearing, 1000),
	}
	lives := int64(0)
	w.model.born = func() int64 { // the time at which it begins; of no two it is the same if time does not stand still
		if c.slack() == 0 {
			return w.model.now
		}
		lives++
		return lives
	}
	return w
}

// play does the steps one after the other. The error is the first difference.
func (w *world) play(steps []modelStep) error {
	for i, s := range steps {
		w.model.now, w.model.news = w.clock.now(), nil
		err := w.do(s)
		if err == nil {
			err = w.compare()
		}
		if err != nil {
			return fmt.Errorf("step %d, %v: %w", i, s, err)
		}
	}
	return nil
}

// join makes a new token for a slot.
func (w *world) join(s modelStep) *player {
	w.tokens++
	token, i := fmt.Sprintf("%s-t%d", w.name, w.tokens), s.Slot%len(w.drivers) // drivers outlive worlds
	p := &player{d: w.drivers[i], want: s.ask(w.kind, token, fmt.Sprint("client", i))}
	r := p.want
	p.req = driver.Request{
		Kind: w.kind, Name: w.name, Token: token, TTL: time.Duration(r.ttl) * time.Millisecond,
		Shared: r.shared, Weight: r.weight, Limit: r.limit, Wait: r.wait, Fences: r.fences, Holder: token,
	}
	if r.wakes {
		p.req.Wake = func(g driver.Grant) { w.heard <- hearing{token, g} }
	}
	w.slots[s.Slot], w.left[s.Slot] = p, w.slots[s.Slot]
	w.players[token] = p
	return p
}

// leave lets a slot go on with a new token. The old one may still hold, or wait.
func (w *world) leave(slot int) {
	if w.slots[slot] != nil {
		w.left[slot], w.slots[slot] = w.slots[slot], nil
	}
}

// ask sends an ask of a token, to the store and to the model.
func (w *world) ask(p *player, ask uint64) error {
	r := p.req
	r.Ask = ask
	g, err := p.d.Acquire(context.Background(), &r)
	if errors.Is(err, driver.ErrNotHeld) && w.model.ended[r.Token] {
		// A driver may know for longer than it must that a token was released.
		w.model.unheard(r.Token)
		return nil
	}
	if allowed := w.model.acquire(p.want, ask); !allowed.allows(g.Status, err) {
		return fmt.Errorf("answered %+v, %v; want %+v", g, err, allowed)
	}
	if err != nil {
		return nil
	}
	delete(w.gone, r.Token)
	delete(w.model.ended, r.Token) // it was used again, which nobody should do
	if g.Status == driver.Granted {
		h := w.model.holding(r.Token)
		if err := w.see(h, g.Fence, g.Fence+g.Fences-1); err != nil {
			return err
		}
		if g.Ask != ask {
			return fmt.Errorf("the grant rests on ask %d", g.Ask)
		}
		return nil
	}
	return w.checkHint(g, r.Token)
}

// see takes note of the fences of a grant, and compares them if they are known already.
func (w *world) see(h *modelHold, fence, last int64) error {
	m := w.model
	if h.fence != 0 {
		if h.fence != fence || h.last != last {
			return fmt.Errorf("%s has fences %d to %d, and before %d to %d", h.token, fence, last, h.fence, h.last)
		}
		return nil
	}
	for _, earlier := range m.holders { // they were granted in the same step
		if earlier == h {
			break
		}
		if earlier.fence == 0 {
			return nil // compare will see them all
		}
	}
	least := m.fence + m.reserved
	asked := min(max(h.fences, 1), 1024)
	if !m.known {
		asked = 1
	}
	if w.clock.slack() == 0 {
		want := max(least, m.now*1000+1-asked)
		if wantLast := max(want, m.now*1000); fence != want || last != wantLast {
			return fmt.Errorf("%s has fences %d to %d, want %d to %d", h.token, fence, last, want, wantLast)
		}
	}
	if fence < least || last < fence || last-fence >= asked {
		return fmt.Errorf("%s has fences %d to %d, not at most %d from %d", h.token, fence, last, asked, least)
	}
	h.fence, h.last, m.fence, m.reserved, m.known = fence, last, fence, last-fence+1, true
	return nil
}

// checkHint looks at when a token that did not get the lock should ask again: never
// after the next end of a lease, and the first of the line must be told that.
func (w *world) checkHint(g driver.Grant, token string) error {
	m, end := w.model, int64(math.MaxInt64)
	for _, h := range m.holders {
		end = min(end, h.expires-m.now+1)
	}
	after := g.RetryAfter.Milliseconds()
	if w.model.deaf[w.players[token].want.client] {
		end = max(end, 250) // it polls
	}
	if after < 0 || len(m.holders) > 0 && after > end {
		return fmt.Errorf("should ask again after %d ms, the next lease ends in %d", after, end)
	}
	first := g.Status == driver.Busy || !m.holes && len(m.queue) > 0 && m.queue[0].token == token
	if len(m.holders) > 0 && after == 0 && first {
		return fmt.Errorf("is not told that a lease ends in %d ms", end)
	}
	return nil
}

// release gives up what a token has.
func (w *world) release(p *player, unsettled bool) error {
	l := driver.Lease{Kind: w.kind, Name: w.name, Token: p.req.Token, TTL: p.req.TTL, Unsettled: unsettled}
	err := p.d.Release(context.Background(), l)
	w.gone[p.req.Token] = true
	for range len(w.heard) { // what it heard until now may be of the steps before, on a real server
		if h := <-w.heard; h.token != p.req.Token {
			w.heard <- h
		}
	}
	return w.expect(w.model.release(p.req.Token, unsettled), err)
}

func (w *world) expect(allowed modelAnswer, err error) error {
	if !allowed.allows(0, err) {
		return fmt.Errorf("answered %v, want %v", err, allowed.errs)
	}
	return nil
}

// pass lets time go on. The store may then have forgotten what nobody counts on.
func (w *world) pass(ms int64) error {
	w.clock.pass(ms)
	w.model.now = w.clock.now()
	n, err := w.rdb.Exists(context.Background(), w.key).Result()
	if err != nil || n == 1 {
		return err
	}
	if !w.model.mayForget() {
		return errors.New("the key is gone")
	}
	w.model.forget()
	return nil
}

// edge returns how many ms there are until the next lease, patience or tombstone ends.
func (w *world) edge() int64 {
	m, next := w.model, int64(math.MaxInt64)
	soon := func(t int64) {
		if t >= m.now {
			next = min(next, t-m.now)
		}
	}
	for _, h := range m.holders {
		soon(h.expires)
	}
	for _, v := range m.queue {
		soon(v.alive)
	}
	for _, until := range m.tombs {
		soon(until)
	}
	if next == math.MaxInt64 {
		return 0
	}
	return next
}

// news compares the calls of Wake with what the model says.
func (w *world) news() error {
	want := slices.Clone(w.model.news)
	// A client need not heed a grant that rests on no later ask than one that it knows of. Here such
	// a grant comes from a first ask that arrives again, and its trust is over.
	missing := func() bool {
		return slices.ContainsFunc(want, func(n modelNews) bool {
			return n.status != driver.Granted || n.ask > w.model.granted[n.token]
		})
	}
	for {
		got, ok := w.clock.hear(w.heard, missing())
		if !ok {
			break
		}
		i := slices.Index(want, modelNews{got.token, got.Status, got.Ask})
		switch {
		case w.gone[got.token]:
			return fmt.Errorf("woken after its release: %+v", got)
		case i >= 0:
			want = slices.Delete(want, i, i+1)
			if got.Status == driver.Granted {
				w.model.served(got.token, got.Ask)
			}
			if h := w.model.holding(got.token); h != nil && h.fence != got.Fence {
				return fmt.Errorf("woken with %+v, has fence %d", got, h.fence)
			}
		case got.Status != driver.Queued: // to ask once more is never wrong
			return fmt.Errorf("unexpected news: %+v, want %+v", got, want)
		}
	}
	if missing() {
		return fmt.Errorf("nobody was told of %+v", want)
	}
	return nil
}

// listen breaks the subscription of a client, or mends it. That takes its time.
func (w *world) listen(i int, hears bool) error {
	client := fmt.Sprint("client", i)
	if w.ears == nil || w.ears[i].breaks == mostBreaks || w.model.deaf[client] == !hears {
		return nil
	}
	w.model.deaf[client] = !hears
	if hears {
		w.ears[i].mend()
		return w.pass(10000)
	}
	w.ears[i].cut()
	return w.pass(1000)
}
