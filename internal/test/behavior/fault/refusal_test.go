package fault_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestKeyOfAnotherTypeIsLeftAlone(t *testing.T) {
	t.Parallel()
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c, mu := l.Near(), l.Near().Mutex("x")
		l.Ready(c)
		require.NoError(t, l.Direct.Set(t.Context(), l.Key("x"), "precious", time.Hour).Err())
		untouched := func() {
			t.Helper()
			assert.Equal(t, "precious", l.Direct.Get(t.Context(), l.Key("x")).Val())
			assert.Greater(t, l.Direct.TTL(t.Context(), l.Key("x")).Val(), 59*time.Minute)
		}
		for _, mu := range []*holdfast.Mutex{mu, c.Mutex("x")} {
			for what, err := range lab.ErrorsOf(t, mu) {
				require.ErrorContains(t, err, "WRONGTYPE", what)
				var lockError *holdfast.LockError
				require.ErrorAs(t, err, &lockError, what)
				assert.Equal(t, "wrong_type", lockError.ErrorType(), what)
			}
			untouched()
		}

		// A client that has never been of use panics; one that has waits.
		assert.Contains(t, lab.Panics(t, mu.Lock), "WRONGTYPE")
		assert.Contains(t, lab.Panics(t, func() { mu.TryLock() }), "WRONGTYPE")
		assert.False(t, c.Mutex("x").TryLock())
		locked := make(chan struct{})
		go func() { c.Mutex("x").Lock(); close(locked) }()
		l.Until("Lock complains", func() bool { return strings.Contains(l.Log.String(), "WRONGTYPE") })
		untouched()
		select {
		case <-locked:
			t.Fatal("locked a key of another type")
		default:
		}
		require.NoError(t, l.Direct.Del(t.Context(), l.Key("x")).Err())
		lab.Promptly(t, lab.Soon, func() error { <-locked; return nil })
		c.Mutex("x").Unlock()
		// The one that panicked can be used now.
		mu.Lock()
		mu.Unlock()
		l.Free(c, "x")
	})
}

func TestKeyThatBecomesOfAnotherTypeEndsTheLease(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		const ttl = 600 * time.Millisecond
		c := l.Near(holdfast.WithTTL(ttl))
		lease := l.Lease(c, "x")
		require.NoError(t, l.Direct.Set(t.Context(), l.Key("x"), "precious", time.Hour).Err())
		l.Loses(lease, ttl+l.Slack)
		require.ErrorIs(t, lab.Promptly(t, lab.Soon, func() error { return lease.Release(t.Context()) }), holdfast.ErrLost)
		assert.Equal(t, "precious", l.Direct.Get(t.Context(), l.Key("x")).Val())
		require.NoError(t, l.Direct.Del(t.Context(), l.Key("x")).Err())
	})
}

func TestRefusalOfTheServerIsToldAtOnce(t *testing.T) {
	t.Parallel()
	l := lab.New(t, redistest.Real(t))
	l.Ready(l.Near())
	for what, scene := range map[string]struct {
		user func(*redis.Options)
		want string
	}{
		"may do nothing":       {l.User("a", "+ping"), "NOPERM"},
		"may not run scripts":  {l.User("b", "~*", "&*", "+@all", "-evalsha", "-eval"), "NOPERM"},
		"has no right to keys": {l.User("c", "~other:*", "&*", "+@all"), "NOPERM"},
		// Redis 7.0 says it in other words if it is a script that may not.
		"may not write in scripts": {l.User("d", "~*", "&*", "+@all", "-hset", "-hmset", "-set"), "can't run this command"},
		"wrong password": {func(o *redis.Options) {
			l.User("e", "~*", "&*", "+@all")(o)
			o.Password = "guess"
		}, "WRONGPASS"},
		"no such user": {func(o *redis.Options) { o.Username, o.Password = "nobody", "secret" }, "WRONGPASS"},
	} {
		for _, protocol := range []int{2, 3} {
			t.Run(what+", RESP"+strconv.Itoa(protocol), func(t *testing.T) {
				client := func() *holdfast.Client {
					return l.Open(l.Server.Client(t, scene.user, func(o *redis.Options) { o.Protocol = protocol }))
				}
				for call, err := range lab.ErrorsOf(t, client().Mutex("x")) {
					if what == "may not write in scripts" && (call == "Inspect" || call == "ForceUnlock") {
						continue // these have nothing to write
					}
					require.ErrorContains(t, err, scene.want, call)
					require.NotErrorIs(t, err, context.DeadlineExceeded, call)
					requireNoSecret(t, err.Error())
				}
				requireNoSecret(t, lab.Panics(t, client().Mutex("x").Lock))
				requireNoSecret(t, lab.Panics(t, func() { client().Mutex("x").TryLock() }))
			})
		}
	}
	assert.Empty(t, l.Server.Keys(t, l.Key("x")))
}

func requireNoSecret(t *testing.T, text string) {
	t.Helper()
	require.NotContains(t, text, "secret")
	require.NotContains(t, text, "guess")
}

