package zkdriver_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	zkdriver "github.com/holdfast-go/holdfast/driver/zookeeper"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/internal/test/wire"
)

// look is a connection to the server that all tests share.
func look(t *testing.T) *zk.Conn {
	conn, _, err := zk.Connect([]string{shared.Use(t).Addr}, trusted, zk.WithLogInfo(false))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return conn
}

func TestUserWithoutRightsIsDenied(t *testing.T) {
	t.Parallel()
	conn, addr := look(t), shared.Use(t).Addr
	require.NoError(t, conn.AddAuth("digest", []byte("shop:secret")))
	_, err := conn.Create("/"+t.Name(), nil, 0, zk.DigestACL(zk.PermAll, "shop", "secret"))
	require.NoError(t, err)
	for _, stranger := range [][]zkdriver.Option{nil, {zkdriver.WithAuth("digest", []byte("shop:guessed"))}} {
		c := holdfast.Open(zkdriver.New([]string{addr}, append(stranger, zkdriver.WithPrefix(t.Name()))...))
		defer func() { assert.NoError(t, c.Close()) }()
		_, err = c.Mutex("x").Lease(t.Context()) // It does not wait: that would not help.
		require.ErrorIs(t, err, driver.ErrDenied)
		require.ErrorIs(t, err, driver.ErrNotExecuted)
	}
	left, _, err := conn.Children("/" + t.Name())
	require.NoError(t, err)
	require.Empty(t, left)

	c := holdfast.Open(zkdriver.New([]string{addr}, zkdriver.WithPrefix(t.Name()), zkdriver.WithAuth("digest", []byte("shop:secret"))))
	defer func() { assert.NoError(t, c.Close()) }()
	lease, err := c.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
}

func TestPathThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	addr := shared.Use(t).Addr
	for _, prefix := range []string{"a//b", "a/../b", "a/.", "a\x00b"} {
		c := holdfast.Open(zkdriver.New([]string{addr}, zkdriver.WithPrefix(prefix)))
		_, err := c.Mutex("x").Lease(t.Context())
		require.ErrorIs(t, err, driver.ErrNotExecuted, "%q", prefix)
		require.NotErrorIs(t, err, driver.ErrTransient, "%q", prefix)
		require.NoError(t, c.Close())
	}
}

