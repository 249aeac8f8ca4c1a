// Package leader elects one of several processes, which leads until it resigns or is lost.
//
//	election := leader.New(locks, "scheduler", holdfast.WithHolder("worker-3"))
//	err := election.Run(ctx, func(ctx context.Context) error {
//		return schedule(ctx) // ctx ends when this process leads no more
//	})
//
// An election is a [holdfast.Mutex], and a term of office is a lease on it. So their
// documentation applies here, too. A candidate that waits is elected as soon as the leader resigns,
// in the order in which they came. A leader that crashes, or is cut off from the store, is
// replaced when its lease has ended: within the TTL, a grace of at most half a second, and one
// heartbeat of TTL/3. Before that its own context has ended. [holdfast.WithTTL] sets the
// TTL; the default is 10 s.
//
// A process that is paused cannot see that it leads no more, and may write when it wakes up.
// Where that would do damage, let the resource check the fence, see [Term.Fence] and the
// packages below fence.
//
// A leader that is elected outside of any span, as in main, has no span for its term, unless
// [holdfast.WithHoldSpans] says so. With [holdfast.WithLockClass] the metric holdfast.hold.active
// tells how many lead.
//
// The names come from the Election in etcd's client. There an application can lead on
// although its session is gone, and the channel of a watcher can fall silent. Here the
// context of a term ends, Run stands for election again, and Observe tells of trouble.
package leader

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// ErrNoLeader says that nobody leads.
var ErrNoLeader = errors.New("holdfast: no leader")

// ErrWanted is why the context of a leader ends that gives way, see [Election.GiveWay].
var ErrWanted = errors.New("holdfast: another candidate waits")

// Election is one office. All Elections of one name in a store are the same. Its methods may
// be called from any goroutine.
type Election struct {
	mu    *holdfast.Mutex
	least time.Duration // after which a leader gives way; negative: never
}

// New returns the election with that name, any 1 to 512 bytes. The mutex of that name stands
// for it, and has opts; others see the text of [holdfast.WithHolder] for this candidate. The mutex has
// [holdfast.WithStrictFIFO], so New panics if opts have [holdfast.WithLinger].
func New(locks *holdfast.Client, name string, opts ...holdfast.LockOption) *Election {
	// A process must not pass the office on to a goroutine of its own before others.
	return &Election{locks.Mutex(name, append(opts[:len(opts):len(opts)], holdfast.WithStrictFIFO())...), -1}
}

// GiveWay returns the same election for a process that leads only until another candidate waits,
// such as the old one of a rolling deploy. When it has led for least, and another waits, Run ends the
// context of lead with cause [ErrWanted], resigns once lead has returned, and returns its error.
// If all candidates gave way they would take turns, each for least. It panics if least is negative.
// For stores that do not tell who waits, see [holdfast.Lease.Wanted].
func (e *Election) GiveWay(least time.Duration) *Election {
	if least < 0 {
		panic("holdfast: leader: least must not be negative")
	}
	return &Election{e.mu, least}
}

// Campaign waits until this process leads or ctx ends. ctx bounds the waiting only. It waits out
// trouble of the store as [holdfast.Mutex.Lease] does: an error that it returns before is known to be
// the same next time.
func (e *Election) Campaign(ctx context.Context) (*Term, error) {
	lease, err := e.mu.Lease(ctx)
	if err != nil {
		return nil, err
	}
	return &Term{lease}, nil
}

// Run calls lead whenever this process is elected, until lead has returned within its term.
// Then Run resigns, even if lead panics, and returns the error of lead. The context of lead
// ends when ctx does, or when this process leads no more, with a cause that matches
// [holdfast.ErrLost]. In the latter case Run waits until lead returns, ignores its error, and
// stands for election again. If ctx ends before this process is elected, the error
// matches its Err and its cause.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context) error) error {
	for {
		lost, err := e.serve(ctx, lead)
		if !lost {
			return err
		}
	}
}

