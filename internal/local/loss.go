package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
	"github.com/holdfast-go/holdfast/internal/session"
	"github.com/holdfast-go/holdfast/internal/token"
)

const (
	// gathering is how long a line of the log about a loss waits for others to share it. While more
	// come, the next line waits twice as long, up to mostGathering.
	gathering, mostGathering = 100 * time.Millisecond, 10 * time.Second
	// mostAlone is how many losses of a kind that an operator looks for one by one have lines of their
	// own, if they come together.
	mostAlone = 100
	// mostNames is how many locks a line names.
	mostNames = 3
	// maxForgetting is how many tokens that were lost are given up at a time.
	maxForgetting = 16
)

// Why a lease was lost, as far as this process knows.
var (
	ErrExpired   = errors.New("not renewed in time")
	errTakenAway = errors.New("taken away by ForceUnlock")
	errEnded     = errors.New("the session that kept it has ended at the store")
	errForgotten = errors.New("the store does not know it any more, as after ForceUnlock, Steal, FLUSHALL, an eviction or a failover")
)

// byClock is an ErrExpired for which a clock is to blame.
type byClock struct{ error }

func (byClock) Is(target error) bool { return target == ErrExpired }

// reason is all that follows from the cause of a loss. It is made before Lock.mu is taken: an error of a
// RenewHook, say, has methods of the program, which may look at the lease.
type reason struct {
	cause error // as it was told; nil for none in particular
	why   error // what is behind ErrLost
	end   error // of the holds
	topic topic // for the log
}

func (g *Grant) reasonOf(cause error) *reason {
	why := whyOf(cause)
	t := topic{log: g.opts.Log(), cause: why.Error()}
	t.alone = errors.Is(cause, token.ErrTakenAway) || errors.Is(cause, ErrHeldTooLong)
	if cause != nil && errors.Is(why, ErrExpired) && !errors.Is(cause, keepalive.ErrClock) {
		t.cause = ErrExpired.Error() + ": " + session.CauseOf(cause) // each connection has a port of its own
	}
	return &reason{cause, why, g.lock.r.Wrap("hold", g.lock.id, fmt.Errorf("%w: %w", ErrLost, why)), t}
}

// whyOf says why a lease was lost.
func whyOf(cause error) error {
	var stolen *token.Stolen
	switch {
	case errors.As(cause, &stolen):
		return stolen
	case errors.Is(cause, token.ErrTakenAway):
		return errTakenAway
	case errors.Is(cause, token.ErrEnded):
		return errEnded
	case errors.Is(cause, driver.ErrNotHeld):
		return errForgotten
	case cause == ErrHeldTooLong:
		return ErrHeldTooLong
	case errors.Is(cause, keepalive.ErrClock):
		return byClock{cause}
	case cause == nil:
		return ErrExpired
	}
	return fmt.Errorf("%w: %w", ErrExpired, cause)
}

// losses has the log tell of leases that were lost. An outage may end ten thousand of them at once, and
// a handler may take milliseconds for a line. So those with one cause share a line, and one goroutine
// writes it. The wrong version started a goroutine for each.
type losses struct {
	mu  sync.Mutex // comes after Lock.mu
	all map[topic]*gathered
}

// topic is what losses have in common that share a line.
type topic struct {
	log   *slog.Logger
	cause string
	alone bool // what somebody has done to a lock, or what its holder does: each has its own line
}

type gathered struct {
	pause time.Duration // until the next line
	timer *time.Timer
	lost  []loss
}

// loss is what the log says of one.
type loss struct {
	at         time.Time
	kind, name string
	fence      int64
	why        error
}

// tellLoss has the log tell of the loss of a hold. The caller holds Lock.mu.
func (g *Grant) tellLoss(h *Hold) {
	id, why := g.lock.id, g.reason
	g.lock.r.losses.add(why.topic, loss{time.Now(), string(id.Kind), id.Name, h.fence, why.why})
}

