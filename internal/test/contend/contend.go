// Package contend has processes that contend for one lock, and a referee that hears from them, for
// stores whose servers are killed and paused.
package contend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/crew"
	"github.com/holdfast-go/holdfast/internal/test/referee"
)

// TTL is that of the leases of contenders. Patience bounds the wait for what should happen soon: an
// election takes some seconds, and so does a lease to end. Late is how much longer than its TTL a
// lease may last, and a machine may be late.
const (
	TTL      = 3 * time.Second
	Patience = time.Minute
	Late     = 5 * time.Second
)

// Kinds are those of the locks that contenders contend for.
var Kinds = []string{"mutex", "rwmutex", "semaphore"}

const role = "contender for a lock"

// opened opens the store.
var opened func(addrs []string) (*holdfast.Client, func())

// Register is called by an init of the test binary, whose contenders open the store at those
// addresses, each in a process of its own. end ends what is left when the client is closed.
func Register(open func(addrs []string) (locks *holdfast.Client, end func())) {
	opened = open
	crew.Register(role, func() {
		locks, _ := open(strings.Split(os.Getenv("ADDRS"), ","))
		run(locks)
	})
}

// said is a report of a contender.
type said struct {
	What  string // in, out, lost, or why it has come to nothing
	Fence int64
	At    time.Duration // of [crew.Clock]
}

// run does what it is told, and reports what became of it:
//
//	lock     waits for the lock, reports "in" again and again
//	         while it believes that it holds it, and "lost" if it does no more
//	unlock   gives the lock up
//	hammer   does both for ever, and stays for a moment
func run(locks *holdfast.Client) {
	c := &contending{acquire: acquirer(locks, os.Getenv("KIND"))}
	for order := range crew.Orders[string]() {
		switch order {
		case "lock":
			if c.lock() == nil {
				go c.believe()
			}
		case "unlock":
			c.unlock()
		case "hammer":
			for c.lock() == nil {
				c.say()
				time.Sleep(5 * time.Millisecond) // so that others get some of the machine
				c.say()
				c.unlock()
			}
		}
	}
}

// acquirer returns how to hold a lock of that kind alone.
func acquirer(locks *holdfast.Client, kind string) func(context.Context) (*holdfast.Lease, error) {
	var opts []holdfast.LockOption
	if ttl, err := time.ParseDuration(os.Getenv("LEASE")); err == nil {
		opts = append(opts, holdfast.WithTTL(ttl))
	}
	switch kind {
	case "rwmutex":
		return locks.RWMutex("contended", opts...).Lease
	case "semaphore":
		s := locks.Semaphore("contended", 3, opts...)
		return func(ctx context.Context) (*holdfast.Lease, error) { return s.Lease(ctx, 2) } // no two fit
	}
	return locks.Mutex("contended", opts...).Lease
}

type contending struct {
	acquire func(context.Context) (*holdfast.Lease, error)
	lease   *holdfast.Lease
}

func (c *contending) lock() (err error) {
	c.lease, err = c.acquire(context.Background())
	if err != nil {
		crew.Report(said{What: fmt.Sprint("error ", err)})
	}
	return err
}

func (c *contending) unlock() {
	if err := c.lease.Release(context.Background()); err != nil && !errors.Is(err, holdfast.ErrLost) {
		crew.Report(said{What: fmt.Sprint("trouble ", err)})
	}
	crew.Report(said{"out", c.lease.Fence(), crew.Clock()})
}

// say reports that the lock is held at a time that was before we made sure of it.
func (c *contending) say() bool {
	now := crew.Clock()
	if c.lease.Err() != nil {
		return false
	}
	crew.Report(said{"in", c.lease.Fence(), now})
	return true
}

func (c *contending) believe() {
	for l := c.lease; c.say(); time.Sleep(5 * time.Millisecond) {
		if l != c.lease {
			return
		}
	}
	if errors.Is(c.lease.Err(), holdfast.ErrLost) {
		crew.Report(said{"lost", c.lease.Fence(), crew.Clock()})
	}
}

