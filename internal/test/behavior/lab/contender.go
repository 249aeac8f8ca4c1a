//go:build unix

package lab

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/crew"
	"github.com/holdfast-go/holdfast/internal/test/referee"
)

// Patience bounds every wait for one thing in the process tests.
const Patience = 15 * time.Second

func init() { crew.Register("contender", func() { Contend(nil) }) }

// Order is what a contender is told.
type Order struct {
	Do   string // lease, cancel, turn, turns, check, release, close, spans, or one of obeyFleet
	Lock string
	Kind string // mutex if empty, read, write, permits or, to hammer, nothing
	N    int    // turns

	Weight int64         // permits; also what the referee counts
	Limit  int64         // of the semaphore
	Stay   time.Duration // in the critical section, of turns and at most of a hammer
}

// Report is what a contender tells. Times are of [crew.Clock].
type Report struct {
	What    string // ready, leased, refused, turn, turned, ended, checked, released, closed, locked, unlocked or hammered
	Lock    string
	Began   time.Duration // when the order was taken up
	At      time.Duration // when it was done; of a turn: when the critical section was entered
	Left    time.Duration // turn: when the critical section was left
	Expires time.Duration // leased, checked: the lease's deadline
	Fence   int64
	Err     string
	Is      []string        // the sentinels that the error matches
	Holds   []*referee.Hold // hammered
}

// fail notes err, and which sentinels it matches, in the report.
func (r Report) fail(err error) Report {
	if err == nil {
		return r
	}
	r.Err = err.Error()
	for _, s := range []struct {
		name string
		err  error
	}{
		{"ErrLocked", holdfast.ErrLocked},
		{"ErrLost", holdfast.ErrLost},
		{"ErrNotHeld", holdfast.ErrNotHeld},
		{"ErrClosed", holdfast.ErrClosed},
		{"Canceled", context.Canceled},
		{"DeadlineExceeded", context.DeadlineExceeded},
	} {
		if errors.Is(err, s.err) {
			r.Is = append(r.Is, s.name)
		}
	}
	return r
}

// worker is the inside of a contender.
type worker struct {
	locks *holdfast.Client
	spans func() []string

	stop  chan struct{} // ends the hammers
	mu    sync.Mutex
	state map[string]*state // by the name of the lock
}

// state is what a worker has of a lock, or is about to have.
type state struct {
	lease  *holdfast.Lease
	cancel context.CancelFunc // of the wait for the lease
}

// Contend is a process that does as it is told. An order to wait for a
// lock runs in a goroutine of its own, the others run one after the other. Its
// client has the hooks; spans is what it answers to the order of that name.
func Contend(spans func() []string, hooks ...holdfast.Hook) {
	ttl, err := time.ParseDuration(os.Getenv("CONTENDER_TTL"))
	if err != nil {
		panic(err)
	}
	rdb := redis.NewClient(&redis.Options{
		Network:    os.Getenv("CONTENDER_NETWORK"),
		Addr:       os.Getenv("CONTENDER_ADDR"),
		ClientName: connectionName(os.Getpid()),
	})
	w := &worker{
		locks: holdfast.New(rdb, holdfast.WithPrefix(os.Getenv("CONTENDER_PREFIX")), holdfast.WithTTL(ttl)),
		spans: spans,
		stop:  make(chan struct{}),
		state: map[string]*state{},
	}
	for _, h := range hooks {
		w.locks.AddHook(h)
	}
	say(Report{What: "ready"}.fail(rdb.Ping(context.Background()).Err()))
	for o := range crew.Orders[Order]() {
		w.obey(o)
	}
}

// connectionName is by what CLIENT LIST shows whose connections are left.
func connectionName(pid int) string { return "contender-" + strconv.Itoa(pid) }

func say(r Report) {
	if r.At == 0 {
		r.At = crew.Clock()
	}
	crew.Report(r)
}

func (w *worker) obey(o Order) {
	r := Report{Lock: o.Lock, Began: crew.Clock()}
	switch o.Do {
	case "lease":
		go w.lease(r, w.form(o))
	case "cancel":
		w.of(o.Lock).cancel()
	case "turn":
		go func() {
			if turn, ok := w.turn(r, w.form(o), o.Stay); ok {
				say(turn)
			}
		}()
	case "turns":
		go w.turns(r, w.form(o), o)
	case "check":
		r.What, r.At = "checked", crew.Clock()
		lease := w.of(o.Lock).lease
		r.Expires = r.At + time.Until(lease.Deadline())
		say(r.fail(lease.Err()))
	case "release":
		r.What = "released"
		say(r.fail(w.of(o.Lock).lease.Release(context.Background())))
	case "close":
		r.What = "closed"
		say(r.fail(w.locks.Close()))
	case "spans":
		r.What, r.Is = "spans", w.spans()
		say(r)
	default:
		w.obeyFleet(o, r)
	}
}

