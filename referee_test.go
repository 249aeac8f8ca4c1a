package holdfast_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A referee counts who is inside of what a lock guards, and knows nothing of locks. A
// reader or a permit weighs 1, a writer as much as the limit.
type referee struct {
	limit int64

	mu                           sync.Mutex
	inside, peak, entries, fouls int64
}

func (r *referee) enter(weight int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries++
	r.inside += weight
	r.peak = max(r.peak, r.inside)
	if r.inside > r.limit {
		r.fouls++
	}
}

func (r *referee) leave(weight int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inside -= weight
}

func (r *referee) requireFair(t *testing.T, entries int64) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Zero(t, r.fouls, "times that more were inside than the limit")
	require.Zero(t, r.inside)
	require.Equal(t, entries, r.entries)
}

// listen lets other processes call the referee, and returns where. Who has called it
// waits for the answer, so it is inside for longer than the referee thinks. It leaves
// when its connection breaks: the dead are not inside.
func (r *referee) listen(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "referee") // t.TempDir may be too long for a socket
	require.NoError(t, err)
	addr := filepath.Join(dir, "socket")
	socket, err := net.Listen("unix", addr)
	require.NoError(t, err)
	var mu sync.Mutex
	var conns []net.Conn
	var calls sync.WaitGroup
	calls.Go(func() {
		for {
			conn, err := socket.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			calls.Go(func() { r.serve(conn) })
		}
	})
	t.Cleanup(func() {
		assert.NoError(t, socket.Close())
		mu.Lock()
		for _, conn := range conns {
			_ = conn.Close()
		}
		mu.Unlock()
		calls.Wait()
		assert.NoError(t, os.RemoveAll(dir))
	})
	return addr
}

// serve reads weights, which are negative for who leaves, and sends each back.
func (r *referee) serve(conn net.Conn) {
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	var inside, weight int64
	for in.Decode(&weight) == nil {
		inside += weight
		if weight > 0 {
			r.enter(weight)
		} else {
			r.leave(-weight)
		}
		if out.Encode(weight) != nil {
			break
		}
	}
	r.leave(inside)
}

// player is one who goes in and out, in another process than the referee.
type player struct {
	conn net.Conn
	in   *json.Decoder
	out  *json.Encoder
}

func newPlayer(addr string) *player {
	conn, err := net.Dial("unix", addr)
	if err != nil {
		panic(err)
	}
	return &player{conn, json.NewDecoder(conn), json.NewEncoder(conn)}
}

func (p *player) enter(weight int64) { p.call(weight) }
func (p *player) leave(weight int64) { p.call(-weight) }

func (p *player) call(weight int64) {
	var echo int64
	if err := p.out.Encode(weight); err != nil {
		panic(err)
	}
	if err := p.in.Decode(&echo); err != nil || echo != weight {
		panic(fmt.Sprint("the referee has gone: ", err))
	}
}
