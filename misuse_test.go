package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// panics returns what f panics with, as text.
func panics(t *testing.T, f func()) string {
	t.Helper()
	v := promptly(t, 2*soon, func() (v any) {
		defer func() { v = recover() }()
		f()
		return nil
	})
	require.NotNil(t, v, "no panic")
	text := fmt.Sprint(v)
	assert.Contains(t, text, "holdfast: ")
	requireNoToken(t, text)
	return text
}

// errorsOf calls all methods of a mutex that can return an error.
func errorsOf(t *testing.T, mu *holdfast.Mutex) map[string]error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	errs := map[string]error{}
	for what, call := range map[string]func() error{
		"Lease":    func() error { _, err := mu.Lease(ctx); return err },
		"TryLease": func() error { _, err := mu.TryLease(ctx); return err },
		"Do": func() error {
			return mu.Do(ctx, func(context.Context) error { t.Error("called"); return nil })
		},
		"Inspect":     func() error { _, err := mu.Inspect(ctx); return err },
		"ForceUnlock": func() error { return mu.ForceUnlock(ctx) },
	} {
		errs[what] = promptly(t, soon, call)
		if errs[what] != nil {
			requireNoToken(t, errs[what].Error())
		}
	}
	return errs
}

func TestNameThatIsTooShortOrTooLongIsRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.near()
		l.ready(c) // a client that works panics, too
		keys := l.s.Keys(t, l.s.Prefix())
		for _, name := range []string{"", strings.Repeat("n", 513), strings.Repeat("n", 1<<20)} {
			mu := c.Mutex(name)
			for what, err := range errorsOf(t, mu) {
				require.ErrorIs(t, err, holdfast.ErrInvalidName, what)
				var lockError *holdfast.LockError
				require.ErrorAs(t, err, &lockError, what)
				assert.Equal(t, "invalid_name", lockError.ErrorType(), what)
				assert.Less(t, len(err.Error()), 200, what)
			}
			assert.Contains(t, panics(t, mu.Lock), "name")
			assert.Contains(t, panics(t, func() { mu.TryLock() }), "name")
			assert.Contains(t, panics(t, mu.Unlock), "unlock of unlocked mutex")
		}
		assert.Subset(t, keys, l.s.Keys(t, l.s.Prefix()))
	})
}

func TestAnyNameWorks(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		a, b := l.near(), l.near()
		names := []string{
			"{}", "{", "}", "}{", "{a}b", "a", "a\x00", "\x00", "\n", "a\nb", " ", "a b", "\xff\xfe", "\xc3",
			"*", "?", "[", "%s", "-", "'\"\\", "1:mutex:a", "ü", "🔒", strings.Repeat("n", 512),
		}
		held := map[string]*holdfast.Lease{}
		for _, name := range names {
			held[name] = l.lease(a, name) // so none is the same as another
			assert.Equal(t, name, held[name].Name())
		}
		for _, name := range names {
			w := l.wait(b, name)
			l.untilQueue(name, 1)
			info := l.inspect(name)
			assert.Equal(t, name, info.Name)
			require.NoError(t, held[name].Renew(t.Context()))
			require.NoError(t, held[name].Release(t.Context()))
			next := w.granted(soon)
			l.holds(next)
			require.NoError(t, next.Release(t.Context()))
			b.Mutex(name).Lock()
			b.Mutex(name).Unlock()
			l.free(a, name)
		}
	})
}

func TestOptionsThatMakeNoSensePanic(t *testing.T) {
	for what, f := range map[string]func(){
		"TTL of 0":            func() { holdfast.WithTTL(0) },
		"TTL below 0":         func() { holdfast.WithTTL(-time.Second) },
		"TTL below 10 ms":     func() { holdfast.WithTTL(10*time.Millisecond - 1) },
		"TTL above 24 h":      func() { holdfast.WithTTL(24*time.Hour + 1) },
		"waiting for 0":       func() { holdfast.WithWait(0) },
		"waiting for less":    func() { holdfast.WithWait(-1) },
		"an empty prefix":     func() { holdfast.WithPrefix("") },
		"no client":           func() { holdfast.New(nil) },
		"a nil client":        func() { holdfast.New((*redis.Client)(nil)) },
		"a nil cluster":       func() { holdfast.New((*redis.ClusterClient)(nil)) },
		"no driver":           func() { holdfast.Open(nil) },
		"a nil driver client": func() { holdfast.Open(redisdriver.New(nil)) },
	} {
		t.Run(what, func(t *testing.T) { assert.Panics(t, f) })
	}
	t.Run("a ring", func(t *testing.T) {
		ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
		defer func() { _ = ring.Close() }()
		assert.Panics(t, func() { holdfast.New(ring) })
	})
	assert.NotPanics(t, func() {
		holdfast.WithTTL(10 * time.Millisecond)
		holdfast.WithTTL(24 * time.Hour)
	})
}

