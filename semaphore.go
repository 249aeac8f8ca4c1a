package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/local"
	"github.com/holdfast-go/holdfast/internal/session"
	"github.com/holdfast-go/holdfast/internal/trouble"
)

// Semaphore bounds how much is held at a time, by all processes that use the same store.
// Each holder has a number of permits, and together they have no more than the limit. Use
// [Semaphore.Lease] and [Semaphore.Do] where code must know if its permits are lost.
//
// A Semaphore can replace a Weighted of golang.org/x/sync/semaphore, with one difference: a
// request for more than the limit fails at once.
//
// Waiters are served first come, first served. While the first one waits for more permits
// than are left, those behind it wait too. So no stream of small requests can starve a
// large one.
//
// The limit belongs to the semaphore, not to the handle. As long as anybody holds or waits,
// the limit of the first user is in force; another limit returns [ErrLimitConflict]. Two
// programs that disagree must not each believe in their own limit. To change the limit, see
// [Semaphore.Resize].
//
// A Semaphore is a cheap handle. All handles of one name are the same semaphore, including
// for Release.
type Semaphore struct {
	handle
	limit int64
}

// Semaphore returns the semaphore with that name and limit. If the name is empty or longer
// than 512 bytes, TryAcquire and Release panic, and the other methods return
// [ErrInvalidName]. Semaphore panics if limit is below 1 or above 2^53 - 1, and if opts have
// [WithLinger], [WithOwner] or [WithReentrancy], which are for locks.
func (c *Client) Semaphore(name string, limit int64, opts ...LockOption) *Semaphore {
	checkLimit(limit)
	var given config
	for _, o := range opts {
		o.apply(&given)
	}
	given.ofPermits()
	return &Semaphore{c.handle(driver.Semaphore, name, opts), limit}
}

func checkLimit(limit int64) {
	if limit < 1 || limit > driver.MaxLimit {
		panic(fmt.Sprintf("holdfast: semaphore with a limit of %d, must be 1 to %d", limit, int64(driver.MaxLimit)))
	}
}

// want is a request for n permits.
func (s *Semaphore) want(n int64, wait bool) local.Want {
	if n < 1 {
		panic(fmt.Sprintf("holdfast: semaphore asked for %d permits, must be 1 or more", n))
	}
	return local.Want{Wait: wait, Weight: n, Limit: s.limit}
}

// Lease waits for n permits, as [Mutex.Lease] waits for a lock. If n is more than the
// limit, the permits would never come, and the error matches [ErrLimitExceeded] at once. If
// the semaphore is in use with another limit, it matches [ErrLimitConflict].
//
// A ctx that comes from a lease on this semaphore may get more permits. But a holder that
// waits for more can be in a deadlock, as with any semaphore.
//
// Lease panics if n is below 1.
func (s *Semaphore) Lease(ctx context.Context, n int64) (*Lease, error) {
	return s.lease(ctx, s.want(n, true), "acquire")
}

// TryLease returns a lease on n permits if they are free and nobody waits. Otherwise it
// returns an error that matches [ErrLocked], or an error of [Semaphore.Lease]. In an outage
// it does what [Mutex.TryLease] does.
func (s *Semaphore) TryLease(ctx context.Context, n int64) (*Lease, error) {
	return s.lease(ctx, s.want(n, false), "acquire")
}

// Do calls f with n permits held, as [Mutex.Do] does with a lock.
func (s *Semaphore) Do(ctx context.Context, n int64, f func(ctx context.Context) error) error {
	return s.do(ctx, s.want(n, true), f)
}

// TryDo calls f with n permits held if they are free and nobody waits, as [Mutex.TryDo] does.
func (s *Semaphore) TryDo(ctx context.Context, n int64, f func(ctx context.Context) error) error {
	return s.do(ctx, s.want(n, false), f)
}

