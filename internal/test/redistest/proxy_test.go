package redistest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// throughProxy runs body over miniredis, a real Redis and a bubble, with RESP3
// and RESP2. The clients repeat nothing.
func throughProxy(t *testing.T, body func(*testing.T, *proxied)) {
	for _, protocol := range []int{3, 2} {
		run := func(t *testing.T, s *redistest.Server) {
			p := redistest.NewProxy(t, s)
			mods := []func(*redis.Options){noRetries, func(o *redis.Options) {
				o.Protocol = protocol
				o.ContextTimeoutEnabled = true
			}}
			body(t, &proxied{
				Proxy:  p,
				server: s,
				client: p.Client(t, mods...),
				direct: s.Client(t, mods...),
				key:    s.Prefix() + "key",
			})
		}
		t.Run("RESP"+string(rune('0'+protocol)), func(t *testing.T) {
			redistest.Each(t, run)
			t.Run("bubble", func(t *testing.T) { redistest.Bubble(t, run) })
		})
	}
}

type proxied struct {
	*redistest.Proxy
	server *redistest.Server
	client *redis.Client // through the proxy
	direct *redis.Client // past it
	key    string
}

// count is how often key was incremented.
func (p *proxied) count(t *testing.T) int {
	t.Helper()
	n, err := p.direct.Get(context.Background(), p.key).Int()
	if !errors.Is(err, redis.Nil) {
		require.NoError(t, err)
	}
	return n
}

func (p *proxied) incr(t *testing.T) error { return p.client.Incr(t.Context(), p.key).Err() }

// impatient increments key, or tries to, and does not wait long for the answer: longer than a
// request takes to leave.
func (p *proxied) impatient(t *testing.T) error {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	return p.client.Incr(ctx, p.key).Err()
}

func requireTimeout(t *testing.T, err error) {
	t.Helper()
	timeout, ok := errors.AsType[net.Error](err)
	require.True(t, ok && timeout.Timeout(), "%v", err)
}

// listeners is how many hear a message on key.
func (p *proxied) listeners(t *testing.T, message string) int64 {
	t.Helper()
	n, err := p.direct.Publish(context.Background(), p.key, message).Result()
	require.NoError(t, err)
	return n
}

// subscribe returns the messages on key through the proxy.
func (p *proxied) subscribe(t *testing.T) (*redis.PubSub, <-chan *redis.Message) {
	t.Helper()
	ps := p.client.Subscribe(t.Context(), p.key)
	t.Cleanup(func() { _ = ps.Close() })
	_, err := ps.Receive(t.Context())
	require.NoError(t, err)
	return ps, ps.Channel()
}

func requireReset(t *testing.T, err error) {
	t.Helper()
	require.True(t, errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE), "%v", err)
}

// later starts what takes long, and returns where its error comes.
func later(do func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return done
}

func TestProxyIsTransparent(t *testing.T) {
	throughProxy(t, func(t *testing.T, p *proxied) {
		ctx := t.Context()
		big := strings.Repeat("x", 1<<20)
		require.NoError(t, p.client.Set(ctx, p.key, big, 0).Err())
		assert.Equal(t, big, p.client.Get(ctx, p.key).Val())
		require.NoError(t, p.client.HSet(ctx, p.key+":h", "f", "v").Err())
		assert.Equal(t, map[string]string{"f": "v"}, p.client.HGetAll(ctx, p.key+":h").Val())
		require.ErrorIs(t, p.client.Get(ctx, p.key+":none").Err(), redis.Nil)
		require.ErrorContains(t, p.client.Incr(ctx, p.key+":h").Err(), "WRONGTYPE")
		nested, err := p.client.Eval(ctx, `return {1, {"two", {3}}, {}}`, nil).Result()
		require.NoError(t, err)
		assert.Equal(t, []any{int64(1), []any{"two", []any{int64(3)}}, []any{}}, nested)

		cmds, err := p.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for range 1000 {
				pipe.Incr(ctx, p.key+":n")
			}
			return nil
		})
		require.NoError(t, err)
		assert.EqualValues(t, 1000, cmds[999].(*redis.IntCmd).Val())

		_, got := p.subscribe(t)
		require.EqualValues(t, 1, p.listeners(t, "hello"))
		assert.Equal(t, "hello", (<-got).Payload)
	})
}

