package holdfast

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/local"
	tokens "github.com/holdfast-go/holdfast/internal/token"
)

// Attach takes over the lock of a lease that [Lease.Detach] ended, in this or another
// process, for reading or writing, or its permits. The new lease has its
// own token and fence. It lasts the TTL of this client or of opts, from now on. Beside
// other leases of one owner, see [WithOwner], it has their fence. Waiters do not get the
// lock in between.
//
// If several callers attach to one token, exactly one succeeds. The others get an error
// that matches [ErrNotHeld], as does a caller that comes too late, or whose text is not a
// token. Transient errors, such as a broken connection, are retried until ctx ends. If ctx
// ends while the answer is under way, nobody knows who holds the lock, and it is released. If
// that release overtakes the request, the lock stays as it was detached, until its TTL has
// passed or Attach is called again. Attach can also take over a lease that was not detached,
// from a holder that is believed dead. If that holder is alive, its next renewal fails, and its
// fence is smaller.
//
// For hooks Attach is a way to acquire, see [AcquireOp].
func (c *Client) Attach(ctx context.Context, token string, opts ...LockOption) (*Lease, error) {
	c.made()
	from, err := tokens.Parse(token)
	fail := func(err error) (*Lease, error) { return nil, lockError("attach", from.Kind, from.Name, err) }
	if err != nil {
		return fail(fmt.Errorf("%w: %w", ErrNotHeld, err))
	}
	if c.session.Attacher == nil {
		return fail(fmt.Errorf("the store cannot do this: %w", errors.ErrUnsupported))
	}
	h := c.handle(from.Kind, from.Name, opts)
	l, err := h.lease(ctx, local.Want{Wait: true, From: &from}, "attach")
	if errors.Is(err, driver.ErrNotHeld) && !errors.Is(err, ErrNotHeld) {
		return fail(ErrNotHeld)
	}
	return l, err
}

// Detach ends the lease in this process, without a release, and returns its token. The
// store keeps the lock until a process takes it over with [Client.Attach], or until the TTL
// has passed. So one request can take a lock and another one release it.
//
//	token, err := lease.Detach(ctx)    // in the request that begins
//	lease, err := locks.Attach(ctx, token)
//	defer lease.Release(ctx)           // in the one that ends it
//
// Detach first renews the lease, so that a whole TTL is left, unless the lease was made
// [WithoutRenewal]. Transient errors are retried until ctx ends. If the lease cannot be
// renewed, Detach returns an error, and the lease stays held.
//
// After Detach the lease is over: its context ends, and Err and Release return
// [ErrNotHeld]. While other leases are nested with this one, see [WithReentrancy], the
// error matches [ErrLocked]. If the store cannot hand leases over, it matches
// [errors.ErrUnsupported].
//
// Anybody that knows the token can take the lock over, or let it expire. It is a secret.
func (l *Lease) Detach(ctx context.Context) (token string, err error) {
	const op = "detach"
	d := l.client().session.Attacher
	if d == nil {
		return "", l.error(op, fmt.Errorf("the store cannot do this: %w", errors.ErrUnsupported))
	}
	if ctx.Err() != nil {
		return "", l.error(op, local.EndOf(ctx))
	}
	if !l.hold().Fixed() {
		if err := l.Renew(ctx); err != nil {
			return "", l.error(op, err)
		}
	}
	if err := l.Err(); err != nil {
		return "", l.error(op, err)
	}
	if err := l.hold().Detach(); err != nil {
		return "", l.error(op, err)
	}
	d.Detach(l.hold().Grant().Leased())
	return l.Token(), nil
}