func (l *losses) add(t topic, lost loss) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.all[t]
	if g == nil {
		g = &gathered{pause: gathering}
		if l.all == nil {
			l.all = map[topic]*gathered{}
		}
		l.all[t] = g
		g.timer = time.AfterFunc(g.pause, func() { l.tell(t) })
	}
	g.lost = append(g.lost, lost)
}

// tell writes what was gathered, and goes on to gather unless nothing was.
func (l *losses) tell(t topic) {
	l.mu.Lock()
	g := l.all[t]
	if g == nil || len(g.lost) == 0 {
		delete(l.all, t)
		l.mu.Unlock()
		return
	}
	lost := g.lost
	g.lost = nil
	l.mu.Unlock()
	t.write(lost)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !t.alone {
		g.pause = min(2*g.pause, mostGathering)
	}
	g.timer.Reset(g.pause)
}

// flush writes what is gathered now.
func (l *losses) flush() {
	l.mu.Lock()
	all := l.all
	l.all = nil
	l.mu.Unlock()
	for t, g := range all {
		g.timer.Stop()
		if len(g.lost) > 0 {
			t.write(g.lost)
		}
	}
}

// write writes a line about several losses, or one for each. The others can be had at level Debug:
// nothing else tells of the loss of a lock without a lease.
func (t topic) write(lost []loss) {
	level := slog.LevelWarn
	if len(lost) > 1 && !(t.alone && len(lost) <= mostAlone) {
		var also []string
		for _, l := range lost[1:] {
			if l.name != lost[0].name && !slices.Contains(also, l.name) {
				also = append(also, l.name)
			}
			if len(also) == mostNames-1 {
				break
			}
		}
		lost[0].write(t.log, level, "lost", len(lost), "also", also)
		level = slog.LevelDebug
	}
	for _, l := range lost {
		l.write(t.log, level)
	}
}

// write writes a line of the time of the loss.
func (l loss) write(log *slog.Logger, level slog.Level, more ...any) {
	ctx := context.Background()
	if !log.Enabled(ctx, level) {
		return
	}
	var caller [1]uintptr
	runtime.Callers(1, caller[:])
	r := slog.NewRecord(l.at, level, "holdfast: lock lost", caller[0])
	r.Add("kind", l.kind, "lock", l.name, "fence", l.fence, "cause", l.why)
	r.Add(more...)
	_ = log.Handler().Handle(ctx, r)
}

// TellLosses has the log tell now of the losses that were to share a line.
func (r *Registry) TellLosses() { r.losses.flush() }

// forgetting lets the driver forget lost tokens that nobody may ever release. There is no hurry. Code
// that works under the lease has just been told to stop, and as long as the store keeps the lease
// nobody else begins.
type forgetting struct {
	mu   sync.Mutex
	due  []forgotten // in the order of their times
	runs bool
	crew crew
}

type forgotten struct {
	grant  *Grant
	values context.Context
	at     time.Time
}

// forget has the token of a lost grant forgotten. That ends the caller's operation.
func (g *Grant) forget(values context.Context) {
	f := &g.lock.r.forgetting
	f.mu.Lock()
	defer f.mu.Unlock()
	f.due = append(f.due, forgotten{g, values, time.Now().Add(releaseWait)})
	if !f.runs {
		f.runs = true
		go f.run(g.lock.r.Session.Closing())
	}
}

func (f *forgetting) run(closing <-chan struct{}) {
	for {
		f.mu.Lock()
		if len(f.due) == 0 {
			f.due, f.runs = nil, false
			f.mu.Unlock()
			return
		}
		next := f.due[0]
		f.due = f.due[1:]
		f.mu.Unlock()
		select {
		case <-closing:
		case <-time.After(time.Until(next.at)):
		}
		if e := next.grant.lostEnding(""); !e.Lost {
			_, _ = next.grant.token.Release(next.values, e, false) // others wait for it
		} else {
			f.crew.send(maxForgetting, func() { next.grant.token.Forget(next.values) })
		}
	}
}