func TestCutResetsConnectionsAndRefuseTurnsNewOnesAway(t *testing.T) {
	throughProxy(t, func(t *testing.T, p *proxied) {
		conn := p.client.Conn()
		defer func() { _ = conn.Close() }()
		require.NoError(t, conn.Ping(t.Context()).Err())
		p.Refuse(true)
		require.ErrorIs(t, p.incr(t), syscall.ECONNREFUSED)
		require.NoError(t, conn.Ping(t.Context()).Err())
		p.Refuse(false)
		p.Cut()
		requireReset(t, conn.Ping(t.Context()).Err())
		require.NoError(t, p.client.Ping(t.Context()).Err())
	})
}

func TestBlackHoleLosesRequestsForGood(t *testing.T) {
	t.Parallel()
	throughProxy(t, func(t *testing.T, p *proxied) {
		require.NoError(t, p.incr(t))
		dropped := p.DropReply(redistest.Containing("incr", p.key))
		p.BlackHole(true)
		requireTimeout(t, p.impatient(t))
		p.BlackHole(false)
		// A round trip on every other connection, then what was lost must not have
		// been delivered before it or because of it.
		require.NoError(t, p.client.Ping(t.Context()).Err())
		assert.Equal(t, 1, p.count(t))
		requireReset(t, p.incr(t)) // the fault waits for what arrives
		<-dropped
		assert.Equal(t, 2, p.count(t))
	})
}

func TestBlackHoleTakesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	throughProxy(t, func(t *testing.T, p *proxied) {
		require.NoError(t, p.incr(t))
		underWay := make(chan struct{})
		p.DropReply(func([]string) bool { close(underWay); return false })
		p.Delay(50 * time.Millisecond)
		failed := later(func() error { return p.impatient(t) })
		<-underWay
		p.BlackHole(true)
		requireTimeout(t, <-failed)
		assert.Equal(t, 1, p.count(t))
	})
}

func TestBlackHoleOneWay(t *testing.T) {
	t.Parallel()
	throughProxy(t, func(t *testing.T, p *proxied) {
		require.NoError(t, p.incr(t))
		p.BlackHoleReplies(true)
		requireTimeout(t, p.impatient(t))
		p.BlackHoleReplies(false)
		assert.Equal(t, 2, p.count(t), "the server must have received the request")

		_, got := p.subscribe(t)
		require.NoError(t, p.incr(t))
		p.BlackHoleRequests(true)
		requireTimeout(t, p.impatient(t))
		require.EqualValues(t, 1, p.listeners(t, "still heard"))
		assert.Equal(t, "still heard", (<-got).Payload)
		p.BlackHoleRequests(false)
		assert.Equal(t, 3, p.count(t))
	})
}

func TestConnectionThatLostBytesStaysSilent(t *testing.T) {
	throughProxy(t, func(t *testing.T, p *proxied) {
		_, got := p.subscribe(t)
		p.BlackHoleReplies(true)
		// The server does not know, and counts the subscriber.
		require.EqualValues(t, 1, p.listeners(t, "lost"))
		require.Eventually(t, func() bool { return p.Swallowed() == 1 }, 5*time.Second, time.Millisecond)
		p.BlackHoleReplies(false)
		require.EqualValues(t, 1, p.listeners(t, "lost too"))
		require.Eventually(t, func() bool { return p.Swallowed() == 2 }, 5*time.Second, time.Millisecond)
		p.Cut()
		// go-redis subscribes again by itself; until then these are lost, too.
		require.Eventually(t, func() bool {
			require.NoError(t, p.direct.Publish(context.Background(), p.key, "after").Err())
			select {
			case m := <-got:
				return assert.Equal(t, "after", m.Payload)
			default:
				return false
			}
		}, 5*time.Second, 10*time.Millisecond)
	})
}

func TestServerKeepsAClientThatDiedInABlackHole(t *testing.T) {
	throughProxy(t, func(t *testing.T, p *proxied) {
		ps, _ := p.subscribe(t)
		p.BlackHole(true)
		require.NoError(t, ps.Close())
		assert.EqualValues(t, 1, p.listeners(t, ""))
		p.BlackHole(false)
		p.Cut()
		require.Eventually(t, func() bool {
			return p.listeners(t, "") == 0
		}, 5*time.Second, 10*time.Millisecond)
	})
}

