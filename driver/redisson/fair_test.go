package redisson_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/drivertest"
	"github.com/holdfast-go/holdfast/driver/internal/foreigntest"
	"github.com/holdfast-go/holdfast/driver/redisson"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// fair are locks as RFairLock has them.
var fair = redisson.WithMutex(redisson.FairLock)

func fairProtocol() foreigntest.Protocol {
	p := protocol
	p.New = func(rdb redis.UniversalClient, prefix string) driver.Driver {
		return redisson.New(rdb, redisson.WithPrefix(prefix), fair, redisson.WithFairLockWaitTimeout(5*time.Second))
	}
	p.RWMutex = false
	p.Abilities = append(slices.DeleteFunc(slices.Clone(p.Abilities), func(a drivertest.Ability) bool { return a == drivertest.RWMutex }), drivertest.Queue)
	p.Counters = "redisson_lock_" // the queue of waiters that have died
	return p
}

func TestConformanceOfFairLocksInVirtualTime(t *testing.T) {
	fairProtocol().ConformanceInVirtualTime(t)
}

// queue is who waits, and in how many seconds each of them loses its place.
type queue = []struct {
	who string
	s   float64
}

// The states of RFairLock, as RedissonFairLock.java of 4.7 makes them: the hash of RLock, a list of
// those that wait, a zset of when they lose their places, and whom a message tells that the lock is
// free. J:1, J:2 and J:3 are threads of Java, me, us and dead are tokens of ours. dead has not asked
// for too long. The lock is held for 30 s where it is held, and a turn is 300 s.
var fairTransitions = []struct {
	name   string
	before hash
	queue  queue
	do     string
	want   string // what comes of it
	after  hash
	then   queue
	told   string // "" for nobody
}{
	{"free, acquire", nil, nil, "wait", "granted", hash{"me": "1"}, nil, ""},
	{"free, Java acquires", nil, nil, "Java", "granted", hash{"J:1": "1"}, nil, ""},
	{"Java holds, wait", hash{"J:2": "1"}, nil, "wait", "queued", hash{"J:2": "1"}, queue{{"me", 330}}, ""},
	{"we hold, Java waits", hash{"me": "1"}, nil, "Java", "queued", hash{"me": "1"}, queue{{"J:1", 330}}, ""},
	{"Java holds and waits, wait", hash{"J:2": "1"}, queue{{"J:3", 330}}, "wait", "queued", hash{"J:2": "1"}, queue{{"J:3", 330}, {"me", 630}}, ""},
	{"Java holds and we wait, Java waits", hash{"J:2": "1"}, queue{{"me", 330}}, "Java", "queued", hash{"J:2": "1"}, queue{{"me", 330}, {"J:1", 630}}, ""},
	{"Java holds, try", hash{"J:2": "1"}, nil, "try", "busy", hash{"J:2": "1"}, nil, ""},
	{"free, but Java is first, try", nil, queue{{"J:2", 300}}, "try", "busy", hash{}, queue{{"J:2", 300}}, ""},
	{"free, but Java is first, wait", nil, queue{{"J:2", 300}}, "wait", "queued", hash{}, queue{{"J:2", 300}, {"me", 600}}, ""},
	{"free, but we are first, Java tries", nil, queue{{"me", 300}}, "Java tries", "busy", hash{}, queue{{"me", 300}}, ""},
	{"free, but we are first, Java waits", nil, queue{{"me", 300}}, "Java", "queued", hash{}, queue{{"me", 300}, {"J:1", 600}}, ""},
	{"free and our turn, acquire", nil, queue{{"me", 300}, {"J:2", 600}, {"J:3", 900}}, "wait", "granted", hash{"me": "1"}, queue{{"J:2", 300}, {"J:3", 600}}, ""},
	{"free and the turn of Java, Java acquires", nil, queue{{"J:1", 300}, {"me", 600}}, "Java", "granted", hash{"J:1": "1"}, queue{{"me", 300}}, ""},
	{"the time of Java has passed, acquire", nil, queue{{"J:2", -1}, {"me", 300}, {"J:3", 600}}, "wait", "granted", hash{"me": "1"}, queue{{"J:3", 300}}, ""},
	{"our time has passed, Java acquires", nil, queue{{"me", -1}, {"J:1", 300}}, "Java", "granted", hash{"J:1": "1"}, nil, ""},
	{"a dead waiter of ours is first, try", nil, queue{{"dead", 300}, {"J:2", 600}}, "try", "busy", hash{}, queue{{"J:2", 300}}, "J:2"},
	{"a dead waiter of ours is first, acquire", nil, queue{{"dead", 300}, {"me", 600}, {"J:2", 900}}, "wait", "granted", hash{"me": "1"}, queue{{"J:2", 300}}, ""},
	{"a dead waiter of ours is first, Java waits", nil, queue{{"dead", 300}}, "Java", "queued", hash{}, queue{{"dead", 300}, {"J:1", 600}}, ""},
	{"a place without a time is first, acquire", nil, queue{{"ghost", 0}, {"me", 300}}, "wait", "granted", hash{"me": "1"}, nil, ""},
	{"our time has passed while Java renews, ask", hash{"J:2": "1"}, queue{{"me", -5}}, "wait", "queued", hash{"J:2": "1"}, queue{{"me", 330}}, ""},
	{"all times have passed while Java renews, ask", hash{"J:2": "1"}, queue{{"me too", -9}, {"me", -5}}, "wait", "queued", hash{"J:2": "1"}, queue{{"me too", -9}, {"me", 630}}, ""},
	{"we hold, the ask is repeated", hash{"me": "1"}, queue{{"J:2", 330}}, "wait", "granted", hash{"me": "1"}, queue{{"J:2", 330}}, ""},
	{"the owner holds, another token of it was waiting", hash{"owner o": "1"}, queue{{"J:2", 330}, {"us", 630}, {"J:3", 930}}, "owner", "granted", hash{"owner o": "1"}, queue{{"J:2", 330}, {"J:3", 630}}, ""},
	{"we hold, renew", hash{"me": "1"}, queue{{"J:2", 330}}, "renew", "done", hash{"me": "1"}, queue{{"J:2", 330}}, ""},
	{"we hold, release", hash{"me": "1"}, queue{{"J:2", 330}, {"J:3", 630}}, "release", "done", hash{}, queue{{"J:2", 330}, {"J:3", 630}}, "J:2"},
	{"Java holds, Java unlocks", hash{"J:1": "1"}, queue{{"me", 330}, {"J:3", 630}}, "unlock", "done", hash{}, queue{{"me", 330}, {"J:3", 630}}, "me"},
	{"we wait, release", hash{"J:2": "1"}, queue{{"J:3", 330}, {"me", 630}, {"J:1", 930}}, "release", "done", hash{"J:2": "1"}, queue{{"J:3", 330}, {"J:1", 630}}, ""},
	{"it is our turn, release", nil, queue{{"me", 300}, {"J:2", 600}}, "release", "done", hash{}, queue{{"J:2", 300}}, "J:2"},
	{"Java waits, Java gives up", hash{"J:2": "1"}, queue{{"J:1", 330}, {"me", 630}}, "Java gives up", "done", hash{"J:2": "1"}, queue{{"me", 330}}, ""},
	{"Java holds, release", hash{"J:2": "1"}, queue{{"J:3", 330}}, "release", "not held", hash{"J:2": "1"}, queue{{"J:3", 330}}, ""},
	{"Java holds, force", hash{"J:2": "1"}, queue{{"J:3", 330}}, "force", "done", hash{}, queue{{"J:3", 330}}, "J:3"},
}