// A password that is rotated must not crash a fleet.
func TestLockWaitsOutARefusalOfAClientThatWorkedOnce(t *testing.T) {
	t.Parallel()
	l := lab.New(t, redistest.Real(t))
	c := l.Open(l.Server.Client(t, l.User("app", "~*", "&*", "+@all")))
	l.Ready(c)
	l.User("app", "~*", "&*", "+@all", "-evalsha", "-eval")
	locked := make(chan struct{})
	go func() { c.Mutex("x").Lock(); close(locked) }()
	l.Until("Lock complains", func() bool { return strings.Contains(l.Log.String(), "NOPERM") })
	assert.False(t, lab.Promptly(t, lab.Soon, c.Mutex("y").TryLock))
	l.User("app", "~*", "&*", "+@all")
	lab.Promptly(t, lab.Soon, func() error { <-locked; return nil })
	c.Mutex("x").Unlock()
	l.Free(c, "x")
}

// The least that a user needs. SUBSCRIBE, UNSUBSCRIBE, PUBSUB, PUBLISH and the channel
// make it fast; all works without them.
var leastRights = []any{
	"+evalsha", "+eval", "+time", "+mget", "+exists", "+set", "+del", "+hmget", "+hget", "+hset", "+hdel", "+hgetall",
	"+pexpireat", "+pttl",
}

func TestLeastRightsAreEnough(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		t.Run("RESP"+strconv.Itoa(protocol), func(t *testing.T) {
			t.Parallel()
			l := lab.New(t, redistest.Real(t))
			rights := append([]any{"~" + l.Server.Prefix() + "*", "&" + l.Server.Prefix() + "*",
				"+publish", "+subscribe", "+unsubscribe", "+pubsub|numsub"}, leastRights...)
			user := l.User("app", rights...)
			client := func() *holdfast.Client {
				return l.Open(l.Server.Client(t, user, func(o *redis.Options) { o.Protocol = protocol }))
			}
			a, b := client(), client()
			l.Ready(a)
			held := l.Lease(a, "x")
			w := l.Wait(b, "x")
			l.UntilQueue("x", 1)
			l.UntilListening(1)
			_, err := b.Mutex("x").Inspect(t.Context())
			require.NoError(t, err)
			time.Sleep(1500 * time.Millisecond) // for the self-ping
			began := time.Now()
			require.NoError(t, held.Release(t.Context()))
			next := w.Granted(lab.Soon)
			t.Logf("handed over in %v", w.At.Sub(began))
			require.NoError(t, b.Mutex("x").ForceUnlock(t.Context()))
			l.Loses(next, lab.Soon)
			l.Free(a, "x")

			denied, err := l.Direct.Do(t.Context(), "ACL", "LOG").Slice()
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

// Without pub/sub a hand-over takes as long as the next poll, 50 to 250 ms, and not until a heartbeat,
// a third of the TTL.
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
			l := lab.New(t, redistest.Real(t))
			rights := append([]any{"resetchannels", "~" + l.Server.Prefix() + "*"}, leastRights...)
			user := l.User("app", append(rights, more...)...)
			open := func() *holdfast.Client { return l.Open(l.Server.Client(t, user)) }
			a, b := open(), open()
			l.Ready(a)
			held := l.Lease(a, "x")
			first := l.Wait(b, "x")
			l.UntilQueue("x", 1)
			second := l.Wait(b, "x")
			l.UntilQueue("x", 2)
			time.Sleep(50 * time.Millisecond) // for a subscription to be refused
			began := time.Now()
			require.NoError(t, held.Release(t.Context()))
			for _, w := range []*lab.Pending{first, second} {
				require.NoError(t, w.Granted(lab.Ages).Release(t.Context()))
			}
			took := second.At.Sub(began)
			t.Logf("two hand-overs took %v", took)
			assert.Less(t, took, lab.Ages/9)
			require.NoError(t, a.Mutex("y").Do(t.Context(), func(context.Context) error { return nil }))
			l.Free(a, "x")
		})
	}
}

func TestFullMemoryStopsNobodyWhoIsThere(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	l := lab.New(t, redistest.Real(t))
	a, b := l.Near(holdfast.WithTTL(ttl)), l.Near(holdfast.WithTTL(ttl))
	l.Ready(a)
	held := l.Lease(a, "x")
	first := l.Wait(b, "x")
	l.UntilQueue("x", 1)
	second := l.Wait(a, "x")
	l.UntilQueue("x", 2)
	cancelled := l.Wait(b, "x")
	l.UntilQueue("x", 3)

	full := func(limit string) {
		t.Helper()
		require.NoError(t, l.Direct.ConfigSet(t.Context(), "maxmemory", limit).Err())
	}
	require.NoError(t, l.Direct.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	full("1")
	defer full("0")
	require.ErrorContains(t, l.Direct.Set(t.Context(), l.Server.Prefix()+"try", "", time.Second).Err(), "OOM")
	l.Keeps(held, ttl+ttl/3) // renewed
	require.Len(t, l.Inspect("x").Queue, 3, "heartbeats are refused")
	cancelled.Cancel(nil)
	require.ErrorIs(t, cancelled.Failed(lab.Soon), context.Canceled)
	l.UntilQueue("x", 2)
	require.NoError(t, held.Release(t.Context()))
	next := first.Granted(ttl/3 + l.Slack)
	l.Keeps(next, ttl+ttl/3)
	require.NoError(t, next.Release(t.Context()))
	require.NoError(t, second.Granted(ttl/3+l.Slack).Release(t.Context()))

	// Only new ones must wait until there is memory.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // until it has heard why
	defer cancel()
	_, err := a.Mutex("new").Lease(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "OOM")
	w := l.Wait(a, "new")
	full("0")
	require.NoError(t, w.Granted(lab.Soon).Release(t.Context()))
	l.Free(a, "x")
}