func TestLongestAndShortestTTLWork(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		l := newLab(t, s)
		a, b := l.near(holdfast.WithTTL(24*time.Hour)), l.near(holdfast.WithTTL(24*time.Hour))
		lease := l.lease(a, "x")
		w := l.wait(b, "x")
		l.untilQueue("x", 1)
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, w.granted(soon).Release(t.Context()))

		// Nobody can promise to renew one of 10 ms in time. Lost or not, it must not
		// block others.
		lease, err := a.Mutex("x", holdfast.WithTTL(10*time.Millisecond)).Lease(t.Context())
		require.NoError(t, err)
		if err := lease.Release(t.Context()); err != nil {
			require.ErrorIs(t, err, holdfast.ErrLost)
		}
		l.soonFree(b, "x")
	})
}

func TestUnlockOfUnlockedMutexPanics(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		mu := l.near().Mutex("x")
		assert.Contains(t, panics(t, mu.Unlock), "unlock of unlocked mutex")
		mu.Lock()
		mu.Unlock()
		assert.Contains(t, panics(t, mu.Unlock), "unlock of unlocked mutex")
		require.True(t, mu.TryLock())
		mu.Unlock()
		assert.Contains(t, panics(t, mu.Unlock), "unlock of unlocked mutex")
		// What another client has locked is not locked here.
		other := l.near().Mutex("x")
		other.Lock()
		assert.Contains(t, panics(t, mu.Unlock), "unlock of unlocked mutex")
		assert.False(t, mu.TryLock())
		other.Unlock()
	})
}

func TestUnlockNeverTouchesALease(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.near()
		lease := l.lease(c, "x")
		assert.Contains(t, panics(t, c.Mutex("x").Unlock), "unlock of unlocked mutex")
		l.holds(lease)

		// Neither one that was taken between a Lock that was lost and its Unlock.
		require.NoError(t, lease.Release(t.Context()))
		c.Mutex("x").Lock()
		require.NoError(t, c.Mutex("x").ForceUnlock(t.Context()))
		lease = l.lease(c, "x")
		c.Mutex("x").Unlock()
		l.holds(lease)
		require.NoError(t, lease.Release(t.Context()))
		l.free(c, "x")
	})
}

func TestReleaseIsCountedOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.near()
		lease := l.lease(c, "x")
		var released atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				switch err := lease.Release(context.Background()); {
				case err == nil:
					released.Add(1)
				default:
					assert.ErrorIs(t, err, holdfast.ErrNotHeld)
				}
			})
		}
		promptly(t, soon, func() error { wg.Wait(); return nil })
		assert.EqualValues(t, 1, released.Load())

		next := l.lease(c, "x")
		require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrNotHeld)
		require.ErrorIs(t, lease.Renew(t.Context()), holdfast.ErrNotHeld)
		require.ErrorIs(t, lease.Err(), holdfast.ErrNotHeld)
		require.ErrorIs(t, context.Cause(lease.Context()), context.Canceled)
		l.holds(next)
		require.NoError(t, next.Release(t.Context()))
	})
}

func TestClosedClientSaysSo(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c, other := l.near(), l.near()
		lease := l.lease(c, "held")
		mu := c.Mutex("locked")
		mu.Lock()
		require.NoError(t, promptly(t, soon, c.Close))
		require.NoError(t, c.Close())

		// What was held is free.
		l.free(other, "held")
		l.free(other, "locked")
		require.Error(t, lease.Err())
		require.Error(t, lease.Context().Err())
		require.Error(t, lease.Release(t.Context()))
		require.Error(t, lease.Renew(t.Context()))
		mu.Unlock() // is what a deferred call does, and no misuse

		for what, err := range errorsOf(t, c.Mutex("x")) {
			require.ErrorIs(t, err, holdfast.ErrClosed, what)
		}
		assert.Contains(t, panics(t, c.Mutex("x").Lock), "closed")
		assert.Contains(t, panics(t, func() { c.Mutex("x").TryLock() }), "closed")
		l.s.RequireNoKeys(t, l.key("x"), 0)
	})
}

