package lab

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Referee counts who is inside of what a lock guards, and knows nothing of locks. A
// reader or a permit weighs 1, a writer as much as the limit.
type Referee struct {
	Limit int64

	Mu                           sync.Mutex
	inside, Peak, Entries, Fouls int64
}

// Enter and Leave are called inside of what the lock guards.
func (r *Referee) Enter(weight int64) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.Entries++
	r.inside += weight
	r.Peak = max(r.Peak, r.inside)
	if r.inside > r.Limit {
		r.Fouls++
	}
}

func (r *Referee) Leave(weight int64) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.inside -= weight
}

// RequireFair fails the test if ever more than the limit were inside, or somebody still is.
func (r *Referee) RequireFair(t *testing.T, entries int64) {
	t.Helper()
	r.Mu.Lock()
	defer r.Mu.Unlock()
	require.Zero(t, r.Fouls, "FOUL: times that more were inside than the limit")
	require.Zero(t, r.inside)
	require.Equal(t, entries, r.Entries)
}

// Listen lets other processes call the referee, and returns where. A process that has called it
// waits for the answer, so it is inside for longer than the referee thinks. It leaves
// when its connection breaks: the dead are not inside.
func (r *Referee) Listen(t *testing.T) string {
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
func (r *Referee) serve(conn net.Conn) {
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	var inside, weight int64
	for in.Decode(&weight) == nil {
		inside += weight
		if weight > 0 {
			r.Enter(weight)
		} else {
			r.Leave(-weight)
		}
		if out.Encode(weight) != nil {
			break
		}
	}
	r.Leave(inside)
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

// CrowdOf is so many readers that no test has them.
const CrowdOf = 10000

// Hammer goes in and out n times.
func Hammer(r *Referee, lock sync.Locker, weight int64, n int) {
	for range n {
		lock.Lock()
		r.Enter(weight)
		runtime.Gosched()
		r.Leave(weight)
		lock.Unlock()
	}
}