func TestDelayIsLatencyAndNotBandwidth(t *testing.T) {
	const d = 40 * time.Millisecond
	throughProxy(t, func(t *testing.T, p *proxied) {
		require.NoError(t, p.incr(t))
		p.Delay(d)
		start := time.Now()
		require.NoError(t, p.incr(t))
		assert.GreaterOrEqual(t, time.Since(start), 2*d)

		start = time.Now()
		_, err := p.client.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
			for range 100 {
				pipe.Incr(t.Context(), p.key)
			}
			return nil
		})
		require.NoError(t, err)
		// If the delay were paid per command this would take 100*d at least. The rest is
		// for a busy machine.
		assert.Less(t, time.Since(start), 50*d)
		assert.Equal(t, 102, p.count(t))

		p.Delay(0)
		require.NoError(t, p.incr(t))
	})
}

func TestDropReplyExecutesTheCommand(t *testing.T) {
	throughProxy(t, func(t *testing.T, p *proxied) {
		require.NoError(t, p.incr(t))
		dropped := p.DropReply(redistest.Containing("INCR", p.key))
		require.NoError(t, p.client.Incr(t.Context(), p.key+"other").Err())
		requireReset(t, p.incr(t))
		<-dropped
		assert.Equal(t, 2, p.count(t))
		require.NoError(t, p.incr(t), "one shot")
		assert.Equal(t, 3, p.count(t))
	})
}

// By hand, as go-redis gives the error of one command to the whole pipeline.
func TestDropReplyFindsTheRightReply(t *testing.T) {
	sent := func(words ...string) (all string) {
		for _, word := range words {
			all += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
		}
		return fmt.Sprintf("*%d\r\n%s", len(words), all)
	}
	for name, c := range map[string]struct{ requests, replies string }{
		"pipeline": {
			sent("ECHO", "a") + sent("ECHO", "b") + sent("ECHO", "c") + sent("ECHO", "d"),
			"$1\r\na\r\n$1\r\nb\r\n",
		},
		"subscriptions": {
			sent("SUBSCRIBE", "a", "b") + sent("SUBSCRIBE", "c"),
			"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				p := redistest.NewProxy(t, s)
				dropped := p.DropReply(func(cmd []string) bool { return cmd[1] == "c" })
				conn, err := net.Dial(p.Network(), p.Addr())
				require.NoError(t, err)
				defer func() { _ = conn.Close() }()
				_, err = io.WriteString(conn, c.requests)
				require.NoError(t, err)
				got, err := io.ReadAll(conn)
				require.NoError(t, err)
				assert.Equal(t, c.replies, string(got))
				<-dropped
			})
		})
	}
}

func TestDropReplyOfASubscription(t *testing.T) {
	throughProxy(t, func(t *testing.T, p *proxied) {
		dropped := p.DropReply(redistest.Containing("subscribe", p.key))
		ps := p.client.Subscribe(t.Context(), p.key)
		defer func() { _ = ps.Close() }()
		_, err := ps.Receive(t.Context())
		requireReset(t, err)
		<-dropped
		got, err := ps.Receive(t.Context())
		require.NoError(t, err, "go-redis subscribes again")
		assert.Equal(t, "subscribe", got.(*redis.Subscription).Kind)
	})
}

// The commands of a subscriber, with messages between their replies: the proxy
// must not take one for the other.
func TestDropReplyOnASubscribersConnection(t *testing.T) {
	throughProxy(t, func(t *testing.T, p *proxied) {
		ps := p.client.Subscribe(t.Context(), p.key, p.key+"2")
		defer func() { _ = ps.Close() }()
		dropped := p.DropReply(redistest.Containing("ping", "mark"))
		for _, want := range []string{p.key, p.key + "2"} {
			got, err := ps.Receive(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, got.(*redis.Subscription).Channel)
		}
		require.NoError(t, ps.Unsubscribe(t.Context(), p.key+"2"))
		_, err := ps.Receive(t.Context())
		require.NoError(t, err)
		require.NoError(t, p.direct.Publish(t.Context(), p.key, "before").Err())
		got, err := ps.Receive(t.Context())
		require.NoError(t, err)
		require.Equal(t, "before", got.(*redis.Message).Payload)
		require.NoError(t, ps.Ping(t.Context(), "other"))
		got, err = ps.Receive(t.Context())
		require.NoError(t, err)
		require.Equal(t, "other", got.(*redis.Pong).Payload)

		require.NoError(t, ps.Ping(t.Context(), "mark"))
		_, err = ps.Receive(t.Context())
		requireReset(t, err)
		<-dropped
	})
}

