package redisson_test

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/drivertest"
	"github.com/holdfast-go/holdfast/driver/internal/foreigntest"
	"github.com/holdfast-go/holdfast/driver/redisson"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// fenced are locks as RFencedLock has them.
var fenced = redisson.WithMutex(redisson.FencedLock)

func fencedProtocol() foreigntest.Protocol {
	p := protocol
	p.New = func(rdb redis.UniversalClient, prefix string) driver.Driver {
		return redisson.New(rdb, redisson.WithPrefix(prefix), fenced)
	}
	p.RWMutex = false
	p.Abilities = append(slices.DeleteFunc(slices.Clone(p.Abilities), func(a drivertest.Ability) bool { return a == drivertest.RWMutex }), drivertest.Fences)
	p.Counters = "redisson_lock_token:"
	return p
}

func TestConformanceOfFencedLocksInVirtualTime(t *testing.T) {
	fencedProtocol().ConformanceInVirtualTime(t)
}

// fencedTransitions are the states of RFencedLock as RedissonFencedLock.java of 4.7 makes them: the
// hash of RLock, and a counter beside it that never ends. Each acquisition counts; a thread that
// enters again is another acquisition there, and here it is not. J:1 is a thread of Java, me, you
// and us are tokens of ours.
var fencedTransitions = []struct {
	name   string
	before hash
	count  int64 // 0 for no counter
	do     string
	fence  int64 // of the grant; -1 for refused or not held
	after  hash
	then   int64
}{
	{"never used, Java acquires", nil, 0, "Java", 1, hash{"J:1": "1"}, 1},
	{"never used, acquire", nil, 0, "me", 1, hash{"me": "1"}, 1},
	{"free, Java acquires", nil, 7, "Java", 8, hash{"J:1": "1"}, 8},
	{"free, acquire", nil, 7, "me", 8, hash{"me": "1"}, 8},
	{"Java holds, acquire", hash{"J:1": "1"}, 7, "me", -1, hash{"J:1": "1"}, 7},
	{"Java holds, Java enters again", hash{"J:1": "1"}, 7, "Java", 8, hash{"J:1": "2"}, 8},
	{"Java holds twice, acquire", hash{"J:1": "2"}, 8, "me", -1, hash{"J:1": "2"}, 8},
	{"we hold, Java acquires", hash{"me": "1"}, 7, "Java", -1, hash{"me": "1"}, 7},
	{"we hold, the ask is repeated", hash{"me": "1"}, 7, "me", 7, hash{"me": "1"}, 7},
	{"we hold, renew", hash{"me": "1"}, 7, "renew", 0, hash{"me": "1"}, 7},
	{"we hold, release", hash{"me": "1"}, 7, "release", 0, hash{}, 7},
	{"we hold, force", hash{"me": "1"}, 7, "force", 0, hash{}, 7},
	{"Java holds, release", hash{"J:1": "1"}, 7, "release", -1, hash{"J:1": "1"}, 7},
	{"Java holds, Java unlocks", hash{"J:1": "1"}, 7, "unlock", 0, hash{}, 7},
	{"free, an owner acquires", nil, 7, "owner", 8, hash{"owner o": "1"}, 8},
	{"the owner holds, another token of it", hash{"owner o": "1"}, 8, "owner", 8, hash{"owner o": "1"}, 8},
	{"the counter is beyond what Lua counts, acquire", nil, 1<<53 + 2, "me", 1<<53 + 3, hash{"me": "1"}, 1<<53 + 3},
	{"the counter is beyond what Lua counts, an owner acquires", nil, 1<<53 + 2, "owner", 1<<53 + 3, hash{"owner o": "1"}, 1<<53 + 3},
	{"the counter is near its end, acquire", nil, math.MaxInt64 - 1, "me", math.MaxInt64, hash{"me": "1"}, math.MaxInt64},
	{"the counter was deleted, the ask is repeated", hash{"me": "1"}, 0, "me", 1, hash{"me": "1"}, 1},
}

func TestFencedLockGoesThroughTheStatesOfRedisson(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, d := s.Client(t), redisson.New(s.Client(t), fenced)
		for i, c := range fencedTransitions {
			name := s.Prefix() + string(rune('a'+i))
			counter := prefixed("redisson_lock_token", name)
			if c.before != nil {
				require.NoError(t, rdb.HSet(t.Context(), name, c.before).Err())
				require.NoError(t, rdb.PExpire(t.Context(), name, long).Err())
			}
			if c.count != 0 {
				require.NoError(t, rdb.Set(t.Context(), counter, c.count, 0).Err())
			}
			require.Equal(t, c.fence, doFenced(t, d, rdb, name, c.do), c.name)
			require.Equal(t, c.after, rdb.HGetAll(t.Context(), name).Val(), c.name)
			require.Equal(t, strconv.FormatInt(c.then, 10), rdb.Get(t.Context(), counter).Val(), c.name)
			require.Equal(t, time.Duration(-1), rdb.PTTL(t.Context(), counter).Val(), c.name)
			if len(c.after) > 0 {
				require.Positive(t, rdb.PTTL(t.Context(), name).Val(), c.name)
			}
		}
	})
}