// What another program keeps where locks are is left alone, and told with its path. It keeps nobody from seeing
// other locks, nor a claim of ours from going.
func TestNodeThatIsNoLockIsLeftAlone(t *testing.T) {
	t.Parallel()
	conn := look(t)
	c := holdfast.Open(zkdriver.New([]string{shared.Use(t).Addr}, zkdriver.WithPrefix(t.Name())))
	defer func() { assert.NoError(t, c.Close()) }()
	keep := func(path, text string) string {
		path = "/" + t.Name() + "/lock/" + path
		_, err := conn.Create(path, []byte(text), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		return path
	}
	for _, lock := range []interface {
		TryLease(context.Context) (*holdfast.Lease, error)
	}{c.Mutex("good"), tryOne{c.Semaphore("good", 1)}} {
		lease, err := lock.TryLease(t.Context())
		require.NoError(t, err)
		defer func() { assert.NoError(t, lease.Release(t.Context())) }()
	}
	dir := keep("mutex/x", "")
	stray, number := keep("mutex/x/other", ""), keep("semaphore/x", "abc")

	all, err := c.List(t.Context(), "")
	assert.Len(t, all, 2)
	for path, err := range map[string]error{
		stray + " of a list":  err,
		number + " of a list": err,
		stray:                 c.Mutex("x").ForceUnlock(t.Context()),
		stray + " to wait":    func() error { _, err := c.Mutex("x").Lease(t.Context()); return err }(),
		number:                func() error { _, err := c.Semaphore("x", 3).Lease(t.Context(), 1); return err }(),
		number + " to look":   func() error { _, err := c.Semaphore("x", 3).Inspect(t.Context()); return err }(),
	} {
		path, _, _ = strings.Cut(path, " ")
		assert.ErrorContains(t, err, strconv.Quote(path))
		assert.ErrorIs(t, err, driver.ErrNotExecuted)
		assert.NotErrorIs(t, err, holdfast.ErrUnavailable)
		told, is := errors.AsType[*holdfast.LockError](err)
		assert.True(t, is && told.ErrorType() == "wrong_type", "%v", err)
	}
	require.Eventually(t, func() bool {
		left, _, err := conn.Children(dir)
		return err == nil && len(left) == 1
	}, 10*time.Second, 20*time.Millisecond)
}

// tryOne takes one permit.
type tryOne struct{ *holdfast.Semaphore }

func (s tryOne) TryLease(ctx context.Context) (*holdfast.Lease, error) {
	return s.Semaphore.TryLease(ctx, 1)
}

// lines are those of a log, as many as are wanted.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}

// Why a server cannot be reached is told: to the caller, whose own time is another thing, and to the log. Nothing
// of it is under way then, so Close has nothing to wait for.
func TestWhyNoServerCanBeReachedIsTold(t *testing.T) {
	t.Parallel()
	errDial := errors.New("no way")
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = deaf.Close() })
	go func() {
		for conn, err := deaf.Accept(); err == nil; conn, err = deaf.Accept() {
			_ = conn.Close()
		}
	}()
	for name, c := range map[string]struct {
		addr string
		opts []zkdriver.Option
		why  error
		text string
	}{
		"refused": {addr: redistest.FreeAddr(t), why: syscall.ECONNREFUSED, text: "connection refused"},
		"its dialer": {addr: "localhost:1", why: errDial, text: "no way", opts: []zkdriver.Option{
			zkdriver.WithDialer(func(string, string, time.Duration) (net.Conn, error) { return nil, errDial }),
		}},
		"no handshake": {addr: deaf.Addr().String(), text: "the handshake with " + deaf.Addr().String()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := make(lines, 1)
			locks := holdfast.Open(zkdriver.New([]string{c.addr}, c.opts...), holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
			_, err := locks.Mutex("x").TryLease(t.Context())
			require.ErrorIs(t, err, holdfast.ErrUnavailable)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			ctx, cancel := context.WithCancel(t.Context())
			said := ""
			go func() {
				said = <-log
				cancel()
			}()
			_, late := locks.Mutex("x").Lease(ctx)
			require.ErrorIs(t, late, holdfast.ErrUnavailable)
			require.ErrorIs(t, late, context.Canceled)
			for _, err := range []error{err, late} {
				require.ErrorContains(t, err, c.text)
				if c.why != nil {
					require.ErrorIs(t, err, c.why)
				}
			}
			require.Contains(t, said, "store=\"ZooKeeper at "+c.addr)
			require.Contains(t, said, c.text)
			require.NoError(t, locks.Close())
		})
	}
}

// A session ends while its client is cut off. The holder is told before the next one has the lock, and a
// client that is there again has a new session.
func TestSessionThatHasExpiredIsReplaced(t *testing.T) {
	t.Parallel()
	addr := shared.Use(t).Addr
	w := wire.To(t, "tcp", addr)
	client := func(addr string) *holdfast.Client {
		c := holdfast.Open(zkdriver.New([]string{addr}, zkdriver.WithPrefix(t.Name())), holdfast.WithTTL(3*time.Second))
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c
	}
	far, near := client(w.Addr()), client(addr)
	held, err := far.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	w.Silence(true)
	next, err := near.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, held.Err(), holdfast.ErrLost, "FOUL: two hold the lock")
	require.Greater(t, next.Fence(), held.Fence(), "FOUL: a fence goes back")
	require.ErrorIs(t, held.Release(t.Context()), holdfast.ErrLost)
	w.Silence(false)
	require.NoError(t, next.Release(t.Context()))
	again, err := far.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	require.Greater(t, again.Fence(), next.Fence(), "FOUL: a fence goes back")
	claims, _, err := look(t).Children("/" + t.Name() + "/lock/mutex/x")
	require.NoError(t, err)
	require.Len(t, claims, 1)
	require.NoError(t, again.Release(t.Context()))
}

