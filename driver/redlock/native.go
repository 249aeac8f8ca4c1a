package redlock

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// native is a redlock whose nodes can do more than the least.
type native struct{ *redlock }

var (
	_ driver.Inspector  = (*native)(nil)
	_ driver.Forcer     = (*native)(nil)
	_ driver.Downgrader = (*native)(nil)
)

// able reports whether the node can do what native needs.
func (n *node) able() bool {
	_, inspects := driver.As[driver.Inspector](n.Driver)
	_, forces := driver.As[driver.Forcer](n.Driver)
	_, downgrades := driver.As[driver.Downgrader](n.Driver)
	return inspects && forces && downgrades
}

// poll asks all nodes something, and returns the answers and the errors.
func poll[T any](ctx context.Context, d *redlock, lock lockID, f func(context.Context, *node) (T, error)) ([]T, []error) {
	var mu sync.Mutex
	answers, errs := make([]T, len(d.nodes)), make([]error, len(d.nodes))
	for i := range errs {
		errs[i] = errUnheard
	}
	d.each(ctx, lock, d.timeout, d.nodes, func(ctx context.Context, n *node) {
		answer, err := send(ctx, n, func(ctx context.Context) (T, error) { return f(ctx, n) })
		mu.Lock()
		defer mu.Unlock()
		answers[n.i], errs[n.i] = answer, err
	}, d.settled)
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(answers), slices.Clone(errs)
}

// ForceRelease implements [driver.Forcer].
func (d *native) ForceRelease(ctx context.Context, k driver.Kind, name string) error {
	_, errs := poll(ctx, d.redlock, lockID{k, name}, func(ctx context.Context, n *node) (any, error) {
		f, _ := driver.As[driver.Forcer](n.Driver)
		return nil, f.ForceRelease(ctx, k, name)
	})
	return d.byMajority(errs)
}

// Downgrade implements [driver.Downgrader].
func (d *native) Downgrade(ctx context.Context, l driver.Lease, weight int64) error {
	if l.Kind != driver.RWMutex {
		return redisscript.Unsupported("redlock", l.Kind)
	}
	_, errs := poll(ctx, d.redlock, lockID{l.Kind, l.Name}, func(ctx context.Context, n *node) (any, error) {
		g, _ := driver.As[driver.Downgrader](n.Driver)
		return nil, d.vouched(n, []driver.Lease{l}, func() []error { return []error{g.Downgrade(ctx, l, weight)} })[0]
	})
	return d.byMajority(errs)
}

// byMajority makes one answer of what the nodes said of a lease.
func (d *redlock) byMajority(errs []error) error {
	answers := make([][]error, len(errs))
	for i, err := range errs {
		answers[i] = []error{err}
	}
	return d.renewed(answers, 0)
}

// Inspect implements [driver.Inspector]. A holder holds the lock on a majority. The queue
// is the longest one, as nodes that were restarted have forgotten theirs.
func (d *native) Inspect(ctx context.Context, k driver.Kind, name string) (driver.Info, error) {
	if k != driver.Mutex && k != driver.RWMutex {
		return driver.Info{Name: name}, redisscript.Unsupported("redlock", k)
	}
	infos, errs := poll(ctx, d.redlock, lockID{k, name}, func(ctx context.Context, n *node) (driver.Info, error) {
		i, _ := driver.As[driver.Inspector](n.Driver)
		return i.Inspect(ctx, k, name)
	})
	result := driver.Info{Name: name}
	var seen []driver.Holder
	heard := 0
	for i, info := range infos {
		if errs[i] != nil {
			continue
		}
		heard++
		seen = append(seen, info.Holders...)
		if len(info.Queue) > len(result.Queue) {
			result.Queue = info.Queue
		}
	}
	if heard < d.majority() {
		return result, noMajority(errs)
	}
	result.Holders = d.holders(seen)
	return result, nil
}

// holders finds the tokens that hold the lock on a majority. seen is in the order of the nodes.
// They have a fence in common there, the one that confirm tells, or will in a moment. Until then
// only what they say of themselves tells them apart.
func (d *redlock) holders(seen []driver.Holder) []driver.Holder {
	var found []driver.Holder
	collect := func(fence int64, alike func(driver.Holder) bool) {
		of := slices.DeleteFunc(slices.Clone(seen), func(h driver.Holder) bool { return !alike(h) })
		if len(of) >= d.majority() {
			found = append(found, d.asSeen(of, fence))
			seen = slices.DeleteFunc(slices.Clone(seen), alike)
		}
	}
	look := func(a, b driver.Holder) bool { return a.Holder == b.Holder && a.Shared == b.Shared }
	for _, h := range seen {
		collect(h.Fence, func(o driver.Holder) bool { return look(o, h) && o.Fence <= h.Fence && h.Fence <= o.LastFence })
	}
	all := slices.SortedFunc(slices.Values(seen), func(a, b driver.Holder) int { return cmp.Compare(a.Fence, b.Fence) })
	for i := len(all) - 1; i >= 0; i-- {
		collect(all[i].Fence, func(o driver.Holder) bool { return look(o, all[i]) })
	}
	slices.SortFunc(found, func(a, b driver.Holder) int { return cmp.Compare(a.Fence, b.Fence) })
	return found
}

// asSeen makes one holder of what the nodes see: since its first vote, and until it has
// no majority any more.
func (d *redlock) asSeen(of []driver.Holder, fence int64) driver.Holder {
	h := of[0]
	h.Fence = fence
	slices.SortFunc(of, func(a, b driver.Holder) int { return cmp.Compare(b.TimeLeft, a.TimeLeft) })
	h.TimeLeft = of[d.majority()-1].TimeLeft
	for _, other := range of {
		h.LastFence = max(h.LastFence, other.LastFence)
		if other.Since.Before(h.Since) {
			h.Since = other.Since
		}
	}
	return h
}

// Notices implements [driver.Notifier]: it passes the notices of the nodes on.
func (d *redlock) Notices() bool {
	return !slices.ContainsFunc(d.nodes, func(n *node) bool {
		teller, able := driver.As[driver.Notifier](n.Driver)
		return !able || !teller.Notices()
	})
}

// Notice implements [driver.Notifier]. Somebody waits if any node says so: a waiter waits at all
// of them.
func (d *redlock) Notice(ctx context.Context, l driver.Lease) (wanted bool, err error) {
	answers, errs := poll(ctx, d, lockID{l.Kind, l.Name}, func(ctx context.Context, n *node) (bool, error) {
		teller, _ := driver.As[driver.Notifier](n.Driver)
		return teller.Notice(ctx, l)
	})
	return slices.Contains(answers, true), d.byMajority(errs)
}
