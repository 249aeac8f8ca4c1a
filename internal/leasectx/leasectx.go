// Package leasectx carries leases in contexts. It makes contexts that end with one context
// and have the values of another.
package leasectx

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// Lease is what a context knows of a lease, and package fence of what guards check.
type Lease interface {
	Kind() driver.Kind
	Name() string
	Fence() int64
	// Exclusive reports whether nobody else may hold the lock.
	Exclusive() bool
	// Err returns nil while the lease is held.
	Err() error
	// Over is Err, except that it tells of a release as of a loss.
	Over() error
	// Same reports whether both leases count on the same grant of the store: an outer one
	// can end before an inner one does then.
	Same(Lease) bool
}

// Leases are those that a context comes from, the innermost first.
type Leases struct {
	Lease Lease
	Outer *Leases
}

type key struct{}

// Of returns the leases that ctx comes from, nil if there are none.
func Of(ctx context.Context) *Leases {
	l, _ := ctx.Value(key{}).(*Leases)
	return l
}

// With returns ctx with a lease, inside of outer.
func With(ctx context.Context, l Lease, outer *Leases) context.Context {
	return &leased{ctx, Leases{l, outer.without(l)}}
}

func (l *Leases) without(same Lease) *Leases {
	if l == nil {
		return nil
	}
	outer := l.Outer.without(same)
	if l.Lease.Same(same) {
		return outer
	}
	return &Leases{l.Lease, outer}
}

// leased is context.WithValue in half the space: a lease has one for as long as it is held.
type leased struct {
	context.Context
	leases Leases
}

func (l *leased) Value(k any) any {
	if k == (key{}) {
		return &l.leases
	}
	return l.Context.Value(k)
}

// Exempt returns ctx without its leases. It is for commands of this library: the release of
// a lease that is over must not be refused for that.
func Exempt(ctx context.Context) context.Context {
	if Of(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, key{}, (*Leases)(nil))
}

// Merged returns a context that ends with ends and has the values of values.
func Merged(ends, values context.Context) context.Context { return merged{ends, values} }

type merged struct {
	context.Context
	values context.Context
}

// Value returns the value of m.values, with one exception. The value by which package context
// finds the end of m must come from the context that ends m.
func (m merged) Value(k any) any {
	if IsEnd(k) {
		return m.Context.Value(k)
	}
	return m.values.Value(k)
}

// Detached is Merged without the leases of either.
func Detached(ends, values context.Context) context.Context {
	return detached{merged{ends, values}}
}

type detached struct{ merged }

func (d detached) Value(k any) any {
	if k == (key{}) {
		return nil
	}
	return d.merged.Value(k)
}

// Package context finds what ends a context, and why, by a key of its own. The value is the
// innermost context of its own that can end.

var endKey = func() any {
	var seen listener
	_ = context.Cause(&seen)
	return seen.key
}()

// listener is a context that has ended, and hears for what it is asked.
type listener struct {
	context.Context
	key any
}

func (l *listener) Err() error { return context.Canceled }

func (l *listener) Value(key any) any {
	l.key = key
	return nil
}

// IsEnd reports whether package context asks by a key for what ends a context.
func IsEnd(key any) bool { return key == endKey }

// End returns a context that ends with ctx and for the same cause. If it can be, that is the
// innermost one that can end, without the values that were added to it.
func End(ctx context.Context) context.Context {
	done := ctx.Done()
	if done == nil {
		return context.Background()
	}
	if end, ok := ctx.Value(endKey).(context.Context); ok && end.Done() == done {
		return end
	}
	if l, ok := ctx.(*leased); ok {
		return l.Context
	}
	return ctx
}
