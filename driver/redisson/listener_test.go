package redisson_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisson"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// waiting is a token that waits for a lock.
type waiting struct {
	*testing.T
	d    driver.Driver
	r    *driver.Request
	news chan driver.Grant
}

// newWaiting returns a token that waits for a lock of Java.
func newWaiting(t *testing.T, d driver.Driver, name, token string) *waiting {
	t.Helper()
	w := &waiting{t, d, request(name, token), make(chan driver.Grant, 100)}
	w.r.Wait, w.r.TTL = true, time.Hour
	w.r.Wake = func(g driver.Grant) { w.news <- g }
	w.asks()
	return w
}

func (w *waiting) asks() driver.Grant {
	w.Helper()
	return busy(w.T, w.d, w.r)
}

// told waits for news.
func (w *waiting) told() driver.Grant {
	w.Helper()
	select {
	case g := <-w.news:
		require.Equal(w, driver.Queued, g.Status)
		return g
	case <-time.After(20 * time.Second):
		require.FailNow(w, "no news")
		return driver.Grant{}
	}
}

// asksUntilTold asks as one who cannot hear does, until it can.
func (w *waiting) asksUntilTold() driver.Grant {
	w.Helper()
	require.Eventually(w, func() bool {
		_, err := w.d.Acquire(w.Context(), w.r)
		return err == nil && len(w.news) > 0
	}, 20*time.Second, 10*time.Millisecond)
	return w.told()
}

// open returns a driver that ends with the test.
func open(t *testing.T, rdb redis.UniversalClient, opts ...redisson.Option) *redisson.Driver {
	d := redisson.New(rdb, opts...)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	return d
}

func TestWhoBeginsToListenAsksOnceMore(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, name := s.Client(t), s.Prefix()+"a"
		d, j := open(t, s.Client(t)), newJava(rdb)
		j.mustLock(t, name, time.Hour)
		first := newWaiting(t, d, name, "first")
		require.Equal(t, driver.Grant{Status: driver.Queued}, first.told())
		second := newWaiting(t, d, name, "second") // hears at once: the first one has subscribed
		require.Equal(t, driver.Grant{Status: driver.Queued}, second.told())
		for _, w := range []*waiting{first, second} {
			require.Greater(t, w.asks().RetryAfter, 50*time.Minute, "it is told, and need not ask")
			require.Empty(t, w.news)
		}
		_, err := j.unlock(t.Context(), name)
		require.NoError(t, err)
		first.told()
		second.told()
	})
}

func TestReleasedTokenHearsNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, name := s.Client(t), s.Prefix()+"a"
		d, j := open(t, s.Client(t)), newJava(rdb)
		j.mustLock(t, name, time.Hour)
		stays, leaves := newWaiting(t, d, name, "stays"), newWaiting(t, d, name, "leaves")
		stays.told()
		leaves.told()
		require.ErrorIs(t, d.Release(t.Context(), lease(name, "leaves")), driver.ErrNotHeld)
		_, err := j.unlock(t.Context(), name)
		require.NoError(t, err)
		stays.told()
		require.Empty(t, leaves.news)
	})
}

func TestOneConnectionIsForAllLocksAndEndsWithTheLastWaiter(t *testing.T) {
	s := redistest.Real(t)
	rdb, j := s.Client(t), newJava(s.Client(t))
	locks := holdfast.Open(redisson.New(s.Client(t)))
	defer func() { require.NoError(t, locks.Close()) }()
	const names = 20
	var wg sync.WaitGroup
	for i := range names {
		name := fmt.Sprint("lock", i)
		j.mustLock(t, name, time.Hour)
		wg.Go(func() {
			lease, err := locks.Mutex(name, patient).Lease(t.Context())
			if assert.NoError(t, err) {
				assert.NoError(t, lease.Release(t.Context()))
			}
		})
	}
	listening := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool { return len(rdb.PubSubChannels(t.Context(), "*").Val()) == n }, 10*time.Second, time.Millisecond)
	}
	listening(names)
	listeners := rdb.Do(t.Context(), "CLIENT", "LIST", "TYPE", "PUBSUB").String()
	require.Equal(t, 1, strings.Count(listeners, " addr="))
	_, listener, _ := strings.Cut(listeners, " addr=")
	listener, _, _ = strings.Cut(listener, " ")
	_, err := j.unlock(t.Context(), "lock0")
	require.NoError(t, err)
	listening(names - 1)
	for i := range names - 1 {
		_, err := j.unlock(t.Context(), fmt.Sprint("lock", i+1))
		require.NoError(t, err)
	}
	wg.Wait()
	require.Eventually(t, func() bool { return !strings.Contains(rdb.ClientList(t.Context()).Val(), listener) },
		20*time.Second, 10*time.Millisecond)
}

