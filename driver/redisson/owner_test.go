package redisson_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisson"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// of is a request and a lease on behalf of an owner.
func of(owner, name, token string, ttl time.Duration) (*driver.Request, driver.Lease) {
	r, l := request(name, token), lease(name, token)
	r.Owner, l.Owner, r.TTL, l.TTL = owner, owner, ttl, ttl
	return r, l
}

func TestTokensOfAnOwnerAreCountedOnceEach(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, a, b := s.Client(t), redisson.New(s.Client(t)), redisson.New(s.Client(t))
		name := s.Prefix() + "a"
		holds := "holdfast:redisson:holds:{" + name + "}"
		first, firstLease := of("o", name, "t1", long)
		second, secondLease := of("o", name, "t2", long)
		granted(t, a, first)
		for range 3 {
			granted(t, b, second)
		}
		require.Equal(t, map[string]string{"owner o": "2"}, rdb.HGetAll(t.Context(), name).Val())
		require.Equal(t, []string{"t1", "t2"}, rdb.ZRange(t.Context(), holds, 0, -1).Val())
		require.InDelta(t, rdb.PTTL(t.Context(), name).Val(), rdb.PTTL(t.Context(), holds).Val(), float64(5*time.Second))

		require.NoError(t, b.Release(t.Context(), firstLease))
		for range 2 { // A repeat releases nothing more.
			require.ErrorIs(t, b.Release(t.Context(), firstLease), driver.ErrNotHeld)
		}
		require.Equal(t, map[string]string{"owner o": "1"}, rdb.HGetAll(t.Context(), name).Val())
		busy(t, a, request(name, "you"))
		require.ErrorIs(t, a.Renew(t.Context(), []driver.Lease{firstLease})[0], driver.ErrNotHeld)
		require.NoError(t, a.Renew(t.Context(), []driver.Lease{secondLease})[0])
		require.NoError(t, a.Release(t.Context(), secondLease))
		require.Empty(t, s.Keys(t, s.Prefix()))
		require.Empty(t, beside(t, s))
		granted(t, a, request(name, "you"))
		busy(t, a, first)
	})
}

func TestEachTokenOfAnOwnerHasALeaseOfItsOwn(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		rdb, d := s.Client(t), redisson.New(s.Client(t))
		longer, longerLease := of("o", "a", "longer", time.Minute)
		short, shortLease := of("o", "a", "short", 10*time.Second)
		granted(t, d, longer)
		granted(t, d, short)
		time.Sleep(9 * time.Second)
		require.NoError(t, d.Renew(t.Context(), []driver.Lease{shortLease})[0])
		time.Sleep(12 * time.Second)
		require.ErrorIs(t, d.Renew(t.Context(), []driver.Lease{shortLease})[0], driver.ErrNotHeld, "revived")
		require.ErrorIs(t, d.Release(t.Context(), shortLease), driver.ErrNotHeld)
		require.NoError(t, d.Renew(t.Context(), []driver.Lease{longerLease})[0])
		require.Equal(t, "1", rdb.HGet(t.Context(), "a", "owner o").Val())

		// The hold that is left lasts no longer than its own lease.
		granted(t, d, short)
		require.NoError(t, d.Release(t.Context(), longerLease))
		busy(t, d, request("a", "you"))
		time.Sleep(11 * time.Second)
		granted(t, d, request("a", "you"))
	})
}

func TestDeadTokensOfAnOwnerAreNotCounted(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		d := redisson.New(s.Client(t))
		dead, _ := of("o", "a", "dead", 10*time.Second)
		alive, _ := of("o", "a", "alive", time.Minute)
		granted(t, d, dead)
		granted(t, d, alive)
		time.Sleep(11 * time.Second)
		next, _ := of("o", "a", "next", time.Minute)
		granted(t, d, next)
		require.Equal(t, "2", s.Client(t).HGet(t.Context(), "a", "owner o").Val())
	})
}

