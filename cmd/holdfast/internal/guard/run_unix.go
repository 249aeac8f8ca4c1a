//go:build unix

package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/show"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/term"
	"github.com/holdfast-go/holdfast/driver"
	tokens "github.com/holdfast-go/holdfast/internal/token"
)

// passedOn are the signals that go to the command. The first four end the waiting
// if they come before there is one.
var passedOn = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2}

func (g *guard) run(ctx context.Context) error { return g.have(ctx, g.hold) }

// inbox is what comes in while we wait for the lock, and while the command runs.
type inbox struct {
	signals  chan os.Signal // those of passedOn
	children chan os.Signal // SIGCHLD: a child has stopped or ended
}

// have calls then with the lease, once it has the lock.
func (g *guard) have(ctx context.Context, then func(*store.Store, *holdfast.Lease, inbox) error) error {
	in := inbox{make(chan os.Signal, 16), make(chan os.Signal, 1)}
	notify(in.signals, passedOn...)
	signal.Notify(in.children, unix.SIGCHLD)
	in.children <- unix.SIGCHLD // of one that ended before: it was left by what ran in this process before us
	waiting, end := endOnSignal(ctx, in)
	defer end()
	s, err := g.address.Open(waiting)
	if err != nil {
		return g.refusal(waiting, s, err)
	}
	defer s.Close()
	if err := s.CanLock(); err != nil {
		return err
	}
	if _, able := driver.As[driver.Attacher](s.Driver); g.leaves && !able {
		return s.Lacks("cannot hand a lease from one process to another: use holdfast run")
	}
	if coarse, ok := driver.As[driver.Granular](s.Driver); ok {
		if least, _ := coarse.Granularity(); g.ttl < least {
			return exit.WrongUsage(fmt.Errorf("--ttl: on this store it must be at least %v", least))
		}
	}
	locks := holdfast.Open(s.Driver, holdfast.WithTTL(g.ttl), holdfast.WithLogger(store.Logger()))
	defer store.CloseClient(locks)
	defer signal.Stop(in.signals) // from then on they end us, should Redis not answer

	lease, err := g.await(waiting, g.open(s, locks))
	if err == nil {
		// A signal that arrived with the lock, but before there was a command.
		end()
		if _, ok := errors.AsType[interrupted](context.Cause(waiting)); !ok {
			return then(s, lease, in)
		}
		g.release(lease)
	}
	return g.refusal(waiting, s, err)
}

// acquire has the lock go on when this process has ended, and prints the token of the lease.
func (g *guard) acquire(ctx context.Context, asJSON bool) error {
	if closed(os.Stdout) {
		return exit.With(exit.Unavailable, errors.New("nobody can read the token: standard output is closed"))
	}
	signal.Ignore(unix.SIGPIPE) // It would end us before the lock is given back.
	g.leaves = true
	return g.have(ctx, func(s *store.Store, lease *holdfast.Lease, _ inbox) error {
		ctx, cancel := context.WithTimeout(ctx, store.ReleaseTimeout)
		defer cancel()
		token, err := lease.Detach(ctx)
		if err != nil {
			g.release(lease)
			return exit.With(exit.Unavailable, err)
		}
		if err := printLease(os.Stdout, lease, token, asJSON); err != nil {
			return exit.With(exit.Unavailable, g.takeBack(s, token, err))
		}
		return nil
	})
}

// takeBack releases a lease whose token reached nobody.
func (g *guard) takeBack(s *store.Store, token string, err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), store.ReleaseTimeout)
	defer cancel()
	err = fmt.Errorf("cannot write the token: %w", err)
	l, left := tokens.Parse(token)
	if left == nil {
		left = persist(ctx, func() error { return s.Driver.Release(ctx, l) })
	}
	if left != nil && !errors.Is(left, driver.ErrNotHeld) {
		err = fmt.Errorf("%w; %q stays locked for up to %v: %w", err, g.lock, g.ttl, left)
	}
	return err
}

// closed reports whether a standard stream was closed when we were started. Go opens /dev/null in its
// place, for reading and writing; a shell opens it for one of them.
func closed(f *os.File) bool {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR {
		return err != nil
	}
	is, err := f.Stat()
	null, missing := os.Stat(os.DevNull)
	return err == nil && missing == nil && os.SameFile(is, null)
}

// notify is signal.Notify without the signals that we were started to ignore, as nohup
// does. To ask for them would end the ignoring.
func notify(c chan<- os.Signal, sigs ...os.Signal) {
	for _, sig := range sigs {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
}

// interrupted is the cause of a context that a signal ended.
type interrupted struct{ sig syscall.Signal }

func (i interrupted) Error() string { return fmt.Sprintf("%v while waiting for the lock", i.sig) }

// endOnSignal returns a context that ends with the first signal that asks to end.
// After end returns, it leaves the inbox to others.
func endOnSignal(ctx context.Context, in inbox) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case sig := <-in.signals:
				if sig == unix.SIGUSR1 || sig == unix.SIGUSR2 {
					continue // they are for the command, which is not there yet
				}
				cancel(interrupted{sig.(syscall.Signal)})
			case <-in.children:
				reapStrangers()
			case <-stop:
				return
			}
		}
	}()
	return ctx, sync.OnceFunc(func() {
		close(stop)
		<-stopped
		cancel(nil)
	})
}

