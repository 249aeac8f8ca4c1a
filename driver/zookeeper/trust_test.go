package zkdriver_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	zkdriver "github.com/holdfast-go/holdfast/driver/zookeeper"
	"github.com/holdfast-go/holdfast/internal/test/zktest"
)

// The numbers of requests.
const (
	opCreate      = 1
	opDelete      = 2
	opExists      = 3
	opGetData     = 4
	opSync        = 9
	opGetChildren = 12
	opMulti       = 14
)

// link is the way of a driver to its server.
type link struct {
	made atomic.Int32 // connections
	deaf atomic.Bool  // writes of a renewal do not arrive

	mu    sync.Mutex
	fails map[uint32]fault       // what becomes of the next request of that number
	holds map[uint32]chan func() // who gets the next request of that number, and lets it go
	seen  map[uint32]chan none   // closed when a request of that number goes
}

type none = struct{}

// fault is how a request fails.
type fault int

const (
	answerLost fault = iota + 1 // with the connection
	cutBefore                   // it does not arrive, the connection has ended
	cutWithin                   // the connection ends while it is written
)

func (w *link) fail(op uint32, how fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fails = map[uint32]fault{op: how}
}

// failed reports whether a request has failed since fail.
func (w *link) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.fails) == 0
}

// hold keeps the next request of that number from the server. It sends what lets that request go.
func (w *link) hold(op uint32) <-chan func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := make(chan func(), 1)
	w.holds = map[uint32]chan func(){op: c}
	return c
}

// see returns a channel that is closed when a request of that number goes to the server.
func (w *link) see(op uint32) <-chan none {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := make(chan none)
	w.seen = map[uint32]chan none{op: c}
	return c
}

// held reports whether a request does not go to the server until free is called.
func (w *link) held(op uint32, free func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.holds[op]; c != nil {
		delete(w.holds, op)
		c <- free
		return true
	}
	if c := w.seen[op]; c != nil {
		delete(w.seen, op)
		close(c)
	}
	return false
}

// take returns what is to become of a request.
func (w *link) take(op uint32) fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	how := w.fails[op]
	delete(w.fails, op)
	return how
}

func (w *link) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	w.made.Add(1)
	return &wired{Conn: conn, w: w}, nil
}

type wired struct {
	net.Conn
	w    *link
	mu   sync.Mutex
	lost bool // all that the server answers from now on
}

func (c *wired) Write(p []byte) (int, error) {
	op := uint32(0)
	if len(p) >= 12 {
		op = binary.BigEndian.Uint32(p[8:])
	}
	if op == opMulti && c.w.deaf.Load() {
		return len(p), nil
	}
	if later := bytes.Clone(p); c.w.held(op, func() { _, _ = c.Conn.Write(later) }) {
		return len(p), nil
	}
	switch c.w.take(op) {
	case answerLost:
		c.mu.Lock()
		c.lost = true
		c.mu.Unlock()
	case cutBefore:
		_ = c.Close()
		return len(p), nil
	case cutWithin:
		_ = c.Close()
	}
	return c.Conn.Write(p)
}