func TestDeadTokensOfAnOwnerDoNotHoldUpTheNews(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		d := open(t, s.Client(t))
		dead, _ := of("o", "a", "dead", 10*time.Second)
		alive, aliveLease := of("o", "a", "alive", time.Minute)
		granted(t, d, dead)
		granted(t, d, alive)
		e := newWaiting(t, d, "a", "me")
		e.told()
		time.Sleep(11 * time.Second)
		require.NoError(t, d.Release(t.Context(), aliveLease))
		e.told()
		granted(t, d, e.r)
	})
}

// The entries beside the lock outlive it when Java takes it by force. They must not count for
// the owner's next hold.
func TestHoldsThatJavaEndedAreForgotten(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		d, name, j := redisson.New(s.Client(t)), s.Prefix()+"a", newJava(s.Client(t))
		before, beforeLease := of("o", name, "before", long)
		granted(t, d, before)
		require.True(t, j.forceUnlock(t, name))
		require.ErrorIs(t, d.Renew(t.Context(), []driver.Lease{beforeLease})[0], driver.ErrNotHeld)
		j.mustLock(t, name, long)
		require.ErrorIs(t, d.Release(t.Context(), beforeLease), driver.ErrNotHeld)
		_, err := j.unlock(t.Context(), name)
		require.NoError(t, err)

		after, afterLease := of("o", name, "after", long)
		granted(t, d, after)
		require.ErrorIs(t, d.Release(t.Context(), beforeLease), driver.ErrNotHeld)
		require.NoError(t, d.Release(t.Context(), afterLease))
		require.Empty(t, s.Keys(t, s.Prefix()))
	})
}

func TestOwnersAreTheTextAndNothingElse(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		d, name := redisson.New(s.Client(t)), s.Prefix()+"a"
		mine, _ := of("o", name, "o", long)
		granted(t, d, mine)
		for i, owner := range []string{"", "O", "o ", "owner o", "\x00", strings.Repeat("o", driver.MaxOwner)} {
			r, _ := of(owner, name, fmt.Sprint("t", i), long)
			busy(t, d, r)
		}
		tooLong, _ := of(strings.Repeat("o", driver.MaxOwner+1), name, "t", long)
		_, err := d.Acquire(t.Context(), tooLong)
		require.ErrorIs(t, err, driver.ErrNotExecuted)
	})
}

// With Redisson, a thread that serves one request after another re-enters what an earlier
// one has not given up, and does not know. Here nothing is done on behalf of a goroutine,
// nor of a client.
func TestNobodyReentersByAccident(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, name := s.Client(t), s.Prefix()+"a"
		j, other := newJava(rdb), newJava(rdb)
		j.mustLock(t, name, long)
		j.mustLock(t, name, long) // the next request, on the same thread: the trap
		other.refused(t, name)    // the thread of the same number in another program
		locks := holdfast.Open(redisson.New(rdb))
		defer func() { require.NoError(t, locks.Close()) }()
		// Nor does anybody re-enter who calls himself what a thread of Java is called.
		d := redisson.New(rdb)
		posing, posingLease := of(j.id(), name, "t", long)
		busy(t, d, posing)
		require.ErrorIs(t, d.Renew(t.Context(), []driver.Lease{posingLease})[0], driver.ErrNotHeld)
		require.ErrorIs(t, d.Release(t.Context(), posingLease), driver.ErrNotHeld)
		require.True(t, j.forceUnlock(t, name))

		earlier, err := locks.Mutex(name).TryLease(t.Context())
		require.NoError(t, err)
		_, err = locks.Mutex(name).TryLease(t.Context()) // the next request, on the same goroutine
		require.ErrorIs(t, err, holdfast.ErrLocked)
		second := holdfast.Open(redisson.New(rdb))
		defer func() { require.NoError(t, second.Close()) }()
		_, err = second.Mutex(name).TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		require.Equal(t, []string{"1"}, rdb.HVals(t.Context(), name).Val())
		require.Contains(t, earlier.Token(), rdb.HKeys(t.Context(), name).Val()[0], "the field is the acquisition")
		require.NoError(t, earlier.Release(t.Context()))
	})
}
