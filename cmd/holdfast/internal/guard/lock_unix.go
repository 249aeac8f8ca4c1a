//go:build unix

package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/show"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
)

// lock is what holdfast run needs of a lock.
type lock struct {
	wait, try func(context.Context) (*holdfast.Lease, error)
	inspect   func(context.Context) (holdfast.Info, error)
}

// open returns the lock that the command line asks for. Without --kind it is an RWMutex even if
// it is not --shared: exclusive and shared holders must meet. The old forms have Mutexes alone.
func (g *guard) open(s *store.Store, locks *holdfast.Client) *lock {
	var as []holdfast.LockOption
	if g.holder != "" {
		as = append(as, holdfast.WithHolder(g.holder))
	}
	if g.kind == "mutex" || g.kind == "" && s.Form != nil && g.limit == 0 && !g.shared {
		mu := locks.Mutex(g.lock, as...)
		if g.steal {
			return &lock{mu.Steal, mu.Steal, mu.Inspect}
		}
		return &lock{mu.Lease, mu.TryLease, mu.Inspect}
	}
	if g.limit > 0 {
		s := locks.Semaphore(g.lock, g.limit, as...)
		return &lock{
			func(ctx context.Context) (*holdfast.Lease, error) { return s.Lease(ctx, g.permits) },
			func(ctx context.Context) (*holdfast.Lease, error) { return s.TryLease(ctx, g.permits) },
			s.Inspect,
		}
	}
	rw := locks.RWMutex(g.lock, as...)
	if g.shared {
		return &lock{rw.RLease, rw.TryRLease, rw.Inspect}
	}
	if g.steal {
		return &lock{rw.Steal, rw.Steal, rw.Inspect}
	}
	return &lock{rw.Lease, rw.TryLease, rw.Inspect}
}

// describe says who has the lock.
func (g *guard) describe(ctx context.Context, l *lock) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	info, err := l.inspect(ctx)
	if err != nil {
		info = holdfast.Info{}
	}
	return fmt.Errorf("%q is %s", g.lock, show.Describe(info, g.noWait))
}

// conflict says how many permits a semaphore has that refused ours, or the number of them.
func (g *guard) conflict(ctx context.Context, l *lock, refusal error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	limit := "another --limit"
	if info, err := l.inspect(ctx); err == nil && info.Limit > 0 { // else the others have just ended
		limit = fmt.Sprintf("--limit %d", info.Limit)
	}
	if errors.Is(refusal, holdfast.ErrLimitExceeded) {
		return fmt.Errorf("the semaphore %q is in use with %s, too few for --permits %d", g.lock, limit, g.permits)
	}
	return fmt.Errorf("the semaphore %q is in use with %s, not %d; holdfast resize changes that", g.lock, limit, g.limit)
}

// tellEvery is the pause before each look at a lock that is waited for.
const tellEvery = time.Second

// tell says who has the lock, and again when that changes, until done is called.
func (g *guard) tell(ctx context.Context, l *lock) (done func()) {
	ctx, cancel := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		told := ""
		for {
			clock.Pause(ctx, tellEvery)
			info, err := l.inspect(ctx)
			if ctx.Err() != nil {
				return
			}
			if err != nil || len(info.Holders) == 0 {
				continue // the library says what is wrong with the store; a lock that is free is on its way to us
			}
			if who := show.Describe(info, false); who != told {
				told = who
				exit.Say(fmt.Errorf("waiting for %q, %s", g.lock, who))
			}
		}
	}()
	return func() {
		cancel()
		<-stopped
	}
}
