package redisdriver_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver/redisdriver"
)

// away has a driver of a server that is so far away, in a bubble, with a pool of so many connections.
func away(t *testing.T, rtt time.Duration, pool int, body func(t *testing.T, d *redisdriver.Driver, s *distant)) {
	synctest.Test(t, func(t *testing.T) {
		s := &distant{rtt: rtt, pool: make(chan struct{}, pool)}
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", PoolSize: pool, ReadTimeout: giveUp})
		defer func() { require.NoError(t, rdb.Close()) }()
		rdb.AddHook(s)
		d := redisdriver.New(rdb)
		defer func() { require.NoError(t, d.Close()) }()
		body(t, d, s)
	})
}

// known is away for callers of a server that has answered before.
func known(t *testing.T, rtt time.Duration, body func(t *testing.T, d *redisdriver.Driver, s *distant)) {
	away(t, rtt, 20, func(t *testing.T, d *redisdriver.Driver, s *distant) {
		_, err := d.Acquire(t.Context(), askFor("warm"))
		require.NoError(t, err)
		s.calls = 0
		body(t, d, s)
	})
}

// askAtOnce has n callers ask, and returns how long the last of them waited.
func askAtOnce(t *testing.T, d *redisdriver.Driver, n int) time.Duration {
	var all sync.WaitGroup
	began := time.Now()
	for i := range n {
		all.Go(func() {
			if _, err := d.Acquire(t.Context(), askFor(fmt.Sprint("lock", i))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	return time.Since(began)
}

// Callers gather behind the calls that are under way, and wait for nothing else.
func TestEightCallersOfANearServerShareCalls(t *testing.T) {
	known(t, 0, func(t *testing.T, d *redisdriver.Driver, s *distant) {
		const n = 8
		took := askAtOnce(t, d, n)
		require.Equal(t, 2, s.calls, "one that finds nobody, and one for those behind it")
		require.Equal(t, 2*workOfCall+n*workOfLock, took, "the server is never idle")
	})
}

// To gather would cost callers of a server that is far more time than it saves.
func TestFewCallersOfAFarServerLeaveAtOnce(t *testing.T) {
	for _, rtt := range []time.Duration{2 * time.Millisecond, 11 * time.Millisecond} {
		known(t, rtt, func(t *testing.T, d *redisdriver.Driver, s *distant) {
			const n = 8
			took := askAtOnce(t, d, n)
			require.Equal(t, n, s.calls)
			require.Equal(t, rtt+n*(workOfCall+workOfLock), took)
		})
	}
}

// While a call may hang, callers look after 100 ms whether it does. When they learn that the
// server is far, and a call may leave sooner, they look sooner.
func TestCallersLookAtTheNearestTime(t *testing.T) {
	const rtt = 2 * time.Millisecond
	away(t, rtt, 20, func(t *testing.T, d *redisdriver.Driver, _ *distant) {
		var first sync.WaitGroup
		first.Go(func() { askAtOnce(t, d, 20) })
		time.Sleep(rtt + 200*time.Microsecond) // the first is answered, the others have left
		synctest.Wait()
		require.Zero(t, d.Waiting())
		late := askAtOnce(t, d, 20)
		require.Less(t, late, rtt+rtt/2, "they need not wait until another call ends")
		first.Wait()
	})
}
