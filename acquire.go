package holdfast

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/driver"
)

// acquire gets the lease that is wanted, through the hooks.
func (c *Client) acquire(ctx context.Context, want driver.Request, cfg config) (*Lease, error) {
	h := c.hooks.Load()
	if h == nil {
		return c.obtain(ctx, want, cfg, nil)
	}
	return h.lease(ctx, newAcquireOp(want, cfg, func(ctx context.Context, op *AcquireOp) (*Lease, error) {
		return c.obtain(ctx, want, cfg, op)
	}))
}

// obtain gets a lease from the store. op is nil if there are no hooks.
func (c *Client) obtain(ctx context.Context, want driver.Request, cfg config, op *AcquireOp) (*Lease, error) {
	fail := func(err error) (*Lease, error) {
		return nil, &LockError{Op: "acquire " + string(want.Kind), Name: want.Name, Err: err}
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
	waitCtx := ctx
	if cfg.wait > 0 {
		var cancel context.CancelFunc
		waitCtx, cancel = context.WithTimeout(ctx, cfg.wait)
		defer cancel()
	}
	if waitCtx.Err() != nil {
		return fail(context.Cause(waitCtx))
	}
	waitCtx = exempt(waitCtx)
	var unconfirmed error
	for {
		a := newAcquisition(c, want, cfg)
		a.err = unconfirmed
		trust, fence, err := a.run(waitCtx)
		if err == nil && cfg.copies.n > 0 {
			trust, err = a.confirm(waitCtx, cfg.copies)
		}
		op.note(a)
		if err == nil {
			l := newLease(ctx, a, fence, cfg, op)
			if err = l.start(trust); err == nil {
				return l, nil
			}
		}
		if !a.clean || a.asking > 0 || a.open.Load() > 0 {
			a.undo(ctx)
		}
		// Granted, and taken away by force before we heard of it, or given back for want
		// of replicas: a new token begins again at the end of the queue.
		if !errors.Is(err, driver.ErrNotHeld) && !errors.Is(err, ErrNotReplicated) || !want.Wait || waitCtx.Err() != nil {
			return fail(err)
		}
		if errors.Is(err, ErrNotReplicated) {
			unconfirmed, cfg.loud = err, false // has been said
		}
	}
}
