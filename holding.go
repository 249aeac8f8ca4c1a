package holdfast

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

// holding is what a context knows of leases: the innermost one that it comes from.
type holding struct {
	lease *Lease
	outer *holding
}

type holdingKey struct{}

func holdings(ctx context.Context) *holding {
	h, _ := ctx.Value(holdingKey{}).(*holding)
	return h
}

func (l *Lease) within(ctx context.Context, outer *holding) context.Context {
	return &inside{ctx, holding{l, outer.without(l.a)}}
}

// inside is context.WithValue for a holding, in half the space: a lease has one as long as it
// is held.
type inside struct {
	context.Context
	holding holding
}

func (i *inside) Value(key any) any {
	if key == (holdingKey{}) {
		return &i.holding
	}
	return i.Context.Value(key)
}

// without leaves out the leases that count together with one that comes further in: they
// can end before that does.
func (h *holding) without(a *acquisition) *holding {
	if h == nil {
		return nil
	}
	outer := h.outer.without(a)
	if h.lease.a == a {
		return outer
	}
	return &holding{h.lease, outer}
}

// holds returns the lease on the lock that ctx comes from, if it is still held.
func (c *Client) holds(ctx context.Context, want driver.Request) *Lease {
	for h := holdings(ctx); h != nil; h = h.outer {
		if h.lease.a.c == c && h.lease.door() == (door{kind: want.Kind, name: want.Name}) && h.lease.Err() == nil {
			return h.lease
		}
	}
	return nil
}

// over says what is wrong with the leases that ctx comes from.
func over(ctx context.Context) error {
	for h := holdings(ctx); h != nil; h = h.outer {
		switch h.lease.Err() {
		case nil:
		case ErrNotHeld:
			return h.lease.error("guard", fmt.Errorf("%w: the lease was released", ErrLost))
		default:
			return h.lease.Err()
		}
	}
	return nil
}

// exempt returns ctx without its leases, for commands of this library.
func exempt(ctx context.Context) context.Context {
	if holdings(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, holdingKey{}, (*holding)(nil))
}

// under returns a context for commands that must be carried out although ctx may have
// ended: it has the values of ctx, such as the span, and ends when the client does. It
// has no leases, so that a [GuardHook] does not stop the release of one that is over.
func (c *Client) under(ctx context.Context) context.Context {
	if ctx == context.Background() {
		return c.life // which costs nothing
	}
	return borrowed{together{c.life, ctx}}
}

// together is a context with the values of another.
type together struct {
	context.Context
	values context.Context
}

// Value returns the value of the other; but package context finds what ends a context,
// and why, by a key that is a pointer to an int, and that must be of the one.
func (t together) Value(key any) any {
	if _, end := key.(*int); end {
		return t.Context.Value(key)
	}
	return t.values.Value(key)
}

// borrowed is together without the leases.
type borrowed struct{ together }

func (b borrowed) Value(key any) any {
	if key == (holdingKey{}) {
		return nil
	}
	return b.together.Value(key)
}