func (c *wired) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost {
		_ = c.Conn.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

// open returns a driver that is alone with its locks, but for others of the test.
func open(t *testing.T, w *link) *zkdriver.Driver {
	t.Helper()
	d := zkdriver.New([]string{shared.Use(t).Addr}, zkdriver.WithDialer(w.dial), zkdriver.WithPrefix(t.Name()))
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

const trusted = 2 * time.Second

func request(token string) *driver.Request {
	return &driver.Request{Kind: driver.Mutex, Name: "trust", Token: token, Ask: 1, TTL: trusted}
}

func lease(token string) driver.Lease {
	return driver.Lease{Kind: driver.Mutex, Name: "trust", Token: token, TTL: trusted}
}

// acquire asks as a client does, which repeats what was not answered.
func acquire(t *testing.T, d driver.Driver, r *driver.Request) (g driver.Grant) {
	t.Helper()
	var err error
	for began := time.Now(); time.Since(began) < time.Minute; r.Ask++ {
		if g, err = d.Acquire(t.Context(), r); !errors.Is(err, driver.ErrTransient) {
			break
		}
	}
	require.NoError(t, err)
	return g
}

// A leader counts anew only with a handshake. So no renewal counts that came without one, unless it
// was a moment before: the session lasts for a second longer than the TTL.
func TestRenewalTakesAHandshake(t *testing.T) {
	t.Parallel()
	w := &link{}
	d := open(t, w)
	g := acquire(t, d, request("a"))
	require.Equal(t, driver.Granted, g.Status)
	for range 3 {
		before := w.made.Load()
		time.Sleep(1100 * time.Millisecond)
		require.NoError(t, d.Renew(t.Context(), []driver.Lease{lease("a")})[0])
		require.Greater(t, w.made.Load(), before, "the leader does not know of the renewal")
	}
}

// The member that takes the handshake may follow a leader that was replaced. A write shows.
func TestRenewalTakesAWriteAfterTheHandshake(t *testing.T) {
	t.Parallel()
	w := &link{}
	d := open(t, w)
	acquire(t, d, request("a"))
	time.Sleep(1100 * time.Millisecond)
	w.deaf.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	require.ErrorIs(t, d.Renew(ctx, []driver.Lease{lease("a")})[0], driver.ErrTransient)
}

// If the answer to the request that makes the claim is lost, the claim is found by its token.
func TestLostAnswerMakesNoSecondClaim(t *testing.T) {
	t.Parallel()
	w := &link{}
	d, other := open(t, w), open(t, &link{})
	acquire(t, d, request("a"))
	require.NoError(t, d.Release(t.Context(), lease("a")))
	for range 5 {
		w.fail(opCreate, answerLost)
		g := acquire(t, d, request("b"))
		require.Equal(t, driver.Granted, g.Status)
		require.True(t, w.failed(), "no answer was lost")
		info, err := other.Inspect(t.Context(), driver.Mutex, "trust")
		require.NoError(t, err)
		require.Len(t, info.Holders, 1)
		require.Empty(t, info.Queue)
		require.NoError(t, d.Release(t.Context(), lease("b")))
	}
}

// Nobody knows whether force was carried out if its answer was lost. A repeat would hit the next holder.
func TestForceWhoseAnswerIsLostIsNotRepeated(t *testing.T) {
	t.Parallel()
	const long = 30 * time.Second
	w := &link{}
	d, other := open(t, w), open(t, &link{})
	acquire(t, d, request("before"))
	require.NoError(t, d.Release(t.Context(), lease("before")))
	for _, token := range []string{"first", "next"} {
		r := request(token)
		r.TTL, r.Wait = long, true
		acquire(t, other, r)
	}
	w.fail(opMulti, answerLost)
	err := d.ForceRelease(t.Context(), driver.Mutex, "trust")
	require.True(t, w.failed(), "no answer was lost")
	require.ErrorIs(t, err, driver.ErrTransient)
	require.NotErrorIs(t, err, driver.ErrNotExecuted)
	info, err := other.Inspect(t.Context(), driver.Mutex, "trust")
	require.NoError(t, err)
	require.Len(t, info.Holders, 1, "the next one has it, and keeps it")
	require.Empty(t, info.Queue)
	l := lease("next")
	l.TTL = long
	require.NoError(t, other.Release(t.Context(), l))
}

// The driver itself ends its connection, once a second, so that a session goes on. A request that is
// under way then is made again, and its caller hears nothing of it.
func TestLostConnectionFailsNoCall(t *testing.T) {
	t.Parallel()
	w := &link{}
	d := open(t, w)
	for _, call := range []struct {
		name string
		ops  []uint32 // that it consists of, among others
		do   func(token string) error
	}{
		{"acquire", []uint32{opCreate, opGetChildren, opGetData, opExists}, func(token string) error {
			_, err := d.Acquire(t.Context(), request(token))
			return err
		}},
		{"renew", []uint32{opMulti}, func(token string) error { return d.Renew(t.Context(), []driver.Lease{lease(token)})[0] }},
		{"inspect", []uint32{opSync, opGetChildren, opGetData}, func(string) error {
			_, err := d.Inspect(t.Context(), driver.Mutex, "trust")
			return err
		}},
		{"list", []uint32{opSync, opGetChildren}, func(string) error {
			return d.List(t.Context(), "", func(driver.Kind, string) error { return nil })
		}},
		{"notice", []uint32{opSync, opGetChildren}, func(token string) error {
			_, err := d.Notice(t.Context(), lease(token))
			return err
		}},
		{"release", []uint32{opDelete}, func(token string) error { return d.Release(t.Context(), lease(token)) }},
		{"unsettled", []uint32{opCreate, opDelete}, func(token string) error {
			l := lease(token)
			l.Unsettled = true
			return d.Release(t.Context(), l)
		}},
	} {
		for _, op := range call.ops {
			for _, how := range []fault{answerLost, cutBefore, cutWithin} {
				scene := fmt.Sprintf("%s,%d,%d", call.name, op, how)
				if call.name != "acquire" {
					acquire(t, d, request(scene))
				}
				w.fail(op, how)
				require.NoError(t, call.do(scene), scene)
				require.True(t, w.failed(), scene)
				_ = d.Release(t.Context(), lease(scene))
				acquire(t, d, request(scene+",next"))
				require.NoError(t, d.Release(t.Context(), lease(scene+",next")))
			}
		}
	}
}

// The answer to a second ask may come while the lease is released, and after the tombstone. That ask must not
// take the claim away: the release would find nothing, and its caller would hear that the lease was lost.
func TestReleaseFindsTheLeaseWhileAnAskIsUnderWay(t *testing.T) {
	t.Parallel()
	w := &link{}
	d := open(t, w)
	const long, short = 30 * time.Second, 10 * time.Second // The second ask needs no handshake.
	request := func(token string, ask uint64, ttl time.Duration) *driver.Request {
		r := request(token)
		r.Ask, r.TTL, r.Wait = ask, ttl, true
		return r
	}
	lease := lease("a")
	lease.TTL, lease.Unsettled = long, true
	acquire(t, d, request("a", 1, long)) // so that all nodes are there
	require.NoError(t, d.Release(t.Context(), lease))

	lease.Token = "b"
	do := func(call func() error) <-chan error {
		done := make(chan error, 1)
		go func() { done <- call() }()
		return done
	}
	ask := func(n uint64, ttl time.Duration) <-chan error {
		return do(func() error {
			_, err := d.Acquire(t.Context(), request("b", n, ttl))
			return err
		})
	}
	held := func(request <-chan func(), call <-chan error) (free func()) {
		select {
		case free = <-request:
		case err := <-call:
			require.FailNow(t, "the call has ended", "%v", err)
		}
		return free
	}
	looks := w.hold(opGetChildren)
	first := ask(1, long)
	freeFirst := held(looks, first) // It has made the claim.
	asks := w.hold(opExists)
	second := ask(2, short)
	freeSecond := held(asks, second) // It has found the claim, and asks whether the token was released.
	freeFirst()
	require.NoError(t, <-first)
	deletes := w.hold(opDelete)
	released := do(func() error { return d.Release(t.Context(), lease) })
	freeRelease := held(deletes, released) // The tombstone is there.
	another := w.see(opDelete)
	freeSecond()
	require.ErrorIs(t, <-second, driver.ErrNotHeld)
	select {
	case <-another: // It was faster.
	case <-time.After(time.Second):
	}
	freeRelease()
	require.NoError(t, <-released, "FOUL: a lease that was held throughout is told to be lost")
	g := acquire(t, d, request("c", 1, long))
	require.Equal(t, driver.Granted, g.Status, "the claim was left")
}

// Two come to a semaphore that nobody uses, with one limit, which is not the one that it had.
func TestLimitIsThatOfAllWhoComeAtOnce(t *testing.T) {
	t.Parallel()
	w := &link{}
	d, other := open(t, w), open(t, &link{})
	request := func(token string, limit int64) *driver.Request {
		r := request(token)
		r.Kind, r.Weight, r.Limit = driver.Semaphore, 1, limit
		return r
	}
	acquire(t, other, request("before", 3))
	acquire(t, d, request("beside", 3)) // so that it has looked at the lock
	for _, gone := range []string{"before", "beside"} {
		l := lease(gone)
		l.Kind = driver.Semaphore
		require.NoError(t, other.Release(t.Context(), l))
	}
	deletes := w.hold(opDelete)
	late := make(chan error, 1)
	go func() {
		_, err := d.Acquire(t.Context(), request("late", 2))
		late <- err
	}()
	free := <-deletes // It has found nobody, and is about to set its limit.
	acquire(t, other, request("first", 2))
	free()
	require.NoError(t, <-late)
}

// A server that lets sessions last less long than a lease is refused, at once.
func TestTTLThatTheServerDoesNotKeepIsRefused(t *testing.T) {
	t.Parallel()
	server := zktest.Start(t, "maxSessionTimeout=10000")
	d := zkdriver.New([]string{server.Addr})
	defer func() { require.NoError(t, d.Close()) }()
	r := request("a")
	r.TTL = 9 * time.Second
	acquire(t, d, r)
	r = request("b")
	r.TTL = 10 * time.Second
	_, err := d.Acquire(t.Context(), r)
	require.ErrorIs(t, err, driver.ErrNotExecuted)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "more than 9s, as the server lets sessions last for 10s at most, see its maxSessionTimeout")
}

// Two claims of one token can be there for a moment, if a member did not know of the first yet when
// the request was repeated. The later one goes.
func TestSecondClaimOfATokenGoes(t *testing.T) {
	t.Parallel()
	d := open(t, &link{})
	r := request("a")
	g := acquire(t, d, r)

	conn, _, err := zk.Connect([]string{shared.Use(t).Addr}, trusted, zk.WithLogInfo(false))
	require.NoError(t, err)
	defer conn.Close()
	dir := "/" + t.Name() + "/lock/mutex/trust"
	claims, _, err := conn.Children(dir)
	require.NoError(t, err)
	require.Len(t, claims, 1)
	title := claims[0][:strings.LastIndexByte(claims[0], ',')+1]
	_, err = conn.Create(dir+"/"+title, []byte("{}"), zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)

	r.Ask++
	again := acquire(t, d, r)
	require.Equal(t, g.Fence, again.Fence)
	left, _, err := conn.Children(dir)
	require.NoError(t, err)
	require.Equal(t, claims, left)
}