// The server has to wait with its answer, so that the end of the connection gets
// there before it.
func TestReleaseWaitsForTheAnswerToAClientThatLeft(t *testing.T) {
	throughProxy(t, func(t *testing.T, p *proxied) {
		ctx := t.Context()
		require.NoError(t, p.client.Ping(ctx).Err())
		require.NoError(t, p.direct.Ping(ctx).Err())
		caught, release := p.HoldRequest(redistest.Containing("blpop", p.key))
		failed := later(func() error { return p.client.BLPop(ctx, 0, p.key).Err() })
		<-caught
		require.NoError(t, p.client.Close())
		require.Error(t, <-failed)

		released := later(func() error { release(); return nil })
		select {
		case <-released:
			t.Error("released before the server has answered")
		case <-time.After(20 * time.Millisecond):
		}
		require.NoError(t, p.direct.RPush(ctx, p.key, "x").Err())
		<-released
		assert.Zero(t, p.direct.LLen(ctx, p.key).Val(), "the late request must have taken it")

		if m := p.server.Mini(); m != nil {
			require.Eventually(t, func() bool { return m.CurrentConnectionCount() == 1 },
				5*time.Second, time.Millisecond, "only the direct client may be left")
		}
	})
}

func TestHeldRequestArrivesAfterACut(t *testing.T) {
	throughProxy(t, func(t *testing.T, p *proxied) {
		caught, release := p.HoldRequest(redistest.Containing("incr", p.key))
		failed := later(func() error { return p.incr(t) })
		<-caught
		p.Cut()
		requireReset(t, <-failed)
		require.NoError(t, p.incr(t), "others overtake it")
		release()
		assert.Equal(t, 2, p.count(t))
	})
}

func TestReleaseWaitsForWhatStillComesAndNothingElse(t *testing.T) {
	t.Parallel()
	throughProxy(t, func(t *testing.T, p *proxied) {
		isIncr := redistest.Containing("incr", p.key)
		caught, release := p.HoldRequest(isIncr)
		release()
		require.NoError(t, p.incr(t))
		select {
		case <-caught:
			t.Error("caught after release")
		default:
		}

		caught, release = p.HoldRequest(isIncr)
		done := later(func() error { return p.incr(t) })
		<-caught
		release()
		release() // may be called twice, as by a defer
		require.NoError(t, <-done, "a patient client is answered")
		assert.Equal(t, 2, p.count(t))

		caught, release = p.HoldRequest(isIncr)
		requireTimeout(t, p.impatient(t))
		<-caught
		p.BlackHole(true)
		release()
		assert.Equal(t, 2, p.count(t), "the black hole has it")
	})
}

func TestDropPushLosesMatchingMessagesOnly(t *testing.T) {
	throughProxy(t, func(t *testing.T, p *proxied) {
		ctx := t.Context()
		_, got := p.subscribe(t)
		pattern := p.client.PSubscribe(ctx, p.key+"*")
		defer func() { _ = pattern.Close() }()
		_, err := pattern.Receive(ctx)
		require.NoError(t, err)

		var seen atomic.Int32
		p.DropPush(func(channel, payload string) bool {
			seen.Add(1)
			return channel == p.key && payload == "lost"
		})
		require.EqualValues(t, 2, p.listeners(t, "lost"))
		require.EqualValues(t, 2, p.listeners(t, "heard"))
		assert.Equal(t, "heard", (<-got).Payload)
		assert.Equal(t, "heard", (<-pattern.Channel()).Payload)
		assert.EqualValues(t, 4, seen.Load())

		p.DropPush(nil)
		require.NoError(t, p.direct.Publish(ctx, p.key, "lost").Err())
		assert.Equal(t, "lost", (<-got).Payload)
	})
}

func TestProxyOutlivesItsServer(t *testing.T) {
	s := redistest.Real(t)
	p := redistest.NewProxy(t, s)
	c := p.Client(t, noRetries)
	require.NoError(t, c.Ping(t.Context()).Err())
	s.Kill()
	require.Error(t, c.Ping(t.Context()).Err())
	s.Restart()
	require.Eventually(t, func() bool { return c.Ping(context.Background()).Err() == nil },
		5*time.Second, 10*time.Millisecond)
}