// doFenced returns the fence of a grant, 0 for what has none, and -1 for a refusal.
func doFenced(t *testing.T, d *redisson.Driver, rdb *redis.Client, name, do string) int64 {
	t.Helper()
	r, l := of("", name, "me", long)
	j := java{rdb, "J", 1, "PUBLISH"}
	var err error
	switch do {
	case "owner":
		r, _ = of("o", name, "us", long)
		fallthrough
	case "me":
		var g driver.Grant
		if g, err = d.Acquire(t.Context(), r); err == nil && g.Status == driver.Granted {
			return g.Fence
		}
		require.NoError(t, err)
		return -1
	case "Java":
		_, fence := j.tryFenced(t, name)
		return fence
	case "unlock":
		_, err = j.unlock(t.Context(), name)
	case "renew":
		err = d.Renew(t.Context(), []driver.Lease{l})[0]
	case "release":
		err = d.Release(t.Context(), l)
	case "force":
		err = d.ForceRelease(t.Context(), l.Kind, name)
	}
	if err != nil {
		require.True(t, errors.Is(err, driver.ErrNotHeld) || errors.Is(err, errNotTheirs), "%v", err)
		return -1
	}
	return 0
}

// Threads of Java and goroutines of ours share one counter: each has a larger number than who had
// the lock before.
func TestFencesOfOursAndOfJavaIncreaseTogether(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	rdb, name := server.Client(t), server.Prefix()+"orders"
	locks := holdfast.Open(redisson.New(server.Client(t), fenced))
	defer func() { require.NoError(t, locks.Close()) }()
	var last int64
	visit := func(fence int64) { // in the lock
		assert.Greater(t, fence, last)
		last = fence
	}
	const rounds = 25
	var wg sync.WaitGroup
	for range 2 {
		j := newJava(rdb)
		wg.Go(func() {
			for range rounds {
				fence := int64(-1)
				for ; fence < 0; time.Sleep(time.Millisecond) {
					_, fence = j.tryFenced(t, name)
				}
				visit(fence)
				_, err := j.unlock(t.Context(), name)
				assert.NoError(t, err)
			}
		})
		wg.Go(func() {
			for range rounds {
				lease, err := locks.Mutex(name, holdfast.WithStrictFIFO()).Lease(t.Context())
				if !assert.NoError(t, err) {
					return
				}
				visit(lease.Fence())
				assert.NoError(t, lease.Release(t.Context()))
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 4*rounds, last, "each acquisition has counted once")
}

func TestFenceOfTheHolderIsShown(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, d, name := s.Client(t), redisson.New(s.Client(t), fenced), s.Prefix()+"a"
		shown := func() driver.Holder {
			t.Helper()
			info, err := d.Inspect(t.Context(), driver.Mutex, name)
			require.NoError(t, err)
			require.Len(t, info.Holders, 1)
			h := info.Holders[0]
			h.TimeLeft = 0
			return h
		}
		j := newJava(rdb)
		_, fence := j.tryFenced(t, name)
		require.Equal(t, driver.Holder{Holder: j.id(), Fence: fence, LastFence: fence}, shown())
		require.True(t, j.forceUnlock(t, name))
		r, _ := of("our owner", name, "me", long)
		_, err := d.Acquire(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, driver.Holder{Holder: "me", Owner: "our owner", Fence: fence + 1, LastFence: fence + 1}, shown())
	})
}

// What is there instead of a counter gives nobody a lock without a fence.
func TestNoFenceNoLock(t *testing.T) {
	s := redistest.Shared(t)
	rdb, d, name := s.Client(t), redisson.New(s.Client(t), fenced), s.Prefix()+"a"
	for _, owner := range []string{"", "o"} {
		for _, spoilt := range []string{"no number", "9223372036854775807"} {
			require.NoError(t, rdb.Set(t.Context(), prefixed("redisson_lock_token", name), spoilt, 0).Err())
			r, _ := of(owner, name, "me", long)
			_, err := d.Acquire(t.Context(), r)
			require.Error(t, err)
			require.NotErrorIs(t, err, driver.ErrTransient)
			require.Zero(t, rdb.Exists(t.Context(), name).Val())
		}
	}
}

func TestNewPanicsWithoutAForm(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:0"})
	defer func() { require.NoError(t, rdb.Close()) }()
	require.Panics(t, func() { redisson.New(rdb, redisson.WithMutex(-1)) })
	require.Panics(t, func() { redisson.New(rdb, redisson.WithMutex(99)) })
}