var errTimeout = errors.New("--timeout is over")

// await waits for the lock as the command line says.
func (g *guard) await(ctx context.Context, l *lock) (lease *holdfast.Lease, err error) {
	if g.verbose || term.Is(os.Stderr) {
		start, done := time.Now(), g.tell(ctx, l)
		defer func() {
			done()
			if waited := time.Since(start); err == nil && waited > tellEvery {
				exit.Say(fmt.Errorf("got %q after %s", g.lock, show.Whole(waited)))
			}
		}()
	}
	switch {
	case g.noWait:
		ctx, cancel := context.WithTimeout(ctx, store.ConnectTimeout)
		defer cancel()
		lease, err = l.try(ctx)
	case g.timeout > 0:
		ctx, cancel := context.WithTimeoutCause(ctx, g.timeout, errTimeout)
		defer cancel()
		lease, err = l.wait(ctx)
	default:
		lease, err = l.wait(ctx)
	}
	// Time can also run out while Redis is away; then the error tells of that.
	busy := errors.Is(err, errTimeout) && !errors.Is(err, driver.ErrTransient)
	if busy || errors.Is(err, holdfast.ErrLocked) {
		err = exit.With(g.busy, g.describe(ctx, l))
	}
	if errors.Is(err, holdfast.ErrLimitConflict) || errors.Is(err, holdfast.ErrLimitExceeded) {
		err = exit.WrongUsage(g.conflict(ctx, l, err))
	}
	return lease, err
}

// refusal says why there is no lease.
func (g *guard) refusal(waiting context.Context, s *store.Store, err error) error {
	if by, ok := errors.AsType[interrupted](context.Cause(waiting)); ok {
		return exit.With(exit.Signal+int(by.sig), by)
	}
	if errors.Is(err, holdfast.ErrInvalidName) {
		return exit.WrongUsage(err)
	}
	if _, ok := errors.AsType[*exit.Error](err); ok {
		return err
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return s.Lacks(g.wanted())
	}
	return s.Unavailable(err)
}

// wanted says what of the command line a store lacks that refuses it.
func (g *guard) wanted() string {
	switch {
	case g.steal:
		return "cannot take a lock from its holder, as --steal does"
	case g.limit > 0:
		return "has no semaphores, and so no --limit"
	case g.shared:
		return "has no locks for readers and writers, and so none that are --shared"
	}
	return "has no locks of --kind " + cmp.Or(g.kind, "rwmutex")
}

// hold runs the command while it holds the lease.
func (g *guard) hold(_ *store.Store, lease *holdfast.Lease, in inbox) error {
	j, err := g.start(lease)
	if err != nil {
		g.release(lease)
		return err
	}
	status, lost := j.supervise(lease, g, in)
	held := g.release(lease)
	switch {
	case lost: // and has been told
		return exit.Silent(exit.Lost)
	case !held:
		return exit.With(exit.Lost, fmt.Errorf("the lease on %q was lost before the command ended", g.lock))
	case status.Signaled():
		return exit.Silent(exit.Signal + int(status.Signal()))
	case status.ExitStatus() != 0:
		return exit.Silent(status.ExitStatus())
	}
	return nil
}

// start starts the command, and what ends it if we are killed. Even then it ends before the
// lease does, of which two thirds are left at least.
func (g *guard) start(lease *holdfast.Lease) (*job, error) {
	grace := min(g.grace, g.ttl/2)
	if g.onLost == "kill" {
		grace = 0
	}
	var w *watcher
	if g.onLost != "ignore" {
		var err error
		if w, err = startWatcher(grace); err != nil {
			return nil, exit.With(exit.Failure, fmt.Errorf("cannot watch over the command: %w", err))
		}
	}
	fence := "" // on the old forms, which have none; not 0, which looks like one, nor that of a holdfast around us
	if lease.Fence() > 0 {
		fence = strconv.FormatInt(lease.Fence(), 10)
	}
	j, err := startJob(g.command, []string{"HOLDFAST_LOCK=" + g.lock, "HOLDFAST_FENCE=" + fence})
	switch {
	case w != nil && err != nil:
		w.end()
	case w != nil:
		j.watcher = w
		w.watch(j.group)
	}
	return j, err
}

// release gives the lease back. It returns false if it was no longer ours.
func (g *guard) release(lease *holdfast.Lease) bool {
	ctx, cancel := context.WithTimeout(context.Background(), store.ReleaseTimeout)
	defer cancel()
	err := lease.Release(ctx)
	if errors.Is(err, holdfast.ErrLost) || errors.Is(err, holdfast.ErrNotHeld) {
		return false
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("the store does not answer")
	}
	if err != nil {
		// The command has done its work under the lock; only the next one has to wait.
		exit.Say(fmt.Errorf("%q stays locked for up to %v: %w", g.lock, g.ttl, err))
	}
	return true
}
