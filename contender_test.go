//go:build unix

package holdfast_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// patience bounds every wait for one thing in the process tests.
const patience = 15 * time.Second

func init() { redistest.RegisterChild("contender", contend) }

// order is a line that a contender reads, as JSON.
type order struct {
	Do   string // lease, cancel, turn, turns, check, release, close, or one of obeyFleet
	Lock string
	Kind string // mutex if empty, read, write, permits or, to hammer, nothing
	N    int    // turns
	Dir  string // turns: where the counter and the journal are; hammer: where the referee is

	Weight int64 // permits; also what the referee counts
	Limit  int64 // of the semaphore
	Stay   time.Duration
}

// report is a line that a contender prints, as JSON. Times are of CLOCK_MONOTONIC,
// which is the same clock in all processes of a machine and goes on in one that
// is suspended.
type report struct {
	What    string // ready, leased, refused, turn, turned, ended, checked, released, closed, locked, unlocked or hammered
	Lock    string
	Began   time.Duration // when the order was taken up
	At      time.Duration // when it was done; of a turn: when the critical section was entered
	Left    time.Duration // turn: when the critical section was left
	Expires time.Duration // leased, checked: the lease's deadline
	Fence   int64
	Err     string
	Is      []string // the sentinels that the error matches
	N       int      // hammered: how often
}

func monotonic() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}

// fail notes err, and which sentinels it matches, in the report.
func (r report) fail(err error) report {
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

	stop  chan struct{} // ends the hammers
	mu    sync.Mutex
	out   *json.Encoder
	state map[string]*state // by the name of the lock
}

// state is what a worker has of a lock, or is about to have.
type state struct {
	lease  *holdfast.Lease
	cancel context.CancelFunc // of the wait for the lease
}

// contend is a process that does as it is told on its standard input. What waits
// for a lock runs in a goroutine of its own, the rest in the order of the lines.
func contend() {
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
		out:   json.NewEncoder(os.Stdout),
		stop:  make(chan struct{}),
		state: map[string]*state{},
	}
	w.say(report{What: "ready"}.fail(rdb.Ping(context.Background()).Err()))
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var o order
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			panic(err)
		}
		w.obey(o)
	}
}

// connectionName is by what CLIENT LIST shows whose connections are left.
func connectionName(pid int) string { return "contender-" + strconv.Itoa(pid) }

func (w *worker) say(r report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.At == 0 {
		r.At = monotonic()
	}
	if err := w.out.Encode(r); err != nil {
		panic(err)
	}
}