func TestFairLockGoesThroughTheStatesOfRedisson(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, d := s.Client(t), open(t, s.Client(t), fair)
		for i, c := range fairTransitions {
			name := s.Prefix() + string(rune('A'+i))
			lock, list, ends := fairKeys(name)
			waits := "holdfast:redisson:waits:" + prefixed("", name)[1:]
			if c.before != nil {
				require.NoError(t, rdb.HSet(t.Context(), lock, c.before).Err())
				require.NoError(t, rdb.PExpire(t.Context(), lock, long).Err())
			}
			now := float64(rdb.Time(t.Context()).Val().UnixMilli())
			for _, w := range c.queue {
				require.NoError(t, rdb.RPush(t.Context(), list, w.who).Err())
				if w.s != 0 {
					require.NoError(t, rdb.ZAdd(t.Context(), ends, redis.Z{Score: now + 1000*w.s, Member: w.who}).Err())
				}
				switch {
				case w.who == "dead":
					require.NoError(t, rdb.ZAdd(t.Context(), waits, redis.Z{Score: now - 1, Member: w.who}).Err())
				case !strings.Contains(w.who, ":") && w.who != "ghost":
					require.NoError(t, rdb.ZAdd(t.Context(), waits, redis.Z{Score: now + 60_000, Member: w.who}).Err())
				}
			}
			channels := []string{channel(name) + ":"} // the last message
			for _, waiter := range []string{"J:1", "J:2", "J:3", "me", "dead"} {
				channels = append(channels, channel(name)+":"+waiter)
			}
			news := rdb.Subscribe(t.Context(), channels...)
			for range channels {
				_, err := news.Receive(t.Context())
				require.NoError(t, err)
			}
			require.Equal(t, c.want, doFair(t, d, rdb, name, c.do), c.name)
			require.Equal(t, c.after, rdb.HGetAll(t.Context(), lock).Val(), c.name)
			if len(c.after) > 0 {
				require.InDelta(t, long, rdb.PTTL(t.Context(), lock).Val(), float64(long/4), c.name)
			}
			var who []string
			for _, w := range c.then {
				who = append(who, w.who)
				require.InDelta(t, w.s, (rdb.ZScore(t.Context(), ends, w.who).Val()-now)/1000, 10, "%s: %s", c.name, w.who)
			}
			require.Equal(t, who, append([]string(nil), rdb.LRange(t.Context(), list, 0, -1).Val()...), c.name)
			require.EqualValues(t, len(who), rdb.ZCard(t.Context(), ends).Val(), c.name)
			for _, own := range rdb.ZRange(t.Context(), waits, 0, -1).Val() {
				require.Contains(t, append(who, "me"), own, c.name) // Java does not know of it, and leaves it there.
			}
			require.NoError(t, rdb.Publish(t.Context(), channel(name)+":", "end").Err())
			m, err := news.ReceiveMessage(t.Context())
			require.NoError(t, err)
			require.Equal(t, channel(name)+":"+c.told, m.Channel, c.name)
			require.NoError(t, news.Close())
		}
	})
}

