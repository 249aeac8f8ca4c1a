// Package fence is shared by the guards, which refuse late writes of a holder whose lease is
// over.
//
// No lock between processes can keep a process that was paused from writing when it goes on.
// Only the place that it writes to can. Each lease has a fence, a number larger than that of
// every earlier lease on the lock. A guard there remembers the largest number that it has seen,
// and refuses smaller ones. Package [sqlfence] does that for database/sql, [redisfence] for
// go-redis and [httpfence] for requests. The program passes on the context of the lease,
// which it does anyway:
//
//	err := mu.Do(ctx, func(ctx context.Context) error {
//		_, err := db.ExecContext(ctx, "UPDATE …") // fails if a later holder has been here
//		return err
//	})
//
// # What is stale
//
// A fence is stale if a later holder was seen that had the lock for itself alone: the holder
// of a Mutex, or a writer of an RWMutex. Readers that hold an RWMutex together have different
// fences, and none of them is stale before a later writer was seen. So readers are checked,
// but not remembered: a writer that is late is refused once a later writer was seen, not by
// later readers. The holders of a Semaphore are all equal. Their fences are never stale: a write of
// such a holder is refused only if its own process knows that the lease is over.
//
// Locks of different kinds with one name are different locks. Two locks that have one kind and
// name in different stores, or under different prefixes, cannot be told apart here. They must
// not guard the same thing.
//
// # What guards cannot do
//
// A guard knows only what it has seen. A late write is refused if a later holder has read or
// written there under its own lease. If no later holder has come there yet, the late write lands;
// it overwrites nothing of a later holder. Two places that are written to are guarded separately.
// A write without the context of the lease is not guarded at all.
//
// [sqlfence]: https://pkg.go.dev/github.com/holdfast-go/holdfast/fence/sqlfence
// [redisfence]: https://pkg.go.dev/github.com/holdfast-go/holdfast/fence/redisfence
// [httpfence]: https://pkg.go.dev/github.com/holdfast-go/holdfast/fence/httpfence
package fence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/leasectx"
)

// ErrStale is matched by the errors of guards for a fence that is older than one they have
// seen: another has had the lock meanwhile, and the lease is over.
var ErrStale = errors.New("holdfast: stale fence")

// Fence is the mark of a lease that guards check.
type Fence struct {
	Kind   driver.Kind
	Name   string
	Number int64 // larger for every later lease on the lock
	Shared bool  // others may hold the lock, too: a reader's, or that of a Semaphore
}

// Of returns the fences of all leases that ctx comes from, sorted by their keys; none if there
// are no leases. If a lease is known to be over, lost or released, there is an error that
// matches holdfast.ErrLost; if its store gives no fences, one that matches
// [errors.ErrUnsupported].
func Of(ctx context.Context) ([]Fence, error) {
	leases := leasectx.Of(ctx)
	if leases == nil {
		return nil, nil
	}
	var fences []Fence
	for l := leases; l != nil; l = l.Outer {
		if err := l.Lease.Over(); err != nil {
			return nil, err
		}
		f := Fence{Kind: l.Lease.Kind(), Name: l.Lease.Name(), Number: l.Lease.Fence(), Shared: !l.Lease.Exclusive()}
		if f.Number <= 0 {
			return nil, fmt.Errorf("holdfast: the store of %s gives no fences: %w", f.Key(), errors.ErrUnsupported)
		}
		fences = append(fences, f)
	}
	slices.SortFunc(fences, func(a, b Fence) int {
		return cmp.Or(cmp.Compare(a.Key(), b.Key()), cmp.Compare(a.Number, b.Number))
	})
	return fences, nil
}

// With returns ctx with fences of leases that another process holds, as a server has them from
// a request. Guards check them as if the leases were held here, but cannot know whether they
// are lost.
func With(ctx context.Context, fences ...Fence) context.Context {
	for _, f := range fences {
		ctx = leasectx.With(ctx, remote{f}, leasectx.Of(ctx))
	}
	return ctx
}

// Key returns a text for the lock, different for each kind and name, that is fit for a key or
// column: valid UTF-8 without control characters, of up to four times the length of the name
// and 16 bytes more.
func (f Fence) Key() string {
	name := f.Name
	plain := utf8.ValidString(name) && name[:min(1, len(name))] != `"`
	for _, r := range name {
		plain = plain && unicode.IsPrint(r)
	}
	if !plain {
		name = strconv.QuoteToASCII(name)
	}
	return string(f.Kind) + ":" + name
}

// Check returns an error that matches [ErrStale] if the fence is older than the number of the
// last exclusive holder that was seen, and nil otherwise.
func (f Fence) Check(seen int64) error {
	if f.Number >= seen {
		return nil
	}
	return fmt.Errorf("%w: %s has %d, but %d was seen", ErrStale, f.Key(), f.Number, seen)
}

// remote is the lease of another process.
type remote struct{ fence Fence }

func (r remote) Kind() driver.Kind { return r.fence.Kind }
func (r remote) Name() string      { return r.fence.Name }
func (r remote) Fence() int64      { return r.fence.Number }
func (r remote) Exclusive() bool   { return !r.fence.Shared }
func (remote) Err() error          { return nil }
func (remote) Over() error         { return nil }

func (r remote) Same(other leasectx.Lease) bool { return leasectx.Lease(r) == other }
