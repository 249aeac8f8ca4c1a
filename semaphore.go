package holdfast

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/local"
	"github.com/holdfast-go/holdfast/internal/session"
)

// Semaphore bounds how much is held at a time, by all processes that use the same
// store: each holder has a number of permits, and together they have no more than the
// limit. It can replace a Weighted of golang.org/x/sync/semaphore, but to ask for more
// than the limit fails at once here; use [Semaphore.Lease] and [Semaphore.Do] where code
// must know if its permits are lost.
//
// Waiters are served first come, first served. While the first one waits for more
// permits than are left, those behind it wait too, so that no stream of small requests
// can starve a large one.
//
// The limit belongs to the semaphore, not to the handle. As long as anybody holds or waits,
// the first user sets it; another limit returns [ErrLimitConflict]: two programs that disagree
// must not each believe in their own. To change it, see [Semaphore.Resize].
//
// A Semaphore is a handle and cheap. All handles of one name are the same semaphore,
// also for Release.
type Semaphore struct {
	handle
	limit int64
}

// Semaphore returns the semaphore with that name and limit. A name that is empty or
// longer than 512 bytes makes TryAcquire and Release panic, and the others return
// [ErrInvalidName]. It panics if limit is below 1 or above 2^53 - 1.
func (c *Client) Semaphore(name string, limit int64, opts ...LockOption) *Semaphore {
	checkLimit(limit)
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
// limit, which they would never get, the error matches [ErrLimitExceeded] at once; if
// the semaphore is in use with another limit, it matches [ErrLimitConflict].
//
// A ctx that comes from a lease on this semaphore may have more permits. A holder of some
// that waits for others can be in a deadlock, however, as with any semaphore.
//
// Lease panics if n is below 1.
func (s *Semaphore) Lease(ctx context.Context, n int64) (*Lease, error) {
	return s.lease(ctx, s.want(n, true), "acquire")
}

// TryLease returns a lease on n permits if they are free and nobody waits, else an
// error that matches [ErrLocked], or one of those of [Semaphore.Lease].
func (s *Semaphore) TryLease(ctx context.Context, n int64) (*Lease, error) {
	return s.lease(ctx, s.want(n, false), "acquire")
}

// Do calls f with n permits held, as [Mutex.Do] does with a lock.
func (s *Semaphore) Do(ctx context.Context, n int64, f func(ctx context.Context) error) error {
	return do(ctx, func(ctx context.Context) (*Lease, error) { return s.Lease(ctx, n) }, f)
}

// Resize sets the limit, and lets those waiters in that fit now. It counts from then on,
// whatever limit handles were made with, until the semaphore has not been used for a
// minute. So the way to another limit is to Resize, and then to replace the programs.
//
// Nothing is taken from those that hold permits: if that is more than the new limit, others
// wait until enough has been released. Waiters that want more than the new limit get
// [ErrLimitExceeded]. Transient errors are retried until ctx ends. Resize panics if limit is below 1 or above 2^53 - 1.
func (s *Semaphore) Resize(ctx context.Context, limit int64) error {
	checkLimit(limit)
	r, able := driver.As[driver.Resizer](s.c.session.Driver)
	token := s.c.session.NewToken() // by which the store knows a repeat
	return s.c.await(ctx, s.id(true), session.Errand{Op: "resize", Able: able, Do: func() error {
		return r.Resize(s.c.session.Under(ctx), s.name, token, limit)
	}})
}

// Inspect tells who holds permits and who waits, as the store sees it now.
func (s *Semaphore) Inspect(ctx context.Context) (Info, error) { return s.inspect(ctx) }

// ForceUnlock takes their permits from all holders, as [Mutex.ForceUnlock] does.
func (s *Semaphore) ForceUnlock(ctx context.Context) error { return s.force(ctx) }

// Acquire waits for n permits until ctx ends. They are given back with Release, by any
// goroutine. If it fails it returns what [Semaphore.Lease] does, and nothing is held. It
// panics if n is negative. To ask for 0 permits asks nobody, and succeeds unless ctx has ended.
//
// A holder by Acquire is not told if its permits are lost; the loss is logged. They have to be
// released nevertheless.
func (s *Semaphore) Acquire(ctx context.Context, n int64) error {
	if n == 0 {
		return context.Cause(ctx)
	}
	return s.keep(s.Lease(ctx, n))
}

// TryAcquire takes n permits if they are free and nobody waits, and reports whether it
// did. It waits for the store at most 1 s, and reports false if that does not answer. It
// panics if n is negative, and when [Mutex.TryLock] would. A conflict of limits is
// logged.
func (s *Semaphore) TryAcquire(n int64) bool {
	if n == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), tryWait)
	defer cancel()
	err := s.keep(s.TryLease(ctx, n))
	if err != nil && s.fatal(err) {
		s.misuse(err)
	}
	if errors.Is(err, ErrLimitConflict) {
		s.config.hold.Log().Warn("holdfast: cannot acquire", "lock", s.name, "error", err)
	}
	return err == nil
}

// keep leaves the lease with the semaphore, where Release finds it.
func (s *Semaphore) keep(l *Lease, err error) error {
	if err != nil {
		return err
	}
	lock := s.c.locks.Ref(s.id(true))
	if !lock.Keep((*local.Hold)(l)) {
		lock.Unref()
		return s.fail("acquire", ErrClosed)
	}
	return nil
}

// Release gives back n permits of those that this client holds by Acquire or TryAcquire,
// whatever the numbers were in which it got them. It panics if n is negative or more
// than it holds, and changes nothing then. It never touches permits held with Lease. It
// waits for the store as [Mutex.Unlock] does.
func (s *Semaphore) Release(n int64) {
	if n < 0 {
		panic("holdfast: semaphore: release of a negative number of permits")
	}
	parts, ok := s.c.locks.TakeBackSome(s.id(true), n)
	if !ok {
		panic("holdfast: semaphore: released more than held")
	}
	hooks := s.c.hooks.Load()
	for _, p := range parts {
		run := (*local.Hold).LetGo
		if p.Left > 0 {
			run = func(h *local.Hold, ctx context.Context) error { return h.ReleasePart(ctx, p.Left) }
		}
		if hooks != nil {
			_ = hooks.surely((*Lease)(p.Hold), context.WithoutCancel(p.Hold.Context()), p.Left, run)
		} else {
			_ = run(p.Hold, p.Hold.Values())
		}
	}
}
