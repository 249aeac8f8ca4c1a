package redistest

import (
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/alicebob/miniredis/v2"
	lua "github.com/yuin/gopher-lua"
)

// Miniredis makes a Lua for each script that it runs, with room for 5,120 values and 256 calls, all of which
// have to be cleared. Ours need no more than this, which is 8 % of the processor of a test in virtual time.
func init() { lua.RegistrySize, lua.CallStackSize = 2048, 64 }

// Mini returns a miniredis of its own. Its keys expire as time passes.
func Mini(tb testing.TB) *Server {
	tb.Helper()
	m := miniredis.NewMiniRedis()
	// Off by default: TTLs would stand still and nothing would ever expire.
	m.ClockTTL(true)
	if err := m.Start(); err != nil {
		tb.Fatalf("redistest: miniredis: %v", err)
	}
	tb.Cleanup(m.Close)
	return &Server{endpoint: at(m.Addr()), tb: tb, prefix: prefixOf(tb), private: true, mini: m}
}

// bubbleAddr is an IP literal because go-redis looks a host name up, also when it
// has a Dialer. The resolver keeps channels from one bubble to the next, and the
// second bubble of a process then dies.
const bubbleAddr = "127.0.0.1:6379"

// WithoutTimers is for a test that is not parallel, and in whose bubbles callers wait for a connection of a full
// pool. go-redis keeps its timers for that in a [sync.Pool] from one bubble to the next, and the second bubble of a
// process that gets one dies. Two collections empty that, as often as one bubble follows another.
func WithoutTimers(t *testing.T) {
	t.Helper()
	forget := func() { runtime.GC(); runtime.GC() }
	forget()
	t.Cleanup(forget)
}

// Bubble runs body in a [synctest] bubble together with a miniredis, so that
// TTLs, TIME, timeouts and sleeps all follow one virtual clock. Its clients are
// connected by pipes. See [synctest.Test] for what body must not do.
func Bubble(t *testing.T, body func(*testing.T, *Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		// Registered before any client, so closed after all of them: its
		// goroutines wait for their connections, and the bubble for them. go-redis may dial
		// for a client that is closed, and miniredis must not be dialled while it closes.
		var dialling sync.Mutex
		closed := false
		t.Cleanup(func() {
			dialling.Lock()
			closed = true
			dialling.Unlock()
			m.Close()
		})
		dial := func() (net.Conn, error) {
			dialling.Lock()
			defer dialling.Unlock()
			if closed {
				return nil, net.ErrClosed
			}
			conn, err := m.Dial()
			if err != nil {
				return nil, err
			}
			return newPipeEnd(conn), nil
		}
		body(t, &Server{
			endpoint: endpoint{network: "tcp", addr: bubbleAddr, dial: dial},
			tb:       t, prefix: prefixOf(t), private: true, mini: m,
		})
	})
}
