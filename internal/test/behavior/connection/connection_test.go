package connection_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/drivertest"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// connect returns a new connection to the server of a way, as another process would have one.
type connect func(t testing.TB) *redis.Client

// ways are the ways to be connected. Each starts a server, and looks at it when the test ends.
var ways = map[string]func(t *testing.T) (*redistest.Server, connect){
	"RESP2": func(t *testing.T) (*redistest.Server, connect) {
		s := redistest.Real(t)
		return s, with(s, func(o *redis.Options) { o.Protocol = 2 })
	},
	"RESP3": func(t *testing.T) (*redistest.Server, connect) {
		s := redistest.Real(t)
		return s, with(s, func(o *redis.Options) { o.Protocol = 3 })
	},
	"TLS": func(t *testing.T) (*redistest.Server, connect) {
		s, secure := redistest.RealTLS(t)
		return s, with(s, secure)
	},
	"a database that is not the first": func(t *testing.T) (*redistest.Server, connect) {
		s := redistest.Real(t)
		t.Cleanup(func() { assert.Empty(t, s.Keys(t, ""), "keys are in the first database") })
		return s, with(s, func(o *redis.Options) { o.DB = 5 })
	},
	"a user with the rights that the documentation asks for": func(t *testing.T) (*redistest.Server, connect) {
		s := redistest.Real(t)
		user := append([]any{"acl", "setuser", "app", "reset", "on", ">secret"}, documentedRights(t, s.Prefix())...)
		require.NoError(t, s.Client(t).Do(t.Context(), user...).Err())
		t.Cleanup(func() { requireNothingDenied(t, s) })
		return s, with(s, func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
	},
	"news of maintenance": func(t *testing.T) (*redistest.Server, connect) {
		s := redistest.Real(t)
		front := redistest.NewProxy(t, s)
		front.Maintain()
		return s, func(t testing.TB) *redis.Client { return front.Client(t, maintained) }
	},
}

// with connects to a server with an option.
func with(s *redistest.Server, opt func(*redis.Options)) connect {
	return func(t testing.TB) *redis.Client { return s.Client(t, opt) }
}

// maintained fails if the server does not tell of maintenance.
func maintained(o *redis.Options) {
	o.MaintNotificationsConfig = &maintnotifications.Config{
		Mode: maintnotifications.ModeEnabled, EndpointType: maintnotifications.EndpointTypeExternalIP,
	}
}

var rightsInDoc = regexp.MustCompile(`(?m)^//\t~holdfast.*\n(?://\t\+.*\n)+`)

// documentedRights are those in doc.go, for the keys of a test.
func documentedRights(t *testing.T, prefix string) (rights []any) {
	t.Helper()
	doc, err := os.ReadFile("../../../../doc.go")
	require.NoError(t, err)
	text := strings.ReplaceAll(rightsInDoc.FindString(string(doc)), "//\t", "")
	for _, right := range strings.Fields(strings.ReplaceAll(text, "holdfast:", prefix+":")) {
		rights = append(rights, right)
	}
	require.Greater(t, len(rights), 10, "the rights are not where they were in doc.go")
	return rights
}

// requireNothingDenied allows go-redis to introduce itself in vain, and the driver to ask with a PING
// whether a connection is well: any answer tells.
func requireNothingDenied(t *testing.T, s *redistest.Server) {
	t.Helper()
	rdb := redis.NewClient(s.Options())
	defer rdb.Close()
	denied, err := rdb.Do(context.Background(), "acl", "log").Slice()
	require.NoError(t, err)
	for _, entry := range denied {
		text := fmt.Sprint(entry)
		if !strings.Contains(text, "client|") && !strings.Contains(text, "object:ping") {
			t.Errorf("denied: %s", text)
		}
	}
}

func TestPromisesAreKeptHoweverTheClientIsConnected(t *testing.T) {
	for way, start := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s, client := start(t)
			behavior.Run(t, func(t testing.TB, opts ...holdfast.Option) *holdfast.Client {
				return holdfast.Open(redisdriver.New(client(t), redisdriver.WithPrefix(s.Prefix())), opts...)
			})
		})
	}
}

// The contract of drivers takes longer, and TestConformance of redisdriver is the same on RESP3.
func TestContractIsKeptHoweverTheClientIsConnected(t *testing.T) {
	if !redistest.Again() {
		t.Skip("HOLDFAST_SOAK=1 runs the conformance of redisdriver on these connections, too")
	}
	for way, start := range ways {
		t.Run(way, func(t *testing.T) {
			s, client := start(t)
			for _, c := range drivertest.Cases() {
				if c.Form != "" || strings.HasPrefix(c.Name, "List") { // nobody but holdfast ls needs SCAN
					continue
				}
				t.Run(c.Name, func(t *testing.T) {
					t.Parallel() // most of them wait for leases to end
					c.Run(t, func(t *testing.T) driver.Driver {
						return redisdriver.New(client(t), redisdriver.WithPrefix(s.Prefix()))
					}, drivertest.Queue, drivertest.Push, drivertest.Fences)
				})
			}
		})
	}
}

// Databases have their channels in common, and nothing else.
func TestLocksOfAnotherDatabaseAreOthers(t *testing.T) {
	t.Parallel()
	l := lab.New(t, redistest.Real(t))
	first := l.Near()
	other := func() *holdfast.Client {
		return l.Open(l.Server.Client(t, func(o *redis.Options) { o.DB = 1 }))
	}
	a, b := other(), other()
	held := l.Lease(first, "x")
	theirs := l.Lease(a, "x")
	w := l.Wait(b, "x")
	l.UntilListening(1)
	require.NoError(t, held.Release(t.Context()))
	held = l.Lease(first, "x")
	select {
	case <-w.Done:
		t.Fatal("it was told of a lock of the first database")
	default:
	}
	require.NoError(t, theirs.Release(t.Context()))
	require.NoError(t, w.Granted(lab.Soon).Release(t.Context()))
	require.NoError(t, held.Renew(t.Context()))
	require.NoError(t, held.Release(t.Context()))
}

// A managed Redis tells its clients to go to another address before the old one is closed.
func TestHoldersAndWaitersMoveWithTheirServer(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	l := lab.New(t, redistest.Real(t))
	from, to := redistest.NewProxy(t, l.Server), redistest.NewProxy(t, l.Server)
	from.Maintain()
	to.Maintain()
	var moved atomic.Int64 // commands
	to.DropReply(func([]string) bool { moved.Add(1); return false })
	client := func() *holdfast.Client { return l.Open(from.Client(t, maintained), holdfast.WithTTL(ttl)) }
	a, b := client(), client()
	held := l.Lease(a, "x")
	w := l.Wait(b, "x")
	l.UntilQueue("x", 1)
	l.UntilListening(1)

	require.GreaterOrEqual(t, from.Moving(to, 1), 3, "either has a connection for commands, and one listens")
	require.Eventually(t, func() bool { return moved.Load() > 0 }, 2*lab.Soon, 10*time.Millisecond, "nobody moved")
	from.Cut()
	l.Keeps(held, ttl)
	l.UntilListening(1)
	began := time.Now()
	require.NoError(t, held.Release(t.Context()))
	next := w.Granted(lab.Soon)
	t.Logf("handed over in %v", w.At.Sub(began))
	require.NoError(t, next.Release(t.Context()))
	l.Free(a, "x")
}