// Resize sets the limit, and lets the waiters in that now fit. The new limit is in force,
// whatever limit handles were made with, until the semaphore has not been used for a
// minute. So to change a limit, first call Resize, then replace the programs, and call it
// again; docs/operations.md says more.
//
// Nothing is taken from holders. If they hold more permits than the new limit, others wait
// until enough has been released. Waiters that want more than the new limit get
// [ErrLimitExceeded]. Transient errors are retried until ctx ends. Resize panics if limit
// is below 1 or above 2^53 - 1.
func (s *Semaphore) Resize(ctx context.Context, limit int64) error {
	checkLimit(limit)
	r := s.client().session.Resizer
	token := s.c.session.NewToken() // by which the store knows a repeat
	return s.c.await(ctx, s.config.lockOptions, s.base(), "resize", session.Errand{Able: r != nil, Do: func() error {
		return trouble.Of(r.Resize(s.c.session.Detached(ctx), s.name, token, limit))
	}})
}

// Inspect says who holds permits and who waits, as [Mutex.Inspect] does for a lock.
func (s *Semaphore) Inspect(ctx context.Context) (Info, error) { return s.inspect(ctx) }

// ForceUnlock takes the permits from all their holders, as [Mutex.ForceUnlock] does.
func (s *Semaphore) ForceUnlock(ctx context.Context) error { return s.force(ctx) }

// Acquire waits for n permits until ctx ends. Any goroutine can give them back with
// Release. If Acquire fails it returns an error of [Semaphore.Lease], and nothing is held.
// It panics if n is negative. A request for 0 permits asks nobody, and succeeds unless ctx
// has ended.
//
// A holder by Acquire is not told if its permits are lost; the loss is logged. It must
// release the permits nevertheless.
func (s *Semaphore) Acquire(ctx context.Context, n int64) error {
	if n == 0 {
		return session.EndOf(ctx)
	}
	return s.deposit(s.Lease(ctx, n))
}

// TryAcquire takes n permits if they are free and nobody waits, and reports whether it did.
// It waits for the store at most 1 s. If the store does not answer in that time, it reports
// false. It panics if n is negative, and when [Mutex.TryLock] would. A conflict of limits
// is logged.
func (s *Semaphore) TryAcquire(n int64) bool {
	if n == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), tryWait)
	defer cancel()
	err := s.deposit(s.TryLease(ctx, n))
	if err != nil && s.fatal(err) {
		s.misuse(err)
	}
	if errors.Is(err, ErrLimitConflict) {
		s.config.lockOptions.Log().Warn("holdfast: cannot acquire", "lock", s.name, "error", err)
	}
	return err == nil
}

// deposit leaves the lease with the semaphore, where Release finds it.
func (s *Semaphore) deposit(l *Lease, err error) error {
	if err != nil {
		return err
	}
	if _, err := s.c.locks.Keep(s.base(), &s.cached, &local.Want{}, (*local.Hold)(l)); err != nil {
		return s.fail("acquire", err)
	}
	return nil
}

// Release gives back n of the permits that this client holds by Acquire or TryAcquire, in
// whatever portions it got them. If n is negative or more than the client holds, Release
// panics and changes nothing. It never touches permits held with Lease. It waits for the
// store as [Mutex.Unlock] does. If the permits were got in several portions, hooks are called for
// these at the same time, on other goroutines.
func (s *Semaphore) Release(n int64) {
	if n < 0 {
		panic(fmt.Sprintf("holdfast: semaphore %q: release of %d permits", s.name, n))
	}
	parts, ok := s.client().locks.TakeBack(s.base(), &s.cached, false, n, nil)
	if !ok {
		panic(fmt.Sprintf("holdfast: semaphore %q: released more than held", s.name))
	}
	if len(parts) == 1 { // mostly
		s.releasePart(parts[0])
		return
	}
	select {
	case v := <-together(len(parts), func(i int) { s.releasePart(parts[i]) }):
		if v != nil {
			panic(v) // of a hook
		}
	case <-time.After(tryWait):
	}
}

// releasePart gives up permits of one hold.
func (s *Semaphore) releasePart(p local.Part) {
	run := (*local.Hold).ReleaseBriefly
	if p.Left > 0 {
		run = func(h *local.Hold, ctx context.Context) error { return h.ReleasePart(ctx, p.Left) }
	}
	if hooks := s.c.hooks.Load(); hooks != nil {
		_ = hooks.releaseAnyway((*Lease)(p.Hold), context.WithoutCancel(p.Hold.Context()), p.Left, run)
	} else {
		_ = run(p.Hold, p.Hold.Values())
	}
}