func TestCloseEndsAllThatWait(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		if !l.virtual { // a bubble ends only when all its goroutines have
			require.NoError(t, l.direct.Ping(t.Context()).Err()) // miniredis has goroutines for its connection
			redistest.RequireNoLeaks(t)
		}
		other := l.near()
		held := l.lease(other, "x")
		c := l.near()
		mine := l.lease(c, "mine")
		waiters := []*pending{l.wait(c, "x"), l.wait(c, "x")}
		background := make(chan error, 1)
		go func() {
			_, err := c.Mutex("x").Lease(context.Background())
			background <- err
		}()
		locks := make(chan any, 2)
		for range 2 {
			go func() {
				defer func() { locks <- recover() }()
				c.Mutex("x").Lock()
			}()
		}
		l.untilQueue("x", 5)

		require.NoError(t, promptly(t, soon, c.Close))
		for _, w := range waiters {
			require.ErrorIs(t, w.failed(soon), holdfast.ErrClosed)
		}
		require.ErrorIs(t, promptly(t, soon, func() error { return <-background }), holdfast.ErrClosed)
		for range 2 {
			assert.Contains(t, fmt.Sprint(promptly(t, soon, func() any { return <-locks })), "closed")
		}
		require.Error(t, mine.Err())
		assert.Empty(t, l.inspect("x").Queue)
		l.free(other, "mine")
		l.untilListening(0)
		l.holds(held)
		require.NoError(t, held.Release(t.Context()))
		l.free(other, "x")
	})
}

func TestKeyOfAnotherTypeIsLeftAlone(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c, mu := l.near(), l.near().Mutex("x")
		l.ready(c)
		require.NoError(t, l.direct.Set(t.Context(), l.key("x"), "precious", time.Hour).Err())
		untouched := func() {
			t.Helper()
			assert.Equal(t, "precious", l.direct.Get(t.Context(), l.key("x")).Val())
			assert.Greater(t, l.direct.TTL(t.Context(), l.key("x")).Val(), 59*time.Minute)
		}
		for _, mu := range []*holdfast.Mutex{mu, c.Mutex("x")} {
			for what, err := range errorsOf(t, mu) {
				require.ErrorContains(t, err, "WRONGTYPE", what)
				var lockError *holdfast.LockError
				require.ErrorAs(t, err, &lockError, what)
				assert.Equal(t, "store", lockError.ErrorType(), what)
			}
			untouched()
		}

		// A client that has never been of use panics; one that has waits.
		assert.Contains(t, panics(t, mu.Lock), "WRONGTYPE")
		assert.Contains(t, panics(t, func() { mu.TryLock() }), "WRONGTYPE")
		assert.False(t, c.Mutex("x").TryLock())
		locked := make(chan struct{})
		go func() { c.Mutex("x").Lock(); close(locked) }()
		l.until("Lock complains", func() bool { return strings.Contains(l.log.String(), "WRONGTYPE") })
		untouched()
		select {
		case <-locked:
			t.Fatal("locked a key of another type")
		default:
		}
		require.NoError(t, l.direct.Del(t.Context(), l.key("x")).Err())
		promptly(t, soon, func() error { <-locked; return nil })
		c.Mutex("x").Unlock()
		// The one that panicked can be used now.
		mu.Lock()
		mu.Unlock()
		l.free(c, "x")
	})
}

func TestKeyThatBecomesOfAnotherTypeEndsTheLease(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		const ttl = 600 * time.Millisecond
		c := l.near(holdfast.WithTTL(ttl))
		lease := l.lease(c, "x")
		require.NoError(t, l.direct.Set(t.Context(), l.key("x"), "precious", time.Hour).Err())
		l.loses(lease, ttl+l.slack)
		require.ErrorIs(t, promptly(t, soon, func() error { return lease.Release(t.Context()) }), holdfast.ErrLost)
		assert.Equal(t, "precious", l.direct.Get(t.Context(), l.key("x")).Val())
		require.NoError(t, l.direct.Del(t.Context(), l.key("x")).Err())
	})
}

