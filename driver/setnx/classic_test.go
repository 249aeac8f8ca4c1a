package setnx_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/setnx"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// plain is a program with SET NX PX, written step by step, so that a test can hold it up between
// any two.
type plain struct {
	*testing.T
	rdb   *redis.Client
	value string
}

const plainTTL = time.Second

func (p *plain) lock() bool {
	p.Helper()
	ok, err := p.rdb.SetNX(p.Context(), "a", p.value, plainTTL).Result()
	require.NoError(p, err)
	return ok
}

// owns is what a careful program asks before it deletes.
func (p *plain) owns() bool { return p.rdb.Get(p.Context(), "a").Val() == p.value }

func (p *plain) del() { require.NoError(p, p.rdb.Del(p.Context(), "a").Err()) }

// extend is a bare EXPIRE.
func (p *plain) extend() { require.NoError(p, p.rdb.PExpire(p.Context(), "a", plainTTL).Err()) }

// unlock compares and deletes in one step.
func (p *plain) unlock() bool {
	p.Helper()
	const script = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`
	n, err := p.rdb.Eval(p.Context(), script, []string{"a"}, p.value).Int64()
	require.NoError(p, err)
	return n == 1
}

// late has a plain program do something that was due while it held the lock, after a lease of ours
// has begun, and reports whether that has cost us the lock.
func late(t *testing.T, value string, before, after func(*plain)) (lost bool) {
	t.Helper()
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		a, us := &plain{t, s.Client(t), value}, setnx.New(s.Client(t))
		require.True(t, a.lock())
		before(a)
		time.Sleep(plainTTL + time.Millisecond)
		g, err := us.Acquire(t.Context(), request("a", "us"))
		require.NoError(t, err)
		require.Equal(t, driver.Granted, g.Status)
		after(a)

		g, err = us.Acquire(t.Context(), request("a", "third"))
		require.NoError(t, err)
		lost = g.Status == driver.Granted
		if lost { // There is nothing we can do but notice.
			require.ErrorIs(t, us.Renew(t.Context(), []driver.Lease{lease("a", "us")})[0], driver.ErrNotHeld)
			require.ErrorIs(t, us.Release(t.Context(), lease("a", "us")), driver.ErrNotHeld)
		}
	})
	return lost
}

func TestLateBareDeleteFreesTheLockOfTheNext(t *testing.T) {
	require.True(t, late(t, "A", func(*plain) {}, (*plain).del))
}

// The value is compared while it is the own one, and the packet of the DEL comes late.
func TestLateDeleteAfterAComparisonFreesTheLockOfTheNext(t *testing.T) {
	require.True(t, late(t, "A", func(a *plain) { require.True(t, a.owns()) }, (*plain).del))
}

func TestComparisonAndDeleteInOneStepFreeNoLockOfAnother(t *testing.T) {
	require.False(t, late(t, "A", func(*plain) {}, func(a *plain) { require.False(t, a.unlock()) }))
}

// A thread renews, so the lock does not end while A works. Then A is paused, and with it that
// thread. When it wakes up, either of the two can be first.
func TestThreadThatRenewsIsPausedWithItsProcess(t *testing.T) {
	renewing := func(a *plain) {
		for range 10 {
			time.Sleep(plainTTL / 2)
			a.extend()
		}
		require.True(t, a.owns(), "for five leases")
	}
	require.True(t, late(t, "A", renewing, (*plain).del))
	require.False(t, late(t, "A", renewing, func(a *plain) {
		a.extend() // which shortens our lease to one of A's
		left := a.rdb.PTTL(a.Context(), "a").Val()
		require.LessOrEqual(t, left, plainTTL)
	}))
}

// A value of time, host and address: two goroutines have one at the same time, as have two
// containers of one name and address, and one program after its clock was set back. Then even the
// comparison in one step frees the lock of another.
func TestValueOfTimeHostAndAddressIsThatOfTwo(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		start := time.Now()
		stepped := time.Duration(0) // of the clock
		value := func() string {
			return fmt.Sprintf("%d-%s-%s", time.Now().Add(stepped).UnixNano(), "web", "10.0.0.7")
		}
		one, two := &plain{t, s.Client(t), value()}, &plain{t, s.Client(t), value()}
		require.True(t, one.lock())
		require.True(t, two.unlock(), "it never had the lock")

		require.True(t, one.lock())
		time.Sleep(plainTTL + time.Millisecond)
		stepped = time.Until(start)
		next := &plain{t, s.Client(t), value()}
		require.True(t, next.lock())
		require.True(t, one.unlock(), "its lease is over")

		seen := map[string]bool{}
		for range 100 {
			locks := holdfast.Open(setnx.New(s.Client(t)))
			for range 10 {
				l, err := locks.Mutex("b").TryLease(t.Context())
				require.NoError(t, err)
				seen[s.Client(t).Get(t.Context(), "b").Val()] = true
				require.NoError(t, l.Release(t.Context()))
			}
			require.NoError(t, locks.Close())
		}
		require.Len(t, seen, 1000, "ours are random")
	})
}

// Tokens of other programs are of any bytes, and so are the strings that a database keeps.
func TestHolderIsAtMostTheBeginningOfTheValue(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, d, name := s.Client(t), setnx.New(s.Client(t)), s.Prefix()+"a"
		long := make([]byte, 1<<20)
		for i := range long {
			long[i] = byte(i)
		}
		for _, value := range []string{"", "\x00\xff\n", "a token", string(long)} {
			require.NoError(t, rdb.Set(t.Context(), name, value, time.Minute).Err())
			info, err := d.Inspect(t.Context(), driver.Mutex, name)
			require.NoError(t, err)
			require.Len(t, info.Holders, 1)
			require.Equal(t, value[:min(len(value), 256)], info.Holders[0].Holder)
			g, err := d.Acquire(t.Context(), request(name, "us"))
			require.NoError(t, err)
			require.Equal(t, info.Holders[0].Holder, g.Holder)
		}
	})
}