// of returns a copy.
func (w *worker) of(lock string) state {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *w.state[lock]
}

func (w *worker) note(lock string, s state) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state[lock] = &s
}

// get waits for the lock and reports it if that fails.
func (w *worker) get(r Report, ask Leasing) (*holdfast.Lease, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	w.note(r.Lock, state{cancel: cancel})
	lease, err := ask(ctx)
	if err != nil {
		r.What = "refused"
		say(r.fail(err))
	}
	return lease, err == nil
}

// lease reports twice: when it has the lock and when it has it no more.
func (w *worker) lease(r Report, ask Leasing) {
	lease, ok := w.get(r, ask)
	if !ok {
		return
	}
	w.note(r.Lock, state{lease: lease})
	r.What, r.Fence, r.At = "leased", lease.Fence(), crew.Clock()
	r.Expires = r.At + time.Until(lease.Deadline())
	say(r)
	<-lease.Context().Done()
	r.What, r.At = "ended", crew.Clock()
	say(r.fail(context.Cause(lease.Context())))
}

// turn has a critical section.
func (w *worker) turn(r Report, ask Leasing, stay time.Duration) (Report, bool) {
	lease, ok := w.get(r, ask)
	if !ok {
		return r, false
	}
	r.What, r.Fence, r.At = "turn", lease.Fence(), crew.Clock()
	time.Sleep(stay)
	r.Left = crew.Clock()
	return r.fail(lease.Release(context.Background())), true
}

// turns reports its turns only after the last, so as not to fall back in the race.
func (w *worker) turns(r Report, ask Leasing, o Order) {
	var done []Report
	for range o.N {
		r.Began = crew.Clock()
		turn, ok := w.turn(r, ask, o.Stay)
		if !ok {
			return
		}
		done = append(done, turn)
	}
	for _, turn := range done {
		say(turn)
	}
	say(Report{What: "turned", Lock: r.Lock})
}

// form is the form of Lease that the order wants.
func (w *worker) form(o Order) Leasing {
	switch o.Kind {
	case "":
		return w.locks.Mutex(o.Lock).Lease
	case "read":
		return w.locks.RWMutex(o.Lock).RLease
	case "write":
		return w.locks.RWMutex(o.Lock).Lease
	case "permits":
		return Permits(w.locks.Semaphore(o.Lock, o.Limit), o.Weight)
	}
	panic("no such kind: " + o.Kind)
}

// gate returns how to go in and out by the forms of package sync.
func (w *worker) gate(o Order) (in, out func()) {
	switch o.Kind {
	case "nothing":
		return func() {}, func() {}
	case "":
		mu := w.locks.Mutex(o.Lock)
		return mu.Lock, mu.Unlock
	case "read":
		rw := w.locks.RWMutex(o.Lock)
		return rw.RLock, rw.RUnlock
	case "write":
		rw := w.locks.RWMutex(o.Lock)
		return rw.Lock, rw.Unlock
	case "permits":
		s := w.locks.Semaphore(o.Lock, o.Limit)
		return func() {
			if err := s.Acquire(context.Background(), o.Weight); err != nil {
				panic(err)
			}
		}, func() { s.Release(o.Weight) }
	}
	panic("no such kind: " + o.Kind)
}

// obeyFleet carries out the orders hammer, stop, lock and unlock.
func (w *worker) obeyFleet(o Order, r Report) {
	if o.Do == "stop" {
		close(w.stop)
		return
	}
	in, out := w.gate(o)
	switch o.Do {
	case "hammer":
		go w.hammer(o, r, in, out)
	case "lock":
		go func() {
			in()
			r.What = "locked"
			say(r)
		}()
	case "unlock":
		out()
		r.What = "unlocked"
		say(r)
	default:
		panic("no such order: " + o.Do)
	}
}

// hammer goes in and out N times, or until it is told to stop, and reports when it was inside.
func (w *worker) hammer(o Order, r Report, in, out func()) {
	for !w.stopped() && (o.N == 0 || len(r.Holds) < o.N) {
		h := &referee.Hold{Weight: o.Weight, Fence: referee.Unseen, Asked: crew.Clock()}
		in()
		h.From = crew.Clock()
		time.Sleep(rand.N(o.Stay))
		h.To = crew.Clock()
		out()
		r.Holds = append(r.Holds, h)
	}
	r.What = "hammered"
	say(r)
}

func (w *worker) stopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}