// user returns the options of a user that may do what rules say, and connect.
func (l *lab) user(name string, rules ...any) func(*redis.Options) {
	l.t.Helper()
	args := append([]any{"ACL", "SETUSER", name, "reset", "on", ">secret"}, rules...)
	require.NoError(l.t, l.direct.Do(l.t.Context(), args...).Err())
	return func(o *redis.Options) { o.Username, o.Password = name, "secret" }
}

func TestRefusalOfTheServerIsToldAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, redistest.Real(t))
	l.ready(l.near())
	for what, scene := range map[string]struct {
		user func(*redis.Options)
		want string
	}{
		"may do nothing":       {l.user("a", "+ping"), "NOPERM"},
		"may not run scripts":  {l.user("b", "~*", "&*", "+@all", "-evalsha", "-eval"), "NOPERM"},
		"has no right to keys": {l.user("c", "~other:*", "&*", "+@all"), "NOPERM"},
		// Redis 7.0 says it in other words if it is a script that may not.
		"may not write in scripts": {l.user("d", "~*", "&*", "+@all", "-hset", "-hmset"), "can't run this command"},
		"wrong password": {func(o *redis.Options) {
			l.user("e", "~*", "&*", "+@all")(o)
			o.Password = "guess"
		}, "WRONGPASS"},
		"no such user": {func(o *redis.Options) { o.Username, o.Password = "nobody", "secret" }, "WRONGPASS"},
	} {
		for _, protocol := range []int{2, 3} {
			t.Run(what+", RESP"+strconv.Itoa(protocol), func(t *testing.T) {
				client := func() *holdfast.Client {
					return l.open(l.s.Client(t, scene.user, func(o *redis.Options) { o.Protocol = protocol }))
				}
				for call, err := range errorsOf(t, client().Mutex("x")) {
					if what == "may not write in scripts" && (call == "Inspect" || call == "ForceUnlock") {
						continue // these have nothing to write
					}
					require.ErrorContains(t, err, scene.want, call)
					require.NotErrorIs(t, err, context.DeadlineExceeded, call)
					requireNoSecret(t, err.Error())
				}
				requireNoSecret(t, panics(t, client().Mutex("x").Lock))
				requireNoSecret(t, panics(t, func() { client().Mutex("x").TryLock() }))
			})
		}
	}
	assert.Empty(t, l.s.Keys(t, l.key("x")))
}

func requireNoSecret(t *testing.T, text string) {
	t.Helper()
	require.NotContains(t, text, "secret")
	require.NotContains(t, text, "guess")
}

// A password that is rotated must not crash a fleet.
func TestLockWaitsOutARefusalOfAClientThatWorkedOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, redistest.Real(t))
	c := l.open(l.s.Client(t, l.user("app", "~*", "&*", "+@all")))
	l.ready(c)
	l.user("app", "~*", "&*", "+@all", "-evalsha", "-eval")
	locked := make(chan struct{})
	go func() { c.Mutex("x").Lock(); close(locked) }()
	l.until("Lock complains", func() bool { return strings.Contains(l.log.String(), "NOPERM") })
	assert.False(t, promptly(t, soon, c.Mutex("y").TryLock))
	l.user("app", "~*", "&*", "+@all")
	promptly(t, soon, func() error { <-locked; return nil })
	c.Mutex("x").Unlock()
	l.free(c, "x")
}

// The least that a user needs. SUBSCRIBE, UNSUBSCRIBE, PUBSUB, PUBLISH and the channel
// make it fast; all works without them.
var leastRights = []any{
	"+evalsha", "+eval", "+time", "+hmget", "+hget", "+hset", "+hdel", "+hgetall", "+pexpire", "+pttl",
}

func TestLeastRightsAreEnough(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		t.Run("RESP"+strconv.Itoa(protocol), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, redistest.Real(t))
			rights := append([]any{"~" + l.s.Prefix() + "*", "&" + l.s.Prefix() + "*",
				"+publish", "+subscribe", "+unsubscribe", "+pubsub|numsub"}, leastRights...)
			user := l.user("app", rights...)
			client := func() *holdfast.Client {
				return l.open(l.s.Client(t, user, func(o *redis.Options) { o.Protocol = protocol }))
			}
			a, b := client(), client()
			l.ready(a)
			held := l.lease(a, "x")
			w := l.wait(b, "x")
			l.untilQueue("x", 1)
			l.untilListening(1)
			_, err := b.Mutex("x").Inspect(t.Context())
			require.NoError(t, err)
			time.Sleep(1500 * time.Millisecond) // for the self-ping
			began := time.Now()
			require.NoError(t, held.Release(t.Context()))
			next := w.granted(soon)
			t.Logf("handed over in %v", w.at.Sub(began))
			require.NoError(t, b.Mutex("x").ForceUnlock(t.Context()))
			l.loses(next, soon)
			l.free(a, "x")

			denied, err := l.direct.Do(t.Context(), "ACL", "LOG").Slice()
			require.NoError(t, err)
			for _, entry := range denied {
				text := fmt.Sprint(entry)
				if !strings.Contains(text, "client|") { // go-redis introduces itself
					t.Errorf("denied: %s", text)
				}
			}
		})
	}
}