func TestWaiterForAFreeLockIsToldWhenTheFirstTurnEnds(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, d, name := s.Client(t), open(t, s.Client(t), fair), s.Prefix()+"a"
		_, list, ends := fairKeys(name)
		now := float64(rdb.Time(t.Context()).Val().UnixMilli())
		require.NoError(t, rdb.RPush(t.Context(), list, "J:1").Err())
		require.NoError(t, rdb.ZAdd(t.Context(), ends, redis.Z{Score: now + float64(turn.Milliseconds()), Member: "J:1"}).Err())
		for _, token := range []string{"me", "you", "me"} {
			r, _ := of("", name, token, time.Hour)
			r.Wait = true
			g, err := d.Acquire(t.Context(), r)
			require.NoError(t, err)
			require.Equal(t, driver.Queued, g.Status)
			require.Greater(t, g.RetryAfter, turn/2)
			require.LessOrEqual(t, g.RetryAfter, turn+time.Millisecond)
		}
	})
}

// A lock that could not be given up again is not granted.
func TestNoFairLockBesideAKeyOfAnotherType(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, d, name := s.Client(t), open(t, s.Client(t), fair), s.Prefix()+"a"
		_, list, ends := fairKeys(name)
		keys := []string{list, ends, "holdfast:redisson:waits:{" + name + "}"}
		for _, key := range keys {
			require.NoError(t, rdb.Set(t.Context(), key, "x", 0).Err())
			for _, owner := range []string{"", "o"} {
				for _, wait := range []bool{false, true} {
					r, _ := of(owner, name, "me", long)
					r.Wait = wait
					_, err := d.Acquire(t.Context(), r)
					require.ErrorContains(t, err, "WRONGTYPE", key)
					require.Zero(t, rdb.Exists(t.Context(), name).Val())
					require.EqualValues(t, 1, rdb.Exists(t.Context(), keys...).Val(), "somebody waits beside %s", key)
				}
			}
			require.NoError(t, rdb.Del(t.Context(), key).Err())
		}
	})
}

func doFair(t *testing.T, d *redisson.Driver, rdb *redis.Client, name, do string) string {
	t.Helper()
	r, l := of("", name, "me", long)
	r.Wait = do != "try"
	j := java{rdb, "J", 1, "PUBLISH"}
	var err error
	switch do {
	case "owner":
		r, _ = of("o", name, "us", long)
		fallthrough
	case "wait", "try":
		g, err := d.Acquire(t.Context(), r)
		require.NoError(t, err)
		return strings.ToLower(g.Status.String())
	case "Java", "Java tries":
		_, locked, err := j.tryFair(t.Context(), name, do == "Java")
		require.NoError(t, err)
		switch {
		case locked:
			return "granted"
		case do == "Java":
			return "queued"
		}
		return "busy"
	case "Java gives up":
		err = j.giveUpFair(t.Context(), name)
	case "unlock":
		err = j.unlockFair(t.Context(), name)
	case "renew":
		err = d.Renew(t.Context(), []driver.Lease{l})[0]
	case "release":
		err = d.Release(t.Context(), l)
	case "force":
		err = d.ForceRelease(t.Context(), l.Kind, name)
	}
	if err != nil {
		require.ErrorIs(t, err, driver.ErrNotHeld)
		return "not held"
	}
	return "done"
}