// A session can be ended by whoever knows its password. Its holders hear of that, and not that somebody has used
// force on one lock.
func TestSessionThatWasEndedAtTheServerIsNamed(t *testing.T) {
	t.Parallel()
	addr := shared.Use(t).Addr
	shaken := make(chan []byte, 1)
	dial := func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := net.DialTimeout(network, address, timeout)
		return &overheard{Conn: conn, shaken: shaken}, err
	}
	c := holdfast.Open(zkdriver.New([]string{addr}, zkdriver.WithPrefix(t.Name()), zkdriver.WithDialer(dial)), holdfast.WithTTL(6*time.Second))
	defer func() { _ = c.Close() }()
	lease, err := c.Mutex("x").Lease(t.Context())
	require.NoError(t, err)

	// An answer is its length, a version, the timeout, the number of the session and its password. A request has
	// the last change that the client has seen behind the version.
	hello, join := <-shaken, make([]byte, 16, 60)
	join[3] = 44
	join = append(join, hello[8:40]...)
	require.Eventually(t, func() bool {
		if lease.Context().Err() != nil {
			return true
		}
		other, err := net.Dial("tcp", addr)
		if err != nil {
			return false
		}
		defer other.Close()
		_, _ = other.Write(join)
		if _, err = io.ReadFull(other, make([]byte, len(hello))); err == nil { // else the client was faster
			_, _ = other.Write([]byte{0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf5}) // -11 ends the session
		}
		return false
	}, time.Minute, 100*time.Millisecond)
	require.ErrorIs(t, lease.Err(), holdfast.ErrLost)
	require.ErrorContains(t, lease.Err(), "the session that kept it has ended")
}

// overheard is a connection that tells what the server answers to the handshake.
type overheard struct {
	net.Conn
	seen   []byte
	told   bool
	shaken chan<- []byte
}

func (o *overheard) Read(p []byte) (int, error) {
	n, err := o.Conn.Read(p)
	if o.seen = append(o.seen, p[:n]...); len(o.seen) >= 40 && !o.told {
		o.told = true
		select {
		case o.shaken <- o.seen[:40]:
		default:
		}
	}
	return n, err
}

// Whoever takes locks or gives up leaves no claim, although the session of its client goes on; and Close gives
// back what is held.
func TestNobodyLeavesAClaim(t *testing.T) {
	t.Parallel()
	conn, addr := look(t), shared.Use(t).Addr
	gone := func(dir string) func() bool {
		return func() bool {
			claims, _, err := conn.Children("/" + t.Name() + "/lock/" + dir)
			return errors.Is(err, zk.ErrNoNode) || err == nil && len(claims) == 0
		}
	}
	var clients []*holdfast.Client
	var callers sync.WaitGroup
	for range 4 {
		c := holdfast.Open(zkdriver.New([]string{addr}, zkdriver.WithPrefix(t.Name())), holdfast.WithTTL(30*time.Second))
		clients = append(clients, c)
		for range 4 {
			callers.Go(func() {
				for range 6 {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(200*time.Millisecond))
					if lease, err := c.RWMutex("x").Lease(ctx); err == nil {
						_ = lease.Release(t.Context())
					}
					if lease, err := c.Semaphore("s", 3).Lease(ctx, 2); err == nil {
						_ = lease.Release(t.Context())
					}
					cancel()
				}
				_, _ = c.Mutex("held").TryLease(t.Context())
			})
		}
	}
	callers.Wait()
	require.False(t, gone("mutex/held")())
	for _, dir := range []string{"rwmutex/x", "semaphore/s"} { // A claim that is forgotten lasts for 30 s.
		require.Eventually(t, gone(dir), 10*time.Second, 100*time.Millisecond, dir)
	}
	for _, c := range clients {
		require.NoError(t, c.Close())
	}
	require.Eventually(t, gone("mutex/held"), 10*time.Second, 100*time.Millisecond)
}
