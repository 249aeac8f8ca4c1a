package main

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// queuesOf has each token asked for and queued at that moment.
func queuesOf(queuedAt map[uint64]int64) queues {
	q := newQueues()
	for id, at := range queuedAt {
		q.asks[id] = []span{{at, at}}
	}
	return q
}

func TestNobodyOvertakesAWaiterInACalm(t *testing.T) {
	waiter := hold(driver.Mutex, 1, 9, 10, 100, 110, 120)
	for name, c := range map[string]struct {
		other *op
		want  int
	}{
		"asked before it was queued":            {hold(driver.Mutex, 1, 8, 15, 90, 95, 99), 0},
		"asked afterwards and served before":    {hold(driver.Mutex, 1, 8, 30, 90, 95, 99), 1},
		"asked afterwards and served afterward": {hold(driver.Mutex, 1, 10, 30, 130, 140, 150), 0},
	} {
		t.Run(name, func(t *testing.T) {
			var f findings
			f.judgeOrder([]*op{waiter, c.other}, queuesOf(map[uint64]int64{waiter.id: 20}), [][2]int64{{5, 200}})
			require.Equal(t, c.want, f.overtaken)
			require.Equal(t, 1, f.queued)
		})
	}
}

// A waiter that the store may have dropped can be overtaken.
func TestWaiterThatWasAwayHasLeftTheQueue(t *testing.T) {
	const patience, second = int64(ttl * 2 / 3), int64(ttl)
	waiter, other := hold(driver.Mutex, 1, 9, 10, 5*second, 6*second, 7*second), hold(driver.Mutex, 1, 8, 300, 2*patience, 3*second, 4*second)
	for name, c := range map[string]struct {
		asks []span
		ears map[int][]int64
		want int
	}{
		"asks in time":              {[]span{{10, 200}, {patience - 20, patience}, {patience + 20, 2*patience - 20}}, nil, 1},
		"is silent for long":        {[]span{{10, 200}, {patience + 20, patience + 30}}, nil, 0},
		"asks, and nobody answers":  {[]span{{10, 200}, {patience - 20, patience + 20}}, nil, 0},
		"is silent in the end":      {[]span{{10, 200}, {patience - 20, patience}}, nil, 0},
		"an ask hangs":              {[]span{{10, 200}, {11, patience + 20}, {patience - 20, patience}, {patience + 20, 2*patience - 20}}, nil, 1},
		"its process is deaf":       {[]span{{10, 200}, {patience - 20, patience}, {patience + 20, 2*patience - 20}}, map[int][]int64{0: {patience}}, 0},
		"its process was deaf":      {[]span{{10, 200}, {patience - 20, patience}, {patience + 20, 2*patience - 20}}, map[int][]int64{0: {200 - second}}, 1},
		"its process is deaf later": {[]span{{10, 200}, {patience - 20, patience}, {patience + 20, 2*patience - 20}}, map[int][]int64{0: {2*patience + second}}, 1},
		"another process is deaf":   {[]span{{10, 200}, {patience - 20, patience}, {patience + 20, 2*patience - 20}}, map[int][]int64{1: {patience}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var f findings
			f.judgeOrder([]*op{waiter, other}, queues{map[uint64][]span{waiter.id: c.asks}, c.ears}, [][2]int64{{5, 8 * second}})
			require.Equal(t, c.want, f.overtaken)
		})
	}
}

func TestEndOfASubscriptionIsNoted(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	name := filepath.Join(t.TempDir(), "history")
	h, err := createHistory(name, 1)
	require.NoError(t, err)
	w := &witness{history: h, last: map[string]int64{}}
	for _, c := range []struct {
		says string
		cut  bool // by the server
		want int
	}{
		{"*1\r\n$4\r\nping\r\n", false, 0},
		{"*2\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n", false, 1},
		{"*2\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n", true, 2},
	} {
		conn, err := w.dial(t.Context(), "tcp", listener.Addr().String())
		require.NoError(t, err)
		server, err := listener.Accept()
		require.NoError(t, err)
		_, err = conn.Write([]byte(c.says))
		require.NoError(t, err)
		if c.cut {
			_ = server.(*net.TCPConn).SetLinger(0)
			_ = server.Close()
			_, err = conn.Read(make([]byte, 1))
			require.Error(t, err)
		} else {
			_ = conn.Close()
		}
		_ = server.Close()
		time.Sleep(time.Duration(often)) // else it counts as the same
		noted := 0
		require.NoError(t, read(name, func(r record) {
			require.Equal(t, deafened, r.class)
			noted++
		}))
		require.Equal(t, c.want, noted)
		_ = conn.Close()
	}
}