// serve is one term. It reports whether the term was lost.
func (e *Election) serve(ctx context.Context, lead func(ctx context.Context) error) (lost bool, err error) {
	t, err := e.Campaign(ctx)
	if err != nil {
		return false, err
	}
	term, cancel := context.WithCancelCause(t.lease.WithContext(ctx))
	defer func() {
		gaveWay := errors.Is(context.Cause(term), ErrWanted)
		cancel(nil)
		resigned := t.Resign(ctx)
		lost = errors.Is(resigned, holdfast.ErrLost) && !gaveWay
		if err == nil {
			err = resigned
		}
	}()
	if e.least >= 0 {
		go t.giveWay(term, e.least, cancel)
	}
	return false, lead(term)
}

// giveWay cancels a term of at least that time when another candidate waits.
func (t *Term) giveWay(ctx context.Context, least time.Duration, cancel context.CancelCauseFunc) {
	led := time.NewTimer(least)
	defer led.Stop()
	select {
	case <-led.C:
	case <-ctx.Done():
		return
	}
	select {
	case <-t.Wanted():
		cancel(ErrWanted)
	case <-ctx.Done():
	}
}

// Leader returns the process that leads, as the store sees it now, or [ErrNoLeader]. Transient errors are
// retried until ctx ends.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	info, err := e.mu.Inspect(ctx)
	switch {
	case err != nil:
		return Leader{}, err
	case len(info.Holders) == 0:
		return Leader{}, ErrNoLeader
	}
	h := info.Holders[0]
	return Leader{h.Holder, h.Fence, h.Since}, nil
}

// Observe yields the result of [Election.Leader]: at once, and after each change, until ctx
// ends. It looks at the store at intervals of every, so a short term in between can be missed.
//
//	for now, err := range election.Observe(ctx, time.Second) {
//		…
//	}
//
// While the store cannot be asked it returns the error, once. A look takes until the next
// one is due, but at least 1 s, before it fails. Observe panics if every is not positive.
func (e *Election) Observe(ctx context.Context, every time.Duration) iter.Seq2[Leader, error] {
	if every <= 0 {
		panic("holdfast: leader: every must be positive")
	}
	return func(yield func(Leader, error) bool) {
		var before Leader
		var failed error
		for first := true; ; first = false {
			next := time.After(every)
			of := ctx
			if !first {
				of = telemetry.Unasked(ctx)
			}
			look, cancel := context.WithTimeout(of, max(every, time.Second))
			now, err := e.Leader(look)
			cancel()
			if ctx.Err() != nil {
				return
			}
			changed := first || now.Fence != before.Fence || !now.Since.Equal(before.Since) || now.Name != before.Name ||
				errors.Is(err, ErrNoLeader) != errors.Is(failed, ErrNoLeader) || (err == nil) != (failed == nil)
			before, failed = now, err
			if changed && !yield(now, err) {
				return
			}
			select {
			case <-next:
			case <-ctx.Done():
				return
			}
		}
	}
}

// Leader describes the process that leads.
type Leader struct {
	Name  string    // the text of [holdfast.WithHolder], by default host and process
	Fence int64     // of the term
	Since time.Time // on the store's clock
}

// Term is the time for which this process leads.
type Term struct{ lease *holdfast.Lease }

// Context returns a context that ends when the term does. If the term was lost, the cause
// matches [holdfast.ErrLost], and it ends before another is elected. The context has the values
// of the one that Campaign was called with.
func (t *Term) Context() context.Context { return t.lease.Context() }

// Err returns nil while this process leads. Otherwise it says why the term has ended, see
// [holdfast.Lease.Err].
func (t *Term) Err() error { return t.lease.Err() }

// Fence returns the number of the term, larger than that of every earlier term, see
// [holdfast.Lease.Fence].
func (t *Term) Fence() int64 { return t.lease.Fence() }

// Wanted returns a channel that is closed when another candidate waits, see [holdfast.Lease.Wanted].
func (t *Term) Wanted() <-chan struct{} { return t.lease.Wanted() }

// Resign ends the term, and the next candidate leads. If the term was lost before, the error
// matches [holdfast.ErrLost]. Resign works with a ctx that has ended; if the store does not
// answer, see [holdfast.Lease.Release].
func (t *Term) Resign(ctx context.Context) error { return t.lease.Release(ctx) }
