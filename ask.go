package holdfast

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
)

// ask sends the next ask, unless too many are under way.
func (a *acquisition) ask(ctx context.Context) {
	if a.asking == maxAsking {
		a.due = time.Now().Add(a.cfg.ttl / 3)
		return
	}
	if a.replies == nil {
		a.replies = make(chan reply, maxAsking)
	}
	r, replies := a.number(), a.replies
	a.c.wg.Add(1) // the operation that we are part of has not ended, so it may grow
	go func() {
		defer a.c.wg.Done()
		answer, late := a.send(ctx, r)
		replies <- answer
		if late {
			a.straggle(ctx)
		}
	}()
}

// number makes the next ask and notes when it is sent.
func (a *acquisition) number() *driver.Request {
	now := time.Now()
	a.asking++
	a.last++
	a.sent = append(a.sent, now)
	// A grant that rests on an ask older than the TTL is worth nothing.
	for now.Sub(a.sent[0]) > a.cfg.ttl {
		a.sent = a.sent[1:]
		a.first++
	}
	a.due = now.Add(a.cfg.ttl / 3)
	a.said.begin()
	a.open.Add(1)
	r := &a.firstAsk
	if a.last > 1 { // nobody knows how long the driver looks at the first one
		r = new(driver.Request)
	}
	*r = driver.Request{
		Kind: a.req.Kind, Name: a.req.Name, Token: a.req.Token, Ask: a.last, TTL: a.cfg.ttl, Owner: a.req.Owner,
		Shared: a.req.Shared, Wait: a.wait, Notice: a.notice, Weight: a.req.Weight, Limit: a.limit, Fences: a.fences,
		Holder: a.c.holder, Wake: a.wake,
	}
	return r
}

// send carries an ask to the store, and returns the reply. With late, straggle is to be
// called when that is where it belongs.
func (a *acquisition) send(ctx context.Context, r *driver.Request) (_ reply, late bool) {
	g, err := a.attempt(ctx, r)
	if err == nil || errors.Is(err, driver.ErrNotExecuted) || errors.Is(err, driver.ErrNotHeld) {
		a.open.Add(-1)
	}
	if end := ctx.Err(); end != nil && errors.Is(err, end) {
		// Who goes on with this when its waiter gives up has a context of its own.
		err = fmt.Errorf("%w: %w", driver.ErrTransient, err)
	}
	return reply{r.Ask, g, err}, err == nil && g.Status != driver.Busy && a.ceased.Load()
}

// straggle deals with an ask that was answered after its token was given up. The store may
// have handled it after the release, if that has no tombstone any more. The release is
// repeated, by whoever comes last: it or us. (Who gives up from now on releases after this
// ask, which is answered.)
func (a *acquisition) straggle(ctx context.Context) {
	a.straggled.Store(true)
	if a.settled.Load() && a.straggled.Swap(false) {
		s := a.settlement(ctx)
		_ = s.run(nil)
	}
}

func (a *acquisition) attempt(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if a.cfg.from == nil {
		return a.c.d.Acquire(ctx, r)
	}
	d, _ := driver.As[driver.Attacher](a.c.d)
	return d.Attach(ctx, *a.cfg.from, r)
}

// trust returns the trust that follows from a grant resting on that ask.
func (a *acquisition) trust(ask uint64) (keepalive.Trust, bool) {
	if ask < a.first || ask > a.last {
		return keepalive.Trust{}, false
	}
	return keepalive.NewTrust(a.sent[ask-a.first], a.cfg.ttl), true
}

// answer looks at the reply to an ask. It returns a grant if there is one, or an
// error if it is no use to go on, and otherwise sets the time of the next ask.
func (a *acquisition) answer(r reply) (driver.Grant, error) {
	a.asking--
	if r.err != nil {
		return driver.Grant{}, a.failed(r.err)
	}
	a.c.answer()
	a.pause = 0
	a.said.end()
	a.tell(nil)
	a.clean = r.grant.Status == driver.Busy
	a.behind(r.grant.Carrier)
	switch r.grant.Status {
	case driver.Granted:
		if a.cfg.from != nil {
			a.req.Shared, a.req.Weight, a.req.Owner = r.grant.Shared, r.grant.Weight, r.grant.Owner
		}
		return r.grant, nil
	case driver.Busy:
		a.queued()
		if !a.wait {
			return driver.Grant{}, ErrLocked
		}
		// The driver has no queue. Jitter keeps the waiters from coming in step.
		a.again(min(max(r.grant.RetryAfter, 50*time.Millisecond), a.cfg.ttl/3))
	case driver.Queued:
		a.queued()
		if r.grant.RetryAfter > 0 && r.grant.RetryAfter < a.cfg.ttl/3 {
			a.due = time.Now().Add(r.grant.RetryAfter)
		}
	}
	return driver.Grant{}, nil
}

// failed decides whether an error ends the acquisition.
func (a *acquisition) failed(err error) error {
	if errors.Is(err, ErrLimitConflict) || errors.Is(err, ErrLimitExceeded) {
		a.c.answer() // it is one, if not what we had hoped for
	}
	if !errors.Is(err, driver.ErrTransient) || !a.wait && a.last >= maxTries {
		return err
	}
	a.trouble(err)
	a.said.because(err)
	a.pause = min(max(2*a.pause, 5*time.Millisecond), time.Second, a.cfg.ttl/6)
	a.again(a.pause)
	return nil
}

// trouble notes why the store is of no help.
func (a *acquisition) trouble(err error) {
	a.err = err
	a.tell(&err)
}

// tell lets those behind it know what keeps it from being granted, if not a holder.
func (a *acquisition) tell(trouble *error) {
	if a.at != nil {
		a.at.trouble.Store(trouble)
	}
}

// again sets the next ask to a random time around d from now.
func (a *acquisition) again(d time.Duration) {
	a.due = time.Now().Add(d/2 + rand.N(d))
}