// Without pub/sub a hand-over takes as long as the next poll, 50 to 250 ms.
func TestWaitersNeedNoPubSub(t *testing.T) {
	t.Parallel()
	for name, more := range map[string][]any{
		"at all":     nil,
		"to listen":  {"+publish", "+pubsub", "&*"},
		"to publish": {"+subscribe", "+unsubscribe", "&*"},
		"channel":    {"+subscribe", "+unsubscribe", "+publish", "+pubsub"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, redistest.Real(t))
			rights := append([]any{"resetchannels", "~" + l.s.Prefix() + "*"}, leastRights...)
			user := l.user("app", append(rights, more...)...)
			const ttl = 3 * time.Second
			open := func() *holdfast.Client {
				return l.open(l.s.Client(t, user), holdfast.WithTTL(ttl))
			}
			a, b := open(), open()
			l.ready(a)
			fastest := time.Hour
			for range 3 {
				held := l.lease(a, "x")
				first := l.wait(b, "x")
				l.untilQueue("x", 1)
				second := l.wait(b, "x")
				l.untilQueue("x", 2)
				time.Sleep(50 * time.Millisecond) // for a subscription to be refused
				began := time.Now()
				require.NoError(t, held.Release(t.Context()))
				for _, w := range []*pending{first, second} {
					require.NoError(t, w.granted(2*ttl/3+l.slack).Release(t.Context()))
				}
				took := max(first.at.Sub(began), second.at.Sub(began))
				fastest = min(fastest, took)
			}
			t.Logf("two hand-overs took %v", fastest)
			assert.Less(t, fastest, 2*300*time.Millisecond)
			require.NoError(t, a.Mutex("y").Do(t.Context(), func(context.Context) error { return nil }))
			l.free(a, "x")
		})
	}
}

// It also holds what the tests take for a token against one.
func TestTokensAreNeverShown(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.near(holdfast.WithTTL(300 * time.Millisecond))
		lease := l.lease(c, "x")
		token := lease.Token()
		require.True(t, showsToken(token), "the tests know tokens no more")
		assert.Contains(t, token, "mutex")
		assert.Contains(t, token, "x")

		_, busy := c.Mutex("x").TryLease(t.Context())
		require.ErrorIs(t, busy, holdfast.ErrLocked)
		_, deadlock := c.Mutex("x").Lease(lease.Context())
		require.ErrorIs(t, deadlock, holdfast.ErrDeadlock)
		require.NoError(t, l.direct.Del(t.Context(), l.key("x")).Err())
		l.loses(lease, 300*time.Millisecond+l.slack)
		texts := []string{
			busy.Error(), deadlock.Error(), context.Cause(lease.Context()).Error(), lease.Err().Error(),
			lease.Release(t.Context()).Error(), lease.Renew(t.Context()).Error(), l.log.String(),
			fmt.Sprintf("%+v", l.inspect("x")),
		}
		l.until("the loss is in the log", func() bool { return strings.Contains(l.log.String(), "lock=x") })
		for _, text := range append(texts, l.log.String()) {
			for _, part := range strings.FieldsFunc(token, func(r rune) bool { return r == ':' || r == '-' }) {
				if len(part) >= 8 {
					assert.NotContains(t, text, part)
				}
			}
		}
	})
}

func TestWaitingForOneselfIsRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.near()
		mu := c.Mutex("x")
		lease := l.lease(c, "x")
		type word struct{}
		child, cancel := context.WithCancel(context.WithValue(lease.Context(), word{}, 1))
		defer cancel()
		for _, ctx := range []context.Context{lease.Context(), child, lease.WithContext(t.Context())} {
			for what, err := range map[string]error{
				"Lease": promptly(t, soon, func() error { _, err := mu.Lease(ctx); return err }),
				"Do": promptly(t, soon, func() error {
					return mu.Do(ctx, func(context.Context) error { return nil })
				}),
				"another handle": promptly(t, soon, func() error { _, err := c.Mutex("x").Lease(ctx); return err }),
				"TryLease":       promptly(t, soon, func() error { _, err := mu.TryLease(ctx); return err }),
			} {
				require.ErrorIs(t, err, holdfast.ErrDeadlock, what)
			}
		}
		assert.Empty(t, l.inspect("x").Queue)
		l.holds(lease)

		// Another lock may be taken with it.
		other, err := c.Mutex("y").Lease(lease.Context())
		require.NoError(t, err)
		require.ErrorIs(t, promptly(t, soon, func() error { _, err := mu.Lease(other.Context()); return err }),
			holdfast.ErrDeadlock, "the context carries both")
		require.NoError(t, other.Release(t.Context()))

		// After the release it says nothing.
		with := context.WithoutCancel(lease.Context())
		require.NoError(t, lease.Release(t.Context()))
		again, err := mu.Lease(with)
		require.NoError(t, err)
		require.NoError(t, mu.ForceUnlock(t.Context()))
		require.ErrorIs(t, again.Release(t.Context()), holdfast.ErrLost)
		again, err = mu.Lease(context.WithoutCancel(again.Context()))
		require.NoError(t, err)
		require.NoError(t, again.Release(t.Context()))
	})
}

func TestDoReportsALoss(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		const ttl = 300 * time.Millisecond
		c := l.near(holdfast.WithTTL(ttl))
		failed := errors.New("work failed")
		for _, result := range []error{nil, failed} {
			err := promptly(t, soon, func() error {
				return c.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
					if err := l.direct.Del(ctx, l.key("x")).Err(); err != nil {
						return err
					}
					select {
					case <-ctx.Done():
					case <-time.After(ttl + l.slack):
						t.Error("the context outlives the lock")
					}
					assert.ErrorIs(t, context.Cause(ctx), holdfast.ErrLost)
					return result
				})
			})
			require.ErrorIs(t, err, holdfast.ErrLost)
			if result != nil {
				require.ErrorIs(t, err, result)
			}
			l.free(c, "x")

			// Also if f is too fast to notice.
			err = c.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
				if err := l.direct.Del(ctx, l.key("x")).Err(); err != nil {
					return err
				}
				return result
			})
			require.ErrorIs(t, err, holdfast.ErrLost)
		}
	})
}

func TestDoReleasesWhateverHappens(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.near()
		failed := errors.New("work failed")
		require.NoError(t, c.Mutex("x").Do(t.Context(), func(context.Context) error { return nil }))
		l.free(c, "x")
		require.Equal(t, failed, c.Mutex("x").Do(t.Context(), func(context.Context) error { return failed }))
		l.free(c, "x")
		assert.PanicsWithValue(t, "work", func() {
			_ = c.Mutex("x").Do(t.Context(), func(context.Context) error { panic("work") })
		})
		l.free(c, "x")

		// When ctx ends, so does the context of f, but not the lock.
		ctx, cancel := context.WithCancelCause(t.Context())
		err := promptly(t, soon, func() error {
			return c.Mutex("x").Do(ctx, func(inner context.Context) error {
				cancel(failed)
				<-inner.Done()
				assert.NotEmpty(t, l.inspect("x").Holders)
				return context.Cause(inner)
			})
		})
		require.ErrorIs(t, err, failed)
		require.NotErrorIs(t, err, holdfast.ErrLost)
		l.free(c, "x")

		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = c.Mutex("x").Do(context.Background(), func(context.Context) error {
				runtime.Goexit()
				return nil
			})
		}()
		promptly(t, soon, func() error { <-done; return nil })
		l.free(c, "x")
	})
}

// calls is how often the server was called by name since before.
func calls(after, before map[string]int64, names ...string) (sum int64) {
	for _, name := range names {
		sum += after[name] - before[name]
	}
	return sum
}

// What scripts call is counted as well, but they do not call these.
var byClients = []string{
	"eval", "script|load", "subscribe", "unsubscribe", "ping", "echo", "get", "set", "del", "multi", "exec",
	"watch", "client|list", "client|id", "client|tracking", "psubscribe", "ssubscribe", "wait", "info",
}

