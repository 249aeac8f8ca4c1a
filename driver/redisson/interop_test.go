package redisson_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/redisson"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/internal/test/referee"
)

const (
	short = 2 * time.Second
	long  = 30 * time.Second // Redisson's lockWatchdogTimeout
	grace = 500 * time.Millisecond
)

// patient is a wait that ends by being told, or not within a test.
var patient = holdfast.WithTTL(time.Hour)

// shop is a lock that we share with Java.
type shop struct {
	*testing.T
	java
	locks *holdfast.Client
	name  string
}

// eachShop runs body with PUBLISH and with SPUBLISH, as Redisson does it.
func eachShop(t *testing.T, body func(*shop)) {
	t.Parallel()
	redistest.RequireReal(t)
	for command, opts := range map[string][]redisson.Option{"PUBLISH": nil, "SPUBLISH": {redisson.WithShardedPubSub()}} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			body(newShop(t, redistest.Shared(t), command, opts...))
		})
	}
}

// eachShopInTime is for leases that must be kept, which is a matter of time and not of the channel:
// body runs in virtual time, and in the soak with each channel of a real Redis.
func eachShopInTime(t *testing.T, body func(*shop)) {
	if redistest.Virtually() {
		t.Run("bubble", func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T, s *redistest.Server) { body(newShop(t, s, "PUBLISH")) })
		})
	}
	if redistest.Again() {
		t.Run("redis", func(t *testing.T) { eachShop(t, body) })
	}
}

func newShop(t *testing.T, server *redistest.Server, command string, opts ...redisson.Option) *shop {
	rdb := server.Client(t)
	s := &shop{T: t, java: newJava(rdb), name: server.Prefix() + "orders:42"}
	s.publishes = command
	s.locks = holdfast.Open(redisson.New(rdb, opts...))
	t.Cleanup(func() { assert.NoError(t, s.locks.Close()) })
	return s
}

func (s *shop) mutex(opts ...holdfast.LockOption) *holdfast.Mutex {
	return s.locks.Mutex(s.name, opts...)
}

// ours is the lock in our hands.
func (s *shop) ours(opts ...holdfast.LockOption) *holdfast.Lease {
	s.Helper()
	lease, err := s.mutex(opts...).TryLease(s.Context())
	require.NoError(s, err)
	return lease
}

func (s *shop) weAreRefused() {
	s.Helper()
	_, err := s.mutex().TryLease(s.Context())
	require.ErrorIs(s, err, holdfast.ErrLocked)
}

// listening waits until n clients hear what is told about the lock.
func (s *shop) listening(n int64) {
	s.Helper()
	numsub := s.rdb.PubSubNumSub
	if s.publishes == "SPUBLISH" {
		numsub = s.rdb.PubSubShardNumSub
	}
	require.Eventually(s, func() bool { return numsub(s.Context(), channel(s.name)).Val()[channel(s.name)] == n },
		10*time.Second, time.Millisecond)
}

// soon is what comes long before somebody who is not told would find out.
func soon(t *testing.T, got <-chan error) error {
	t.Helper()
	select {
	case err := <-got:
		return err
	case <-time.After(20 * time.Second):
		return errors.New("nobody was told")
	}
}

func TestJavaIsKeptOutUntilWeRelease(t *testing.T) {
	eachShop(t, func(s *shop) {
		lease := s.ours(holdfast.WithTTL(long))
		left, locked := s.tryLock(t, s.name, long)
		require.False(s, locked)
		require.Greater(s, left, long/2, "it waits as long as that for a message")
		require.LessOrEqual(s, left, long+grace)
		_, err := s.unlock(s.Context(), s.name)
		require.ErrorIs(s, err, errNotTheirs)
		require.Equal(s, []int64{0}, s.renew(s.T, long, s.name))
		require.NoError(s, lease.Release(s.Context()))
		s.mustLock(s.T, s.name, long)
	})
}

func TestWeAreKeptOutUntilJavaUnlocks(t *testing.T) {
	eachShop(t, func(s *shop) {
		s.mustLock(s.T, s.name, long)
		s.mustLock(s.T, s.name, long) // It is reentrant, and counts.
		s.weAreRefused()
		last, err := s.unlock(s.Context(), s.name)
		require.NoError(s, err)
		require.False(s, last)
		s.weAreRefused()
		last, err = s.unlock(s.Context(), s.name)
		require.NoError(s, err)
		require.True(s, last)
		require.NoError(s, s.ours().Release(s.Context()))
	})
}

func TestUnlockOfJavaWakesUs(t *testing.T) {
	eachShop(t, func(s *shop) {
		s.mustLock(s.T, s.name, long)
		got := make(chan error, 1)
		go func() {
			lease, err := s.mutex(patient).Lease(s.Context())
			if err == nil {
				err = lease.Release(s.Context())
			}
			got <- err
		}()
		s.listening(1)
		_, err := s.unlock(s.Context(), s.name)
		require.NoError(s, err)
		require.NoError(s, soon(s.T, got))
	})
}

func TestReleaseOfOursWakesJava(t *testing.T) {
	eachShop(t, func(s *shop) {
		lease := s.ours(patient)
		waits, got := make(chan struct{}, 1), make(chan error, 1)
		go func() { got <- s.java.lock(s.Context(), s.name, func() { waits <- struct{}{} }) }()
		<-waits // for an hour, unless it is told
		require.NoError(s, lease.Release(s.Context()))
		require.NoError(s, soon(s.T, got))
		s.weAreRefused()
	})
}

