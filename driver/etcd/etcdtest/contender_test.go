package etcdtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// ttl is that of the leases in these tests, and patience bounds the wait for what should
// happen soon: an election takes some seconds, and so does a lease to end.
const (
	ttl      = 3 * time.Second
	patience = time.Minute
)

func init() { redistest.RegisterChild("etcd contender", runContender) }

// runContender does what it reads, one command a line, and prints what became of it:
//
//	lock     waits for the lock, prints "in" with the fence and the time, again and again
//	         while it believes that it holds it, and "lost" if it does no more
//	unlock   gives the lock up
//	hammer   does both for ever, and stays for a moment
func runContender() {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: strings.Split(os.Getenv("ENDPOINTS"), ","), Logger: zap.NewNop(), DialTimeout: 5 * time.Second,
		DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	locks := holdfast.Open(etcddriver.New(client), holdfast.WithTTL(ttl))
	c := &contending{acquire: acquirer(locks, os.Getenv("KIND"))}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "lock":
			if c.lock() == nil {
				go c.believe()
			}
		case "unlock":
			c.unlock()
		case "hammer":
			for c.lock() == nil {
				c.say()
				time.Sleep(time.Millisecond)
				c.say()
				c.unlock()
			}
		}
	}
	os.Exit(0)
}

// acquirer returns how to hold a lock of that kind alone.
func acquirer(locks *holdfast.Client, kind string) func(context.Context) (*holdfast.Lease, error) {
	switch kind {
	case "rwmutex":
		return locks.RWMutex("contended").Lease
	case "semaphore":
		s := locks.Semaphore("contended", 3)
		return func(ctx context.Context) (*holdfast.Lease, error) { return s.Lease(ctx, 2) } // no two fit
	}
	return locks.Mutex("contended").Lease
}

type contending struct {
	acquire func(context.Context) (*holdfast.Lease, error)
	lease   *holdfast.Lease
}

func (c *contending) lock() (err error) {
	c.lease, err = c.acquire(context.Background())
	if err != nil {
		fmt.Println("error", err)
	}
	return err
}

func (c *contending) unlock() {
	if err := c.lease.Release(context.Background()); err != nil && !errors.Is(err, holdfast.ErrLost) {
		fmt.Println("trouble", err)
	}
	fmt.Println("out", c.lease.Fence(), time.Now().UnixNano())
}

// say prints that the lock is held at a time that was before we made sure of it.
func (c *contending) say() bool {
	now := time.Now().UnixNano()
	if c.lease.Err() != nil {
		return false
	}
	fmt.Println("in", c.lease.Fence(), now)
	return true
}

func (c *contending) believe() {
	for l := c.lease; c.say(); time.Sleep(5 * time.Millisecond) {
		if l != c.lease {
			return
		}
	}
	if errors.Is(c.lease.Err(), holdfast.ErrLost) {
		fmt.Println("lost", c.lease.Fence(), time.Now().UnixNano())
	}
}

// referee hears from contenders, and decides whether two ever believed to hold the lock at the
// same time.
type referee struct {
	testing.TB
	mu     sync.Mutex
	spells map[int64]*spell // by fence
}

// spell is the time for which somebody believed to hold the lock.
type spell struct {
	who         int
	fence       int64
	first, last int64
}

// contender is a process that contends for the lock.
type contender struct {
	*redistest.Process
	r      *referee
	events chan string // "in", once for each fence, "out", "lost"
}

func newReferee(tb testing.TB) *referee { return &referee{TB: tb, spells: map[int64]*spell{}} }

func (r *referee) contender(kind string, endpoints ...string) *contender {
	r.Helper()
	p := redistest.Child(r, "etcd contender", "KIND="+kind, "ENDPOINTS="+strings.Join(endpoints, ","))
	c := &contender{p, r, make(chan string, 100_000)}
	go c.hear()
	return c
}

func (c *contender) hear() {
	defer close(c.events)
	for line := range c.Lines() {
		var what string
		var fence, at int64
		if n, _ := fmt.Sscan(line, &what, &fence, &at); n != 3 {
			c.events <- line
			continue
		}
		if c.r.note(c.Pid(), what, fence, at) {
			c.events <- what
		}
	}
}

// note reports whether that is news.
func (r *referee) note(who int, what string, fence, at int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.spells[fence]
	switch {
	case what != "in":
		return true
	case s == nil:
		r.spells[fence] = &spell{who, fence, at, at}
		return true
	case s.who != who:
		r.Errorf("fence %d is that of %d and of %d", fence, s.who, who)
	}
	s.first, s.last = min(s.first, at), max(s.last, at)
	return false
}

// decide fails the test if two believed to hold the lock at the same time, or a later one had a
// smaller fence. It returns how often the lock was held.
func (r *referee) decide() int {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*spell
	for _, s := range r.spells {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *spell) int { return int(a.fence - b.fence) })
	for i, s := range all {
		if i > 0 && all[i-1].last > s.first {
			r.Errorf("%d held the lock with fence %d until %v after %d got it with fence %d",
				all[i-1].who, all[i-1].fence, time.Duration(all[i-1].last-s.first), s.who, s.fence)
		}
	}
	return len(all)
}

func (r *referee) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.spells)
}

// advances waits until the lock has been held so many times more.
func (r *referee) advances(times int) {
	r.Helper()
	want := r.count() + times
	require.Eventually(r, func() bool { return r.count() >= want }, patience, 10*time.Millisecond,
		"the lock is not handed on any more")
}

func (c *contender) tell(what string) {
	c.r.Helper()
	_, err := fmt.Fprintln(c.Stdin(), what)
	require.NoError(c.r, err)
}

// hears waits for an event.
func (c *contender) hears(want string) {
	c.r.Helper()
	timeout := time.After(patience)
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

func (c *contender) pause()  { require.NoError(c.r, c.Signal(syscall.SIGSTOP)) }
func (c *contender) resume() { require.NoError(c.r, c.Signal(syscall.SIGCONT)) }