// A message may have been missed while there was no connection.
func TestAllAskWhenTheConnectionWasLost(t *testing.T) {
	s := redistest.Real(t)
	rdb, d, j := s.Client(t), open(t, s.Client(t)), newJava(s.Client(t))
	var all []*waiting
	for _, name := range []string{"a", "b"} {
		j.mustLock(t, name, time.Hour)
		all = append(all, newWaiting(t, d, name, "me"))
	}
	for _, w := range all {
		require.False(t, w.told().Reconnect)
	}
	require.NoError(t, rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
	for _, w := range all {
		require.True(t, w.told().Reconnect, "it is lost")
	}
	for _, w := range all {
		require.True(t, w.asksUntilTold().Reconnect, "there is another")
		require.Greater(t, w.asks().RetryAfter, 50*time.Minute)
	}
}

// A connection that is open but dead tells nothing, for ever.
func TestSilentConnectionIsGivenUp(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		proxy := redistest.NewProxy(t, s)
		d, j := open(t, proxy.Client(t)), newJava(s.Client(t))
		j.mustLock(t, "a", time.Hour)
		w := newWaiting(t, d, "a", "me")
		w.told()
		time.Sleep(time.Minute) // Silence of the lock is not silence of the server.
		require.Empty(t, w.news)
		proxy.BlackHole(true)
		require.True(t, w.told().Reconnect)
		proxy.BlackHole(false)
		proxy.Cut()
		require.True(t, w.asksUntilTold().Reconnect)
		_, err := j.unlock(t.Context(), "a")
		require.NoError(t, err)
		w.told()
	})
}

// A client that gives up after a Busy does not say so.
func TestTokenThatStopsAskingIsForgotten(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		rdb, d, j := s.Client(t), open(t, s.Client(t)), newJava(s.Client(t))
		j.mustLock(t, "a", 24*time.Hour)
		w := newWaiting(t, d, "a", "me")
		w.told()
		for range 3 { // as long as it asks
			time.Sleep(w.r.TTL * 3 / 4)
			w.asks()
			require.Len(t, rdb.PubSubChannels(t.Context(), "*").Val(), 1)
		}
		time.Sleep(w.r.TTL + time.Second)
		require.Empty(t, rdb.PubSubChannels(t.Context(), "*").Val())
		require.Empty(t, w.news)
	})
}

// A client that may not subscribe, nor publish, asks.
func TestWhoMayNotListenAsks(t *testing.T) {
	s := redistest.Real(t)
	rdb, j := s.Client(t), newJava(s.Client(t))
	require.NoError(t, rdb.Do(t.Context(), "ACL", "SETUSER", "deaf", "on", "nopass", "~*", "resetchannels", "+@all").Err())
	d := open(t, s.Client(t, func(o *redis.Options) { o.Username, o.Password = "deaf", "any" }))
	j.mustLock(t, "a", time.Hour)
	w := newWaiting(t, d, "a", "me")
	refused := func() bool { return strings.Contains(rdb.Do(t.Context(), "ACL", "LOG").String(), "deaf") }
	for asks := 0; asks < 20 || !refused(); asks++ {
		after := w.asks().RetryAfter
		require.Positive(t, after)
		require.LessOrEqual(t, after, 100*time.Millisecond)
	}
	require.Empty(t, w.news)
	_, err := j.unlock(t.Context(), "a")
	require.NoError(t, err)
	g, err := d.Acquire(t.Context(), w.r)
	require.NoError(t, err)
	require.Equal(t, driver.Granted, g.Status)
	require.NoError(t, d.Release(t.Context(), lease("a", "me")), "nor may it publish")
}

// It tries again now and then, on a connection that is new each time.
func TestWhoMayNotListenTriesRarely(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		d, j := open(t, s.Client(t)), newJava(s.Client(t))
		j.mustLock(t, "a", 24*time.Hour)
		s.Mini().Server().SetPreHook(func(c *server.Peer, command string, _ ...string) bool {
			if refused := strings.EqualFold(command, "SUBSCRIBE"); !refused {
				return false
			}
			c.WriteError("NOPERM this user has no permissions to access one of the channels used as arguments")
			return true
		})
		w := newWaiting(t, d, "a", "me")
		asks := func(during time.Duration) {
			for start := time.Now(); time.Since(start) < during; {
				time.Sleep(w.asks().RetryAfter)
			}
		}
		before := s.Mini().TotalConnectionCount()
		asks(10 * time.Minute)
		opened := s.Mini().TotalConnectionCount() - before
		require.LessOrEqual(t, opened, 30)
		require.GreaterOrEqual(t, opened, 15, "it does not try again")
		require.Empty(t, w.news)

		s.Mini().Server().SetPreHook(nil)
		asks(31 * time.Second)
		require.NotEmpty(t, w.news)
	})
}
