package interop_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/setnx"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/internal/test/referee"
)

const (
	short = 200 * time.Millisecond
	long  = 10 * time.Second
	grace = 500 * time.Millisecond // the most that a store may add to a lease
)

// shop is a lock that we share with a peer.
type shop struct {
	*testing.T
	peer
	rdb   *redis.Client
	locks *holdfast.Client
	name  string
}

func newShop(t *testing.T, p peer) *shop { return newShopAt(t, p, redistest.Shared(t)) }

func newShopAt(t *testing.T, p peer, rdb *redistest.Server) *shop {
	s := &shop{T: t, peer: p, rdb: rdb.Client(t), name: rdb.Prefix() + "orders:42"}
	s.locks = holdfast.Open(setnx.New(s.rdb))
	t.Cleanup(func() { assert.NoError(t, s.locks.Close()) })
	return s
}

func (s *shop) mutex(opts ...holdfast.LockOption) *holdfast.Mutex {
	return s.locks.Mutex(s.name, opts...)
}

// eachPeerInTime runs body with every peer in virtual time, as leases are kept or end there. In the soak it also
// does so on a server, where unit is longer than a busy machine stands still.
func eachPeerInTime(t *testing.T, body func(s *shop, unit time.Duration)) {
	eachPeer(t, func(t *testing.T, p peer) {
		t.Run("bubble", func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T, rdb *redistest.Server) { body(newShopAt(t, p, rdb), short) })
		})
		t.Run("redis", func(t *testing.T) {
			redistest.SoakOnly(t)
			body(newShop(t, p), 10*short)
		})
	})
}

// theirs is the lock in the hands of the peer.
func (s *shop) theirs(ttl time.Duration) peerLock {
	s.Helper()
	l := s.attempt(ttl)
	require.NotNil(s, l, "the peer should get the lock")
	return l
}

// attempt is nil if the peer does not get the lock.
func (s *shop) attempt(ttl time.Duration) peerLock {
	s.Helper()
	l, err := s.try(s.Context(), s.rdb, s.name, ttl)
	require.NoError(s, err)
	return l
}

// ours is the lock in our hands.
func (s *shop) ours(opts ...holdfast.LockOption) *holdfast.Lease {
	s.Helper()
	lease, err := s.mutex(opts...).TryLease(s.Context())
	require.NoError(s, err)
	return lease
}

func (s *shop) refused() {
	s.Helper()
	_, err := s.mutex().TryLease(s.Context())
	require.ErrorIs(s, err, holdfast.ErrLocked)
}

func TestPeerIsKeptOutUntilWeRelease(t *testing.T) {
	eachPeer(t, func(t *testing.T, p peer) {
		s := newShop(t, p)
		lease := s.ours()
		require.Nil(t, s.attempt(long))
		require.Contains(t, lease.Token(), s.rdb.Get(t.Context(), s.name).Val(), "the value is the token of the acquisition")
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, s.theirs(long).unlock(t.Context()))
	})
}

func TestWeAreKeptOutUntilThePeerReleases(t *testing.T) {
	eachPeer(t, func(t *testing.T, p peer) {
		s := newShop(t, p)
		l := s.theirs(long)
		s.refused()
		var released atomic.Bool
		go func() {
			time.Sleep(short)
			released.Store(true)
			assert.NoError(t, l.unlock(t.Context()))
		}()
		lease, err := s.mutex(holdfast.WithTTL(time.Second)).Lease(t.Context())
		require.NoError(t, err)
		require.True(t, released.Load(), "FOUL: we got what the peer had")
		require.Nil(t, s.attempt(long))
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestPeerGetsWhatWeLetExpire(t *testing.T) {
	eachPeerInTime(t, func(s *shop, short time.Duration) {
		t := s.T
		lease := s.ours(holdfast.WithTTL(short), holdfast.WithoutRenewal())
		for s.attempt(long) == nil {
			require.Less(t, time.Since(lease.Deadline()), grace+short, "it never ends")
			time.Sleep(5 * time.Millisecond)
		}
		require.ErrorIs(t, lease.Err(), holdfast.ErrLost, "we still trust what the peer has")
		_ = lease.Release(t.Context()) // whatever it answers,
		s.refused()                    // the peer keeps its lock
	})
}

func TestWeGetWhatThePeerLetsExpire(t *testing.T) {
	eachPeer(t, func(t *testing.T, p peer) {
		s := newShop(t, p)
		start := time.Now()
		l := s.theirs(short)
		lease, err := s.mutex(holdfast.WithTTL(long)).Lease(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(start), short)
		require.ErrorIs(t, l.unlock(t.Context()), errNotTheirs)
		require.Error(t, l.extend(t.Context()))
		require.Nil(t, s.attempt(long))
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestPeerIsKeptOutWhileWeRenew(t *testing.T) {
	eachPeerInTime(t, func(s *shop, short time.Duration) {
		t, ttl := s.T, 3*short
		lease := s.ours(holdfast.WithTTL(ttl))
		for start := time.Now(); time.Since(start) < 3*ttl; time.Sleep(10 * time.Millisecond) {
			require.Nil(t, s.attempt(long), "FOUL: two holders")
		}
		require.NoError(t, lease.Err())
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, s.theirs(long).unlock(t.Context()))
	})
}

func TestWeAreKeptOutWhileThePeerRenews(t *testing.T) {
	eachPeerInTime(t, func(s *shop, short time.Duration) {
		t, ttl := s.T, 3*short
		l := s.theirs(ttl)
		for start := time.Now(); time.Since(start) < 3*ttl; time.Sleep(ttl / 10) {
			s.refused()
			require.NoError(t, l.extend(t.Context()))
		}
		require.NoError(t, l.unlock(t.Context()))
		require.NoError(t, s.ours().Release(t.Context()))
	})
}

// All of them at one lock, each round with a lock of its own kind.
func TestAllPeersExcludeEachOther(t *testing.T) {
	t.Parallel()
	const rounds = 30
	s := newShop(t, peer{})
	r := referee.Referee{Limit: 1}
	visit := func() {
		r.Enter(1)
		time.Sleep(100 * time.Microsecond)
		r.Leave(1)
	}
	var wg sync.WaitGroup
	for _, p := range peers {
		wg.Go(func() {
			for n := 0; n < rounds; time.Sleep(time.Millisecond) {
				l, err := p.try(t.Context(), s.rdb, s.name, long)
				if !assert.NoError(t, err) {
					return
				}
				if l != nil {
					visit()
					assert.NoError(t, l.unlock(t.Context()))
					n++
				}
			}
		})
		wg.Go(func() {
			locks := holdfast.Open(setnx.New(s.rdb))
			defer func() { assert.NoError(t, locks.Close()) }()
			for n := 0; n < rounds; time.Sleep(time.Millisecond) {
				if mu := locks.Mutex(s.name); mu.TryLock() {
					visit()
					mu.Unlock()
					n++
				}
			}
		})
	}
	wg.Wait()
	r.RequireFair(t, int64(2*len(peers)*rounds))
}
