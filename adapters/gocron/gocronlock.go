// Package gocronlock has the jobs of [gocron] run once among many schedulers.
//
// With a Locker the first scheduler that comes to a job runs it, and the others skip it:
//
//	locker := gocronlock.NewLocker(locks, time.Minute)
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// With an [Elector] one scheduler runs all jobs for as long as it lives:
//
//	elector := gocronlock.NewElector(locks, "scheduler")
//	defer elector.Close()
//	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//
// gocron has no way to tell a job that its lock was lost while it runs. A lost lock is in the
// log of the client. Where two runs at a time would do damage, take a lock within the job,
// with Do.
//
// [gocron]: https://github.com/go-co-op/gocron
package gocronlock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/leader"
)

// NewLocker returns what [gocron.WithDistributedLocker] wants. A job is run under the mutex
// with the name of the job, so give it one with [gocron.WithName]. If another scheduler has
// the mutex, the job is skipped.
//
// A short job is done before a scheduler with a slower clock comes to it. So the mutex is kept for
// minHold at least, see [holdfast.WithMinHold]: longer than clocks can differ, and shorter than the
// time between two runs of any job. gocron does not say when a job is due again, so there is no
// default. NewLocker panics if opts have [holdfast.WithLinger], which does nothing beside that.
func NewLocker(locks *holdfast.Client, minHold time.Duration, opts ...holdfast.LockOption) gocron.Locker {
	opts = append(opts[:len(opts):len(opts)], holdfast.WithMinHold(minHold))
	locks.Mutex("job", opts...) // panics now, rather than at the first job
	return &locker{locks, opts}
}

type locker struct {
	locks *holdfast.Client
	opts  []holdfast.LockOption
}

func (l *locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	lease, err := l.locks.Mutex(job, l.opts...).TryLease(ctx)
	if err != nil {
		return nil, err
	}
	return lock{lease}, nil
}

type lock struct{ lease *holdfast.Lease }

func (l lock) Unlock(ctx context.Context) error { return l.lease.Release(ctx) }

// ErrNotLeader says that another scheduler runs the jobs, or none does yet.
var ErrNotLeader = errors.New("gocronlock: not the leader")

// Elector stands for election in the background, until it is closed. If its term is lost, or
// the store refuses, it stands again.
type Elector struct {
	term   atomic.Pointer[leader.Term] // nil while it does not lead
	failed atomic.Pointer[error]       // of the last campaign; nil if none has failed
	stop   context.CancelFunc
	done   chan struct{}
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an elector that stands for the election of that name, see
// [leader.New]. It must be closed before the client is.
func NewElector(locks *holdfast.Client, election string, opts ...holdfast.LockOption) *Elector {
	ctx, stop := context.WithCancel(context.Background())
	e := &Elector{stop: stop, done: make(chan struct{})}
	go e.run(ctx, leader.New(locks, election, opts...))
	return e
}

func (e *Elector) run(ctx context.Context, in *leader.Election) {
	defer close(e.done)
	for ctx.Err() == nil {
		term, err := in.Campaign(ctx)
		if err != nil {
			e.failed.Store(&err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second): // a refusal, such as while a password is changed
			}
			continue
		}
		e.failed.Store(nil)
		e.term.Store(term)
		select {
		case <-ctx.Done():
		case <-term.Context().Done():
		}
		e.term.Store(nil)
		_ = term.Resign(ctx)
	}
}

// IsLeader returns nil if this scheduler leads now. Otherwise the error matches
// [ErrNotLeader], and says why if the store refuses to let it stand.
func (e *Elector) IsLeader(context.Context) error {
	if term := e.term.Load(); term != nil && term.Err() == nil {
		return nil
	}
	if err := e.failed.Load(); err != nil {
		return errors.Join(ErrNotLeader, *err)
	}
	return ErrNotLeader
}

// Close resigns, so that another scheduler leads at once, and returns when that is done.
func (e *Elector) Close() {
	e.stop()
	<-e.done
}
