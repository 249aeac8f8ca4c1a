//go:build unix

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
)

// lock is what holdfast run needs of a lock.
type lock struct {
	wait, try func(context.Context) (*holdfast.Lease, error)
	inspect   func(context.Context) (holdfast.Info, error)
}

// open returns the lock that the command line asks for. Without --shared it is also an
// RWMutex, not a Mutex: exclusive and shared holders must meet.
func (g *guard) open(locks *holdfast.Client) *lock {
	if g.limit > 0 {
		s := locks.Semaphore(g.lock, g.limit)
		return &lock{
			func(ctx context.Context) (*holdfast.Lease, error) { return s.Lease(ctx, g.permits) },
			func(ctx context.Context) (*holdfast.Lease, error) { return s.TryLease(ctx, g.permits) },
			s.Inspect,
		}
	}
	rw := locks.RWMutex(g.lock)
	if g.shared {
		return &lock{rw.RLease, rw.TryRLease, rw.Inspect}
	}
	return &lock{rw.Lease, rw.TryLease, rw.Inspect}
}

// busy says who has the lock.
func (g *guard) busy(ctx context.Context, l *lock) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	info, err := l.inspect(ctx)
	if err != nil {
		info = holdfast.Info{}
	}
	return fmt.Errorf("%q is %s", g.lock, describe(info, g.noWait))
}

// maxNamed is how many holders an error names. It is one line.
const maxNamed = 3

// describe says who holds a lock. If the caller does not wait, it also says whether others
// wait: readers can turn a reader away because a writer is next.
func describe(info holdfast.Info, queue bool) string {
	if len(info.Holders) == 0 {
		return "locked"
	}
	var b strings.Builder
	b.WriteString("held by ")
	if n := len(info.Holders); n > 1 {
		fmt.Fprintf(&b, "%d: ", n)
	}
	var used int64
	for i, h := range info.Holders {
		used += h.Weight
		if i < maxNamed {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%s since %s%s", h.Holder, h.Since.Local().Format(time.DateTime), part(h))
		}
	}
	if n := len(info.Holders) - maxNamed; n > 0 {
		fmt.Fprintf(&b, " and %s", plural(n, "other", "others"))
	}
	if info.Limit > 0 {
		fmt.Fprintf(&b, "; %d of %s in use", used, plural(int(info.Limit), "permit is", "permits are"))
	}
	if n := len(info.Queue); queue && n > 0 {
		fmt.Fprintf(&b, "; %s", plural(n, "waits", "wait"))
	}
	return b.String()
}

// part is what a holder has of a lock that it need not have all of.
func part(h holdfast.Holder) string {
	switch {
	case h.Shared:
		return " (shared)"
	case h.Weight > 1:
		return fmt.Sprintf(" (%d permits)", h.Weight)
	}
	return ""
}
