package fault_test

import (
	"context"
	"math/rand/v2"
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
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/internal/test/referee"
)

// forger hears everything on all channels, and says it again, changed or made up, as fast as it
// can. It has no rights but those on channels.
type forger struct {
	rdb *redis.Client

	mu       sync.Mutex
	said     map[string]bool // by the forger itself
	channels []string
	messages []string
	tokens   []string
}

// forge lets a stranger with the right to the channels loose until the test ends.
func forge(t *testing.T, l *lab.Lab) *forger {
	t.Helper()
	user := l.User("stranger", "&*", "+publish", "+psubscribe", "+pubsub", "+ping")
	f := &forger{rdb: l.Server.Client(t, user), said: map[string]bool{}}
	require.ErrorContains(t, f.rdb.Get(t.Context(), l.Key("x")).Err(), "NOPERM")
	ears := f.rdb.PSubscribe(t.Context(), "*")
	_, err := ears.Receive(t.Context())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() {
		for m := range ears.Channel(redis.WithChannelSize(10000)) {
			if !f.learn(m) {
				continue
			}
			// At once, too: on a Cluster that may even come first.
			f.say(ctx, m.Channel, f.edits(m.Payload))
		}
	})
	work.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(time.Millisecond)
			f.mu.Lock()
			var channel, message string
			if n := len(f.messages); n > 0 { // mostly late ones
				i := n - 1 - min(rand.IntN(n), rand.IntN(n), rand.IntN(n))
				channel, message = f.channels[i], f.messages[i]
			}
			f.mu.Unlock()
			if message != "" {
				f.say(ctx, channel, append(f.edits(message), message))
			}
		}
	})
	t.Cleanup(func() {
		stop()
		assert.NoError(t, ears.Close())
		work.Wait()
		t.Logf("%d messages were forged from %d", len(f.said), len(f.messages))
		assert.NotEmpty(t, f.said)
	})
	return f
}

func (f *forger) say(ctx context.Context, channel string, messages []string) {
	f.mu.Lock()
	for _, m := range messages {
		f.said[m] = true
	}
	f.mu.Unlock()
	_, _ = f.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, m := range messages {
			p.Publish(ctx, channel, m)
		}
		return nil
	})
}

// learn remembers what was heard, unless it is the forger's own.
func (f *forger) learn(m *redis.Message) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.said[m.Payload] {
		return false
	}
	for line := range strings.Lines(m.Payload) {
		if word := strings.Fields(line); len(word) > 1 && word[0] != "ping" {
			f.tokens = append(f.tokens, word[1])
		}
	}
	f.channels, f.messages = append(f.channels, m.Channel), append(f.messages, m.Payload)
	return true
}

// edits returns what can be made of a message.
func (f *forger) edits(message string) (all []string) {
	f.mu.Lock()
	tokens := f.tokens[max(0, len(f.tokens)-8):]
	f.mu.Unlock()
	say := func(news string) {
		all = append(all, news, news+"\n"+strings.Repeat("0", 40))
		if end := strings.LastIndexByte(message, '\n'); end > 0 { // under a seal that is genuine
			all = append(all, news+message[end:])
		}
	}
	fence := strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10)
	for _, token := range tokens {
		ask := strconv.Itoa(1 + rand.IntN(8))
		say("granted " + token + " " + ask + " 1 1")
		say("granted " + token + " " + ask + " " + fence + " 32")
		say("granted " + token + " 18446744073709551615 1 1")
		say("lost " + token)
		say("ask " + token)
		say("wanted " + token)
	}
	say("ping 18446744073709551615")
	lines := strings.Split(message, "\n")
	rand.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	all = append(all, strings.Join(lines, "\n"))
	if word := strings.Fields(message); len(word) > 4 && word[0] == "granted" {
		word[2], word[3] = "9", fence
		all = append(all, strings.Join(word[:5], " ")+message[strings.IndexByte(message+"\n", '\n'):])
	}
	i := rand.IntN(len(message) + 1)
	return append(all, message[:i]+strconv.Itoa(rand.IntN(10))+message[min(i+1, len(message)):], message[:i])
}

// A right to the channels alone, which every user has on Redis 6.2 unless told otherwise, is no
// right to the locks.
func TestForgedNewsMakesNoHolderAndEndsNoLease(t *testing.T) {
	redistest.SoakOnly(t)
	l := lab.New(t, redistest.Real(t))
	l.Remember()
	forge(t, l)
	const (
		ttl     = 3 * time.Second
		clients = 4
	)
	r := referee.Referee{Limit: 1}
	ctx, stop := context.WithTimeout(t.Context(), 4*time.Second)
	defer stop()
	var work sync.WaitGroup
	var longest atomic.Int64
	for i := range clients {
		// With linger a holder is told when somebody waits, and so the stranger hears its token.
		c := l.Open(l.Server.Client(t), holdfast.WithTTL(ttl), holdfast.WithLinger(time.Hour))
		work.Go(func() {
			for ctx.Err() == nil {
				wait, cancel := context.WithTimeout(t.Context(), lab.Patience)
				began := time.Now()
				// Some leave the queue: the next ones are told to ask.
				if i == 1 && rand.IntN(4) == 0 {
					cancel()
					wait, cancel = context.WithTimeout(t.Context(), time.Duration(rand.IntN(5))*time.Millisecond)
				}
				lease, err := c.Mutex("x").Lease(wait)
				cancel()
				if err != nil {
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					continue
				}
				longest.Store(max(longest.Load(), int64(time.Since(began))))
				r.EnterWith(1, lease.Fence())
				assert.Less(t, lease.Fence(), time.Now().Add(time.Minute).UnixMicro())
				time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
				assert.NoError(t, lease.Err())
				r.Leave(1)
				assert.NoError(t, lease.Release(t.Context()))
			}
		})
	}
	work.Wait()
	t.Logf("%d entries, the longest wait took %v", r.Entries(), time.Duration(longest.Load()))
	r.RequireFair(t, r.Entries())
	assert.Greater(t, r.Entries(), int64(20))
	assert.Less(t, time.Duration(longest.Load()), lab.Patience)
}

// A stranger is told of a waiter whose lease another one has: nothing that it says then makes a
// holder of the waiter, keeps it from its grant or ends the lease.
func TestForgedNewsReachesNoWaiter(t *testing.T) {
	l := lab.New(t, redistest.Real(t))
	l.Remember()
	forge(t, l)
	a, b := l.Near(), l.Near()
	const lasts = 3 * time.Second
	held, err := a.Mutex("x", holdfast.WithTTL(lasts), holdfast.WithoutRenewal()).Lease(t.Context())
	require.NoError(t, err)
	first := l.Wait(b, "x")
	l.UntilQueue("x", 1)
	second := l.Wait(b, "x")
	l.UntilQueue("x", 2)
	first.Cancel(context.Canceled)
	l.UntilQueue("x", 1) // the second is told to ask, for the lease ends before it would
	lease := second.Granted(lasts + lab.Soon)
	require.Error(t, held.Err(), "FOUL: two hold the lock, by the fences %d and %d", held.Fence(), lease.Fence())
	require.Greater(t, lease.Fence(), held.Fence(), "FOUL: fences went back")

	next := l.Wait(a, "x")
	l.UntilQueue("x", 1)
	time.Sleep(500 * time.Millisecond) // for the forger
	require.NoError(t, lease.Err())
	require.NoError(t, lease.Release(t.Context()))
	end := next.Granted(lab.Soon)
	require.Greater(t, end.Fence(), lease.Fence(), "FOUL: fences went back")
	require.NoError(t, end.Release(t.Context()))
}