// Referee hears from contenders, and decides whether two ever believed to hold the lock at the
// same time, or a later one had a smaller fence.
type Referee struct {
	testing.TB
	Lease  time.Duration // TTL of the contenders that it starts from now on, if not [TTL]
	mu     sync.Mutex
	spells map[spell]*referee.Hold
}

// spell is a time for which a process believed to hold the lock.
type spell struct {
	pid   int
	fence int64
}

// Contender is a process that contends for the lock.
type Contender struct {
	*crew.Process
	r      *Referee
	events chan string // "in", once for each fence, "out", "lost"
}

// NewReferee returns one that fails the test.
func NewReferee(tb testing.TB) *Referee { return &Referee{TB: tb, spells: map[spell]*referee.Hold{}} }

// Contender starts a process that contends for a lock of that kind.
func (r *Referee) Contender(kind string, addrs ...string) *Contender {
	r.Helper()
	env := []string{"KIND=" + kind, "ADDRS=" + strings.Join(addrs, ",")}
	if r.Lease != 0 {
		env = append(env, "LEASE="+r.Lease.String())
	}
	p := crew.Start(r, role, env...)
	c := &Contender{p, r, make(chan string, 100_000)}
	go c.hear()
	return c
}

func (c *Contender) hear() {
	defer close(c.events)
	for {
		e, err := crew.Listen[said](c.Process, nil)
		if err != nil {
			return
		}
		if c.r.note(c.Pid(), e) {
			select {
			case c.events <- e.What:
			default: // Nobody listens to one that hammers, for long.
			}
		}
	}
}

// note reports whether that is news.
func (r *Referee) note(who int, e said) bool {
	if e.What != "in" {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := spell{who, e.Fence}
	if s := r.spells[key]; s != nil {
		s.From, s.To = min(s.From, e.At), max(s.To, e.At)
		return false
	}
	r.spells[key] = &referee.Hold{Weight: 1, Fence: e.Fence, From: e.At, To: e.At}
	return true
}

// Decide fails the test if a rule was broken. It returns how often the lock was held.
func (r *Referee) Decide() int {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*referee.Hold
	for key, h := range r.spells {
		h.Asked, h.By = h.From, fmt.Sprintf("process %d with fence %d, from %v to %v", key.pid, key.fence, h.From, h.To)
		all = append(all, h)
	}
	for _, breach := range (&referee.Referee{Limit: 1}).Judge(all) {
		r.Errorf("FOUL: %v", breach)
	}
	return len(all)
}

// Count is how often the lock was held.
func (r *Referee) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.spells)
}

// Advances waits until the lock has been held so many times more.
func (r *Referee) Advances(times int) {
	r.Helper()
	want := r.Count() + times
	require.Eventually(r, func() bool { return r.Count() >= want }, Patience, 10*time.Millisecond,
		"the lock is not handed on any more")
}

// Hears waits for an event.
func (c *Contender) Hears(want string) {
	c.r.Helper()
	timeout := time.After(Patience)
	for {
		select {
		case what, ok := <-c.events:
			require.True(c.r, ok, "the process has ended instead of %q", want)
			if what == want {
				return
			}
		case <-timeout:
			c.r.Fatalf("never heard %q of %d", want, c.Pid())
		}
	}
}

// Inspector returns a look at the lock of that kind that contenders contend for.
func Inspector(tb testing.TB, kind string, addrs ...string) func() holdfast.Info {
	locks, end := opened(addrs)
	tb.Cleanup(func() {
		require.NoError(tb, locks.Close())
		end()
	})
	return func() holdfast.Info {
		var info holdfast.Info
		var err error
		switch kind {
		case "rwmutex":
			info, err = locks.RWMutex("contended").Inspect(tb.Context())
		case "semaphore":
			info, err = locks.Semaphore("contended", 3).Inspect(tb.Context())
		default:
			info, err = locks.Mutex("contended").Inspect(tb.Context())
		}
		require.NoError(tb, err)
		return info
	}
}
