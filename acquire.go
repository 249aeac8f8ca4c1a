package holdfast

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/driver"
)

// attempt is one call that is to return a lease.
type attempt struct {
	c     *Client
	ctx   context.Context // of the caller
	wait  context.Context // bounds the waiting
	want  driver.Request
	cfg   config
	alike *config    // of cfg
	at    *doorway   // of one who leaves the lease there; else nil until there is need of it
	plain bool       // nobody will see the lease, so another's will do
	op    *AcquireOp // nil if there are no hooks

	said        *complaint // of trouble that outlasts an acquisition; nil if there is none
	unconfirmed error      // why an earlier grant was given back
}

// acquire gets the lease that is wanted, through the hooks.
func (c *Client) acquire(ctx context.Context, want driver.Request, cfg config) (*Lease, error) {
	if h := c.hooks.Load(); h != nil {
		return c.hooked(ctx, h, want, cfg)
	}
	return c.obtain(ctx, want, cfg, nil, nil)
}

func (c *Client) hooked(ctx context.Context, h *hooks, want driver.Request, cfg config) (*Lease, error) {
	return h.lease(ctx, newAcquireOp(want, cfg, func(ctx context.Context, op *AcquireOp) (*Lease, error) {
		return c.obtain(ctx, want, cfg, nil, op)
	}))
}

// obtain gets a lease, in this process or from the store.
func (c *Client) obtain(ctx context.Context, want driver.Request, cfg config, at *doorway, op *AcquireOp) (*Lease, error) {
	fail := func(err error) (*Lease, error) {
		return nil, &LockError{Op: cfg.verb() + " " + string(want.Kind), Name: want.Name, Err: err}
	}
	if !validName(want.Name) {
		return fail(ErrInvalidName)
	}
	if !c.begin() {
		return fail(ErrClosed)
	}
	defer c.wg.Done()
	if l, err := c.again(ctx, want, cfg, op); err != nil {
		return fail(err)
	} else if l != nil {
		return l, nil
	}
	if err := cfg.copies.possible(c.d); err != nil {
		return fail(err)
	}
	wait := ctx
	if cfg.wait > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, cfg.wait)
		defer cancel()
	}
	if wait.Err() != nil {
		return fail(context.Cause(wait))
	}
	key := cfg.key
	if key == nil {
		key = c.share(cfg.alike())
	}
	t := &attempt{c: c, ctx: ctx, wait: exempt(wait), want: want, cfg: cfg, alike: key, at: at, plain: at != nil && op == nil, op: op, said: cfg.said}
	var l *Lease
	var err error
	if t.passes() {
		l, err = t.inLine()
	} else {
		l, err = t.alone()
	}
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, driver.ErrNotHeld) && cfg.from == nil:
		// It was granted, and taken away by force before we could make use of it.
		err = ErrLost
	}
	return fail(err)
}

// alone gets a lease from the store.
func (t *attempt) alone() (*Lease, error) {
	t.evict()
	for {
		a := t.begin()
		l, err := t.win(a)
		if err == nil {
			return l, nil
		}
		a.undo(t.ctx)
		if !t.again(err) {
			return nil, err
		}
	}
}

// evict gives up a term that lingers, which would be in our way. Who does not wait would
// find it there.
func (t *attempt) evict() {
	d := door{kind: t.want.Kind, name: t.want.Name}
	if t.want.Kind == driver.Semaphore || !t.c.known(d) {
		return
	}
	if at := t.c.approach(d); at != nil {
		t.giveBack(at.line.Evict())
		t.c.withdraw(at)
	}
}

// giveBack gives up a term that lingers, if there is one.
func (t *attempt) giveBack(a *acquisition) {
	if a == nil {
		return
	}
	if done := a.giveBack(); done != nil && !t.want.Wait {
		select {
		case <-done:
		case <-t.wait.Done():
		}
	}
}

// begin makes an acquisition.
func (t *attempt) begin() *acquisition {
	a := newAcquisition(t.c, t.want, t.alike)
	a.err = t.unconfirmed
	a.own = complaint{op: t.cfg.verb(), kind: t.want.Kind, name: t.want.Name, cfg: t.alike}
	a.said = &a.own
	if t.said != nil {
		a.said = t.said
	}
	return a
}

// win waits until the store has granted the lock, and the replicas that are asked for have it.
func (t *attempt) win(a *acquisition) (*Lease, error) {
	trust, granted, err := a.run(t.wait)
	if err == nil && t.cfg.copies.n > 0 {
		trust, err = a.confirm(t.wait, t.cfg.copies)
	}
	t.op.note(a)
	if err != nil {
		return nil, err
	}
	t.op.found(a)
	a.turn.begin(a, granted)
	l := a.hold(t.ctx, t.op, t.plain)
	if err := a.begin(trust); err != nil {
		a.dismiss(err)
		return nil, err
	}
	a.won()
	return l, nil
}

// again reports whether to begin again, with a new token at the end of the queue: what was
// granted was taken away by force before we heard of it, or given back for want of replicas.
func (t *attempt) again(err error) bool {
	unconfirmed := errors.Is(err, ErrNotReplicated)
	if unconfirmed {
		t.unconfirmed = err
		if t.said == nil {
			t.said = &complaint{op: t.cfg.verb(), kind: t.want.Kind, name: t.want.Name, cfg: t.alike}
		}
		t.said.persist(err)
		t.said.tell()
	}
	return (unconfirmed || errors.Is(err, driver.ErrNotHeld)) && t.want.Wait && t.cfg.from == nil && t.wait.Err() == nil
}