func TestForceUnlockOfJavaEndsOurLease(t *testing.T) {
	eachShop(t, func(s *shop) {
		lease := s.ours()
		require.True(s, s.forceUnlock(s.T, s.name))
		require.ErrorIs(s, lease.Renew(s.Context()), holdfast.ErrLost)
		s.mustLock(s.T, s.name, long)
		_ = lease.Release(s.Context()) // whatever it answers,
		s.weAreRefused()               // it frees nothing of theirs.
		require.Equal(s, []int64{1}, s.renew(s.T, long, s.name))
	})
}

func TestForceUnlockOfOursEndsTheLockOfJava(t *testing.T) {
	eachShop(t, func(s *shop) {
		s.mustLock(s.T, s.name, long)
		require.NoError(s, s.mutex().ForceUnlock(s.Context()))
		require.Equal(s, []int64{0}, s.renew(s.T, long, s.name))
		_, err := s.unlock(s.Context(), s.name)
		require.ErrorIs(s, err, errNotTheirs)
		require.False(s, s.forceUnlock(s.T, s.name))
		require.ErrorIs(s, s.mutex().ForceUnlock(s.Context()), holdfast.ErrNotHeld)
	})
}

// The latch of an unlock that is sent twice is for the thread that sent it.
func TestRepeatedUnlockOfJavaFreesNothingOfOurs(t *testing.T) {
	eachShop(t, func(s *shop) {
		s.mustLock(s.T, s.name, long)
		_, err := s.unlockAs(s.Context(), s.name, "0123456789abcdef0123456789abcdef")
		require.NoError(s, err)
		lease := s.ours()
		last, err := s.unlockAs(s.Context(), s.name, "0123456789abcdef0123456789abcdef")
		require.NoError(s, err)
		require.True(s, last, "it tells again what it has done")
		require.NoError(s, lease.Renew(s.Context()))
		s.refused(s.T, s.name)
	})
}

func TestJavaGetsWhatWeLetExpire(t *testing.T) {
	eachShop(t, func(s *shop) {
		lease := s.ours(holdfast.WithTTL(short), holdfast.WithoutRenewal())
		require.NoError(s, s.java.lock(s.Context(), s.name, func() {}))
		require.ErrorIs(s, lease.Err(), holdfast.ErrLost, "we still trust what Java has")
		_ = lease.Release(s.Context())
		s.weAreRefused()
	})
}

func TestWeGetWhatJavaLetsExpire(t *testing.T) {
	eachShop(t, func(s *shop) {
		s.mustLock(s.T, s.name, short)
		lease, err := s.mutex().Lease(s.Context())
		require.NoError(s, err)
		_, err = s.unlock(s.Context(), s.name)
		require.ErrorIs(s, err, errNotTheirs)
		s.refused(s.T, s.name)
		require.NoError(s, lease.Release(s.Context()))
	})
}

func TestJavaIsKeptOutWhileWeRenew(t *testing.T) {
	eachShopInTime(t, func(s *shop) {
		const ttl = 3 * short
		lease := s.ours(holdfast.WithTTL(ttl))
		for start := time.Now(); time.Since(start) < 3*ttl; time.Sleep(ttl / 60) {
			s.refused(s.T, s.name)
		}
		require.NoError(s, lease.Err())
		require.NoError(s, lease.Release(s.Context()))
		s.mustLock(s.T, s.name, long)
	})
}

func TestWeAreKeptOutWhileJavaRenews(t *testing.T) {
	eachShopInTime(t, func(s *shop) {
		const ttl = 3 * short
		s.mustLock(s.T, s.name, ttl)
		for start := time.Now(); time.Since(start) < 3*ttl; time.Sleep(ttl / 10) {
			s.weAreRefused()
			require.Equal(s, []int64{1}, s.renew(s.T, ttl, s.name))
		}
		_, err := s.unlock(s.Context(), s.name)
		require.NoError(s, err)
		require.NoError(s, s.ours().Release(s.Context()))
	})
}

// All of them at one lock: threads of two Java programs that have the same numbers, and
// two of our clients.
func TestAllExcludeEachOther(t *testing.T) {
	eachShop(t, func(s *shop) {
		const rounds = 20
		r := referee.Referee{Limit: 1}
		visit := func() {
			r.Enter(1)
			time.Sleep(100 * time.Microsecond)
			r.Leave(1)
		}
		var wg sync.WaitGroup
		for range 2 {
			program := newJava(s.rdb)
			program.publishes = s.publishes
			for thread := range 3 {
				j := program
				j.thread = thread
				wg.Go(func() {
					for range rounds {
						if !assert.NoError(t, j.lock(s.Context(), s.name, func() {})) {
							return
						}
						visit()
						_, err := j.unlock(s.Context(), s.name)
						assert.NoError(t, err)
					}
				})
			}
			for range 3 {
				wg.Go(func() {
					for range rounds {
						lease, err := s.mutex(patient).Lease(s.Context())
						if !assert.NoError(t, err) {
							return
						}
						visit()
						assert.NoError(t, lease.Release(s.Context()))
					}
				})
			}
		}
		wg.Wait()
		r.RequireFair(t, int64(12*rounds))
	})
}