func (w *worker) obey(o order) {
	r := report{Lock: o.Lock, Began: monotonic()}
	switch o.Do {
	case "lease":
		go w.lease(r, w.form(o))
	case "cancel":
		w.of(o.Lock).cancel()
	case "turn":
		go func() {
			if turn, ok := w.turn(r, w.form(o), nil); ok {
				w.say(turn)
			}
		}()
	case "turns":
		go w.turns(r, w.form(o), o.N, o.Dir)
	case "check":
		r.What, r.At = "checked", monotonic()
		lease := w.of(o.Lock).lease
		r.Expires = r.At + time.Until(lease.Deadline())
		w.say(r.fail(lease.Err()))
	case "release":
		r.What = "released"
		w.say(r.fail(w.of(o.Lock).lease.Release(context.Background())))
	case "close":
		r.What = "closed"
		w.say(r.fail(w.locks.Close()))
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
func (w *worker) get(r report, ask leasing) (*holdfast.Lease, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	w.note(r.Lock, state{cancel: cancel})
	lease, err := ask(ctx)
	if err != nil {
		r.What = "refused"
		w.say(r.fail(err))
	}
	return lease, err == nil
}

// lease reports twice: when it has the lock and when it has it no more.
func (w *worker) lease(r report, ask leasing) {
	lease, ok := w.get(r, ask)
	if !ok {
		return
	}
	w.note(r.Lock, state{lease: lease})
	r.What, r.Fence, r.At = "leased", lease.Fence(), monotonic()
	r.Expires = r.At + time.Until(lease.Deadline())
	w.say(r)
	<-lease.Context().Done()
	r.What, r.At = "ended", monotonic()
	w.say(r.fail(context.Cause(lease.Context())))
}

// turn does work in a critical section.
func (w *worker) turn(r report, ask leasing, work func(fence int64)) (report, bool) {
	lease, ok := w.get(r, ask)
	if !ok {
		return r, false
	}
	r.What, r.Fence, r.At = "turn", lease.Fence(), monotonic()
	if work != nil {
		work(r.Fence)
	}
	r.Left = monotonic()
	return r.fail(lease.Release(context.Background())), true
}

// turns reports its turns only after the last, so as not to fall back in the race.
func (w *worker) turns(r report, ask leasing, n int, dir string) {
	journal, err := os.OpenFile(filepath.Join(dir, "journal"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer func() { _ = journal.Close() }()
	var done []report
	for range n {
		r.Began = monotonic()
		turn, ok := w.turn(r, ask, func(fence int64) {
			increment(filepath.Join(dir, "counter"))
			_, _ = fmt.Fprintln(journal, fence)
		})
		if !ok {
			return
		}
		done = append(done, turn)
	}
	for _, turn := range done {
		w.say(turn)
	}
	w.say(report{What: "turned", Lock: r.Lock})
}

// increment is as wrong as it can be without a lock: it reads, and writes later.
func increment(counter string) {
	old, _ := os.ReadFile(counter) // missing at first
	n, _ := strconv.Atoi(strings.TrimSpace(string(old)))
	if err := os.WriteFile(counter, []byte(strconv.Itoa(n+1)), 0o600); err != nil {
		panic(err)
	}
}

// contender is the outside of a process of its own.
type contender struct {
	*redistest.Process
	a     *arena
	early []report // came before they were asked for
}

// contenders starts n processes that use the server, contendersAt some that use
// what stands before it.
func (a *arena) contenders(n int) []*contender {
	a.Helper()
	return a.contendersAt(a.server, n)
}

func (a *arena) contendersAt(server interface {
	Network() string
	Addr() string
}, n int) []*contender {
	a.Helper()
	cs := make([]*contender, n)
	for i := range cs {
		cs[i] = &contender{a: a, Process: redistest.Child(a, "contender",
			"CONTENDER_NETWORK="+server.Network(),
			"CONTENDER_ADDR="+server.Addr(),
			"CONTENDER_PREFIX="+a.server.Prefix(),
			"CONTENDER_TTL="+a.ttl.String(),
		)}
	}
	for _, c := range cs {
		require.Empty(a, c.expect("ready", "").Err)
	}
	return cs
}

func (c *contender) tell(o order) {
	c.a.Helper()
	require.NoError(c.a, json.NewEncoder(c.Stdin()).Encode(o))
}

// expect returns the next report of that kind.
func (c *contender) expect(what, lock string) report {
	c.a.Helper()
	asked := func(r report) bool { return r.What == what && r.Lock == lock }
	if i := slices.IndexFunc(c.early, asked); i >= 0 {
		r := c.early[i]
		c.early = slices.Delete(c.early, i, i+1)
		return r
	}
	// Who waits for a lock gives up by itself after its patience, and says so. Many
	// turns on a busy machine take longer; this is for a process that hangs otherwise.
	for end := time.After(4 * patience); ; {
		select {
		case line, ok := <-c.Lines():
			if !ok {
				c.a.Fatalf("process %d ended before it reported %s %s", c.Pid(), what, lock)
			}
			var r report
			require.NoError(c.a, json.Unmarshal([]byte(line), &r), line)
			if asked(r) {
				return r
			}
			if r.What == "refused" && r.Lock == lock {
				c.a.Fatalf("process %d: %s; %s", c.Pid(), r.Err, c.a.situation(lock))
			}
			c.early = append(c.early, r)
		case <-end:
			c.a.Fatalf("process %d never reported %s; %s", c.Pid(), what, c.a.situation(lock))
		}
	}
}

// lease has the process take the lock, which must be free.
func (c *contender) lease(lock string) report {
	c.a.Helper()
	c.tell(order{Do: "lease", Lock: lock})
	return c.expect("leased", lock)
}

// release has the process give the lock up, which it must still hold.
func (c *contender) release(lock string) report {
	c.a.Helper()
	c.tell(order{Do: "release", Lock: lock})
	r := c.expect("released", lock)
	require.Empty(c.a, r.Err)
	return r
}
