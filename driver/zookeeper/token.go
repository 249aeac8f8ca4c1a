package zkdriver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// token is what is known here of a token. The truth is in the store.
type token struct {
	asks      int      // calls under way that say that its lease is to go on
	released  bool     // so nobody wants to hear of it
	releasing bool     // the release is under way, and is to find the claim
	late      bool     // an ask has ended while it was
	sent      bool     // there may be a claim, or may have been
	dead      bool     // the lock was taken from it
	settled   bool     // claim and record are those of its claim, in the session s
	s         *session // nil if there is none
	claim     claim
	record    record
	granted   bool
	notice    bool   // tell it when somebody waits for what it holds
	wanted    bool   // somebody has
	ask       uint64 // the last that the store is known to have handled
	wake      func(driver.Grant)
	unfollow  context.CancelFunc // nil if nobody watches the others
	ttl       time.Duration
	due       time.Time   // when its lease ends, unless it is renewed
	timer     *time.Timer // for that
}

// begin notes that the token asks.
func (d *Driver) begin(l lock, r *driver.Request) (*token, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tokens[l.id(r.Token)]
	if t == nil {
		t = &token{sent: r.Ask != 1}
		d.tokens[l.id(r.Token)] = t
	}
	if t.dead {
		return nil, fmt.Errorf("%w: the lock was taken from the token", driver.ErrNotHeld)
	}
	t.asks++
	t.ttl = r.TTL
	t.renewed()
	if t.timer == nil {
		t.timer = time.AfterFunc(r.TTL, func() { d.lapse(l, r.Token, t) })
	}
	return t, nil
}

// renewed notes that the lease lasts for its TTL from now on. The timer finds out when it fires.
func (t *token) renewed() { t.due = time.Now().Add(t.ttl) }

// done notes that an ask was answered. It forgets a token that has nothing.
func (d *Driver) done(l lock, name string, t *token, g driver.Grant, err error) {
	d.mu.Lock()
	t.asks--
	switch {
	case t.releasing: // The release forgets it, and looks once more for what this ask may have made.
		t.late = true
	case t.dead:
		t.due = time.Now().Add(retention)
		t.timer.Reset(retention)
	case t.asks > 0:
	case !t.sent && errors.Is(failure(err), driver.ErrTransient): // so that its release need ask nobody
		t.renewed()
	case t.s == nil, g.Status == driver.Busy, g.Status == driver.Full, errors.Is(err, driver.ErrNotHeld),
		errors.Is(err, driver.ErrNotExecuted) && !t.settled: // else an ask before it has made a claim
		d.forget(l, name, t)
	default:
		t.renewed()
	}
	s, left := t.s, t.released && !t.releasing && t.s != nil
	d.mu.Unlock()
	if left { // It was released while it asked.
		d.later(s, 0, func(ctx context.Context) error {
			_, err := d.withdraw(ctx, s, l, name)
			return err
		})
	}
}

// releasing reports whether a release of the token is under way.
func (d *Driver) releasing(t *token) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return t.releasing
}

// lapse ends the claim of a token that nobody has renewed: a session lasts for as long as its client,
// whatever becomes of the holders in that.
func (d *Driver) lapse(l lock, name string, t *token) {
	d.mu.Lock()
	left := time.Until(t.due)
	switch {
	case d.tokens[l.id(name)] != t, t.releasing:
	case t.asks > 0:
		t.timer.Reset(max(left, crowd))
	case left > 0:
		t.timer.Reset(left)
	default:
		d.forget(l, name, t)
		if s := t.s; s != nil {
			d.spawn(s, func(ctx context.Context) error {
				_, err := d.withdraw(ctx, s, l, name)
				return err
			})
		}
	}
	d.mu.Unlock()
}

// hold keeps a token that is known here from lapsing until the caller calls back.
func (d *Driver) hold(l lock, name string) (t *token, back func(ttl time.Duration)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t = d.tokens[l.id(name)]
	if t == nil {
		return nil, func(time.Duration) {}
	}
	t.asks++
	return t, func(ttl time.Duration) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if t.asks--; ttl > 0 {
			t.ttl = ttl
			t.renewed()
			t.timer.Reset(ttl)
		}
	}
}

// entomb remembers that the lock was taken from a token that is not known here any more, so that an
// ask of it that comes late finds nothing. The caller holds mu.
func (d *Driver) entomb(l lock, name string, t *token) {
	if d.tokens[l.id(name)] != nil || d.ctx.Err() != nil {
		return
	}
	t.dead, t.s, t.settled, t.ttl = true, nil, false, retention
	t.renewed()
	t.timer.Reset(retention)
	d.tokens[l.id(name)] = t
}

// forget forgets a token. The caller holds mu.
func (d *Driver) forget(l lock, name string, t *token) {
	t.ignore()
	if t.timer != nil {
		t.timer.Stop()
	}
	if d.tokens[l.id(name)] == t {
		delete(d.tokens, l.id(name))
	}
}

// ignore ends the watch on the others.
func (t *token) ignore() {
	if t.unfollow != nil {
		t.unfollow()
		t.unfollow = nil
	}
}

// recorded reads what a claim says of itself, with the change that its fences begin with.
func recorded(is content) (record, error) {
	var r record
	if json.Unmarshal(is.data, &r) != nil {
		return r, &foreign{is.path}
	}
	if r.Change == 0 {
		r.Change = is.stat.Czxid
	}
	return r, nil
}

func (r record) fence() int64 { return r.Change*block + r.First }

// granted is the answer to an ask whose token holds the lock.
func (r record) granted(ask uint64) driver.Grant {
	return driver.Grant{Status: driver.Granted, Ask: ask, Fence: r.fence(), Fences: r.Fences}
}

// own returns what the claim of a token says of itself. A claim that another session has made moves
// to this one, where it lasts for that TTL.
func (d *Driver) own(ctx context.Context, s *session, l lock, t *token, c *claim, ttl time.Duration) (record, error) {
	d.mu.Lock()
	known := t != nil && t.settled && t.s == s && t.claim.node == c.node
	if known {
		defer d.mu.Unlock()
		return t.record, nil
	}
	d.mu.Unlock()
	is, err := d.read(ctx, s, l.dir+"/"+c.node)
	if err != nil {
		return record{}, err
	}
	rec, err := recorded(is)
	if err == nil && is.stat.EphemeralOwner != s.number() {
		rec.TTL = ttl
		_, err = d.replace(ctx, s, l, t, c, c, rec, c)
		err = cmp.Or(err, errMoved)
	}
	return rec, err
}

// replace moves a claim, and notes that of its token.
func (d *Driver) replace(ctx context.Context, s *session, l lock, t *token, old, own *claim, rec record, place *claim, also ...any) (claim, error) {
	if t != nil {
		d.mu.Lock()
		t.s, t.sent, t.settled = s, true, false
		d.mu.Unlock()
	}
	node, err := d.move(ctx, s, l, old, own, rec, place, also...)
	if err != nil {
		return claim{}, err
	}
	c, _ := parse(node)
	if t != nil {
		d.mu.Lock()
		t.claim, t.record, t.settled = c, rec, true
		d.mu.Unlock()
	}
	return c, nil
}
