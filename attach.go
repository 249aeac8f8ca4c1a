package holdfast

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// Detach ends the lease here, without a release, and returns its token: the store keeps
// the lock until somebody takes it over with [Client.Attach], in whatever process, or until
// the TTL has passed. So one request can take a lock and another one release it.
//
//	token, err := lease.Detach(ctx)    // in the request that begins
//	lease, err := locks.Attach(ctx, token)
//	defer lease.Release(ctx)           // in the one that ends it
//
// Detach renews the lease first, so that a whole TTL is left, unless it was made
// [WithoutRenewal]. Transient errors are retried until ctx ends. If it cannot be renewed there
// is an error, and the lease is held on as before.
// Afterwards it is over: its context ends, and Err and Release return [ErrNotHeld].
// While other leases are nested with it, see [WithReentrancy], the error matches
// [ErrLocked]; if the store has no such ability, [errors.ErrUnsupported].
//
// Who knows the token can take the lock over, or lets it expire. It is a secret.
func (l *Lease) Detach(ctx context.Context) (token string, err error) {
	const op = "detach"
	d, able := driver.As[driver.Attacher](l.a.c.d)
	if !able {
		return "", l.error(op, fmt.Errorf("the store cannot do this: %w", errors.ErrUnsupported))
	}
	if ctx.Err() != nil {
		return "", l.error(op, end(ctx))
	}
	if !l.a.cfg.fixed {
		if err := l.Renew(ctx); err != nil {
			return "", l.error(op, err)
		}
	}
	if err := l.Err(); err != nil {
		return "", l.error(op, err)
	}
	if err := l.a.detach(l); err != nil {
		return "", l.error(op, err)
	}
	l.die(context.Canceled)
	if !l.a.cease() { // somebody else has stopped the renewal, and releases the lock
		if l.a.fate.Load() != nil {
			return "", l.error(op, ErrLost)
		}
		return "", l.error(op, ErrClosed)
	}
	d.Detach(l.a.driverLease())
	return l.Token(), nil
}

// Attach takes over what another lease held that was ended by [Lease.Detach], also in
// another process: the lock, for reading or writing, or the permits. The new lease has a
// token and a fence of its own and lasts the TTL of this client or of opts, from now on;
// beside others of one owner, see [WithOwner], it has their fence. Waiters do not get the
// lock in between.
//
// Of several who attach to one token exactly one succeeds. The others get an error that
// matches [ErrNotHeld], as does who comes too late, or has something that is no token. What
// may pass, such as a broken connection, is tried again until ctx ends. If that happens
// while the answer is under way, nobody knows who holds the lock, and it is released.
// A lease that was not detached can be taken over as well, from a holder that crashed: if it
// lives after all, it finds out when it renews, and has a smaller fence.
//
// For hooks it is a way to acquire, see [AcquireOp].
func (c *Client) Attach(ctx context.Context, token string, opts ...LockOption) (*Lease, error) {
	cfg := c.config.with(opts)
	kind, rest, _ := strings.Cut(token, ":")
	old, name, _ := strings.Cut(rest, ":")
	cfg.from = &driver.Lease{Kind: driver.Kind(kind), Name: name, Token: old}
	fail := func(err error) (*Lease, error) { return nil, &LockError{Op: "attach", Name: name, Err: err} }
	known := cfg.from.Kind == driver.Mutex || cfg.from.Kind == driver.RWMutex || cfg.from.Kind == driver.Semaphore
	strange := strings.ContainsFunc(old, func(r rune) bool { return r <= ' ' || r > '~' })
	if !known || old == "" || strange || !validName(name) {
		name = ""
		return fail(fmt.Errorf("%w: this is no token of a lease", ErrNotHeld))
	}
	if _, able := driver.As[driver.Attacher](c.d); !able {
		return fail(fmt.Errorf("the store cannot do this: %w", errors.ErrUnsupported))
	}
	l, err := c.acquire(ctx, driver.Request{Kind: cfg.from.Kind, Name: name, Wait: true}, cfg)
	if errors.Is(err, driver.ErrNotHeld) && !errors.Is(err, ErrNotHeld) {
		return fail(ErrNotHeld)
	}
	return l, err
}

// verb is what the operation is called.
func (c config) verb() string {
	if c.from != nil {
		return "attach"
	}
	return "acquire"
}