func TestLockAndUnlockAreTwoCommands(t *testing.T) {
	t.Parallel()
	l := newLab(t, redistest.Real(t))
	c := l.near()
	l.ready(c)
	mu := c.Mutex("x")
	mu.Lock()
	mu.Unlock()
	const rounds = 100
	before := l.s.CommandStats(t)
	for range rounds {
		mu.Lock()
		mu.Unlock()
	}
	after := l.s.CommandStats(t)
	assert.EqualValues(t, 2*rounds, calls(after, before, "evalsha"))
	assert.Zero(t, calls(after, before, "publish", "pubsub|numsub"))
	assert.EqualValues(t, 1, calls(after, before, byClients...), "INFO of this test")

	before = l.s.CommandStats(t)
	for range rounds {
		lease, err := mu.Lease(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	}
	after = l.s.CommandStats(t)
	assert.EqualValues(t, 2*rounds, calls(after, before, "evalsha"))
	assert.Zero(t, calls(after, before, "publish", "pubsub|numsub"))
	assert.EqualValues(t, 1, calls(after, before, byClients...), "INFO of this test")
}

func TestHandOverIsOneCommand(t *testing.T) {
	t.Parallel()
	l := newLab(t, redistest.Real(t))
	side := [2]*holdfast.Client{l.near(), l.near()}
	l.ready(side[0])
	held := l.lease(side[0], "x")
	pass := func(i int) {
		t.Helper()
		w := l.wait(side[i], "x")
		// Not with Inspect, which is a script.
		l.until("the other waits", func() bool {
			return l.direct.HExists(t.Context(), l.key("x"), "head").Val()
		})
		require.NoError(t, held.Release(t.Context()))
		held = w.granted(soon)
	}
	for i := range 4 { // until both listen
		pass((i + 1) % 2)
	}
	l.untilListening(2)
	const rounds = 100
	began := time.Now()
	before := l.s.CommandStats(t)
	for i := range rounds {
		pass((i + 1) % 2)
	}
	after := l.s.CommandStats(t)
	pings := int64(time.Since(began)/time.Second) + 1
	// One to wait and one to hand over. Who waits when the client hears that it is subscribed,
	// which may be later than the server says so, asks once more.
	assert.InDelta(t, 2*rounds+1, calls(after, before, "evalsha"), 1)
	assert.GreaterOrEqual(t, calls(after, before, "publish"), int64(rounds))
	assert.LessOrEqual(t, calls(after, before, "publish"), rounds+2*pings)
	assert.EqualValues(t, 1, calls(after, before, byClients...), "INFO of this test")
	require.NoError(t, held.Release(t.Context()))
}

func TestFullMemoryStopsNobodyWhoIsThere(t *testing.T) {
	t.Parallel()
	const ttl = 600 * time.Millisecond
	l := newLab(t, redistest.Real(t))
	a, b := l.near(holdfast.WithTTL(ttl)), l.near(holdfast.WithTTL(ttl))
	l.ready(a)
	held := l.lease(a, "x")
	first := l.wait(b, "x")
	l.untilQueue("x", 1)
	second := l.wait(a, "x")
	l.untilQueue("x", 2)
	cancelled := l.wait(b, "x")
	l.untilQueue("x", 3)

	full := func(limit string) {
		t.Helper()
		require.NoError(t, l.direct.ConfigSet(t.Context(), "maxmemory", limit).Err())
	}
	require.NoError(t, l.direct.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	full("1")
	defer full("0")
	require.ErrorContains(t, l.direct.Set(t.Context(), l.s.Prefix()+"try", "", time.Second).Err(), "OOM")
	l.keeps(held, 2*ttl) // renewed
	require.Len(t, l.inspect("x").Queue, 3, "heartbeats are refused")
	cancelled.cancel(nil)
	require.ErrorIs(t, cancelled.failed(soon), context.Canceled)
	l.untilQueue("x", 2)
	require.NoError(t, held.Release(t.Context()))
	next := first.granted(ttl/3 + l.slack)
	l.keeps(next, 2*ttl)
	require.NoError(t, next.Release(t.Context()))
	require.NoError(t, second.granted(ttl/3+l.slack).Release(t.Context()))

	// Only new ones must wait until there is memory.
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := a.Mutex("new").Lease(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "OOM")
	w := l.wait(a, "new")
	full("0")
	require.NoError(t, w.granted(soon).Release(t.Context()))
	l.free(a, "x")
}
