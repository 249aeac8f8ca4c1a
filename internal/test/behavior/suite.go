package behavior

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/referee"
)

// Open returns a client of a store, as another process would have one. All that it returns
// for one t lead to the same store. The suite closes them.
type Open func(t testing.TB, opts ...holdfast.Option) *holdfast.Client

// Run holds a store to the promises of package holdfast, as far as that takes no fault of
// the store or of its network. It is for drivers, beside driver/drivertest, which holds
// them to the contract of package driver. A test is skipped if it needs a kind of lock or a
// queue that the store does not have. The tests are parallel. That Close leaves no goroutine
// behind is for the TestMain of the driver to see.
func Run(t *testing.T, open Open) {
	queue := new(atomic.Int32)
	for name, test := range map[string]func(*suite){
		"GoroutinesOfManyClientsExcludeEachOther":  (*suite).excludes,
		"WaitersAreServedInOrderOfArrival":         (*suite).servesInOrder,
		"HolderThatDoesNotRenewStopsBeforeTheNext": (*suite).loses,
		"RenewedLeaseIsKept":                       (*suite).keeps,
		"CancelledWaiterDelaysNobody":              (*suite).cancels,
		"ForcedHolderLearnsOfItsLoss":              (*suite).forces,
		"ReadersShareAndWritersExclude":            (*suite).reads,
		"WaitingWriterHoldsUpNewReaders":           (*suite).writes,
		"PermitsNeverExceedTheLimit":               (*suite).limits,
		"LargeRequestDoesNotStarve":                (*suite).largeRequest,
		"CloseReleasesAndWithdraws":                (*suite).closes,
		"ReleasedLockStaysTakenForMinHold":         (*suite).staysTaken,
		"HolderThatHangsLosesTheLock":              (*suite).hangs,
		"FullQueueTurnsCallersAway":                (*suite).turnsAway,
		"CircleOfWaitsHasOneVictim":                (*suite).endsCircles,
		"WaiterIsToldWhoHoldsTheLock":              (*suite).tellsWhoHolds,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&suite{T: t, open: open, lock: fmt.Sprintf("%s-%x", name, rand.Uint64()), queue: queue})
		})
	}
}

// suite is one test.
type suite struct {
	*testing.T
	open Open
	lock string // the name of the lock

	queue *atomic.Int32 // whether the store has one: positive if yes, negative if no, 0 as long as nobody knows
}

// client is closed when the test ends.
func (s *suite) client(opts ...holdfast.Option) *holdfast.Client {
	s.Helper()
	c := s.open(s, append([]holdfast.Option{holdfast.WithTTL(lab.Ages)}, opts...)...)
	s.Cleanup(func() { assert.NoError(s, c.Close()) })
	return c
}

// strict is a client whose goroutines queue in the store, one by one.
func (s *suite) strict() *holdfast.Client { return s.client(holdfast.WithStrictFIFO()) }

// needs skips the test if the store does not know the kind of lock.
func (s *suite) needs(try func(context.Context) (*holdfast.Lease, error)) {
	s.Helper()
	lease, err := try(s.Context())
	if errors.Is(err, errors.ErrUnsupported) {
		s.Skip("the store has no such locks")
	}
	require.NoError(s, err)
	require.NoError(s, lease.Release(s.Context()))
}

// waiter is a call of Lease in the background.
type waiter struct {
	lease *holdfast.Lease
	err   error
	done  chan struct{}
}

func (s *suite) wait(ctx context.Context, lease lab.Leasing) *waiter {
	w := &waiter{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = lease(ctx)
	}()
	return w
}

// granted returns the lease that a waiter has soon.
func (s *suite) granted(w *waiter) *holdfast.Lease {
	s.Helper()
	s.returned(w)
	require.NoError(s, w.err)
	return w.lease
}

func (s *suite) returned(w *waiter) {
	s.Helper()
	select {
	case <-w.done:
	case <-time.After(lab.Ages / 2):
		s.Fatalf("the waiter is stuck\n%s", lab.Stacks())
	}
}

func (s *suite) take(lease lab.Leasing) *holdfast.Lease {
	s.Helper()
	return s.granted(s.wait(s.Context(), lease))
}

func (s *suite) release(leases ...*holdfast.Lease) {
	s.Helper()
	for _, l := range leases {
		require.NoError(s, l.Release(s.Context()))
	}
}

// untilQueued returns when n wait. It skips the test if the store has no queue to look at.
func (s *suite) untilQueued(k lab.Lock, n int) {
	s.Helper()
	began := time.Now()
	for {
		info, err := k.Inspect(s.Context())
		if errors.Is(err, errors.ErrUnsupported) {
			s.Skip("the store does not tell who waits")
		}
		require.NoError(s, err)
		if len(info.Queue) > 0 {
			s.queue.Store(1)
		}
		if len(info.Queue) == n {
			return
		}
		if time.Since(began) > lab.Soon {
			s.queue.CompareAndSwap(0, -1)
		}
		if s.queue.Load() < 0 {
			s.Skip("the store has no queue")
		}
		if time.Since(began) > lab.Soon {
			s.Fatalf("%d are in the queue instead of %d", len(info.Queue), n)
		}
		time.Sleep(time.Millisecond)
	}
}

func (s *suite) excludes() {
	const clients, goroutines, rounds = 3, 4, 10
	r := &referee.Referee{Limit: 1}
	var fence int64 // guarded by the lock, and by nothing else
	var wg sync.WaitGroup
	for range clients {
		mu := s.client().Mutex(s.lock)
		for range goroutines {
			wg.Go(func() {
				for range rounds {
					lease, err := mu.Lease(s.Context())
					if !assert.NoError(s, err) {
						return
					}
					r.Enter(1)
					if lease.Fence() != 0 { // a store without fences says so
						assert.Greater(s, lease.Fence(), fence, "FOUL: fences went back")
						fence = lease.Fence()
					}
					r.Leave(1)
					assert.NoError(s, lease.Release(context.WithoutCancel(s.Context())))
				}
			})
		}
	}
	wg.Wait()
	r.RequireFair(s.T, clients*goroutines*rounds)
}

func (s *suite) servesInOrder() {
	clients := []*holdfast.Client{s.strict(), s.strict(), s.strict()}
	mu := clients[0].Mutex(s.lock)
	held := s.take(mu.Lease)
	var waiters []*waiter
	for i := range 6 {
		waiters = append(waiters, s.wait(s.Context(), clients[i%3].Mutex(s.lock).Lease))
		s.untilQueued(mu, i+1)
	}
	for i, w := range waiters {
		s.release(held)
		held = s.granted(w)
		for _, later := range waiters[i+1:] {
			select {
			case <-later.done:
				s.Fatalf("FOUL: somebody overtook number %d", i)
			default:
			}
		}
	}
	s.release(held)
}

// loses is what a holder that is paused, or cut off, looks like to the others.
func (s *suite) loses() {
	const ttl = 2 * time.Second // which etcd can keep
	holder := s.take(s.client(holdfast.WithTTL(ttl), holdfast.WithoutRenewal()).Mutex(s.lock).Lease)
	next := s.client().Mutex(s.lock)
	var before error
	w := s.wait(s.Context(), func(ctx context.Context) (*holdfast.Lease, error) {
		lease, err := next.Lease(ctx)
		before = holder.Err() // looks at the clock; on a machine that stood still, the context may end later
		return lease, err
	})
	lease := s.granted(w)
	require.ErrorIs(s, before, holdfast.ErrLost, "FOUL: two held the lock")
	select {
	case <-holder.Done():
	case <-time.After(lab.Soon):
		s.Fatal("the context of the lost lease goes on")
	}
	require.ErrorIs(s, context.Cause(holder.Context()), holdfast.ErrLost)
	require.ErrorIs(s, holder.Release(s.Context()), holdfast.ErrLost)
	require.NoError(s, lease.Renew(s.Context()), "the late release of another ended it")
	s.release(lease)
}

func (s *suite) keeps() {
	const ttl = 3 * time.Second // which etcd can keep, and a machine that stands still for a moment
	lease := s.take(s.client(holdfast.WithTTL(ttl)).Mutex(s.lock).Lease)
	select {
	case <-lease.Done():
		s.Fatal(context.Cause(lease.Context()))
	case <-time.After(ttl + ttl/3):
	}
	require.False(s, s.client().Mutex(s.lock).TryLock(), "FOUL: two held the lock")
	s.release(lease)
}

func (s *suite) cancels() {
	a, b := s.strict().Mutex(s.lock), s.strict().Mutex(s.lock)
	held := s.take(a.Lease)
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	first := s.wait(ctx, b.Lease)
	s.untilQueued(a, 1)
	second := s.wait(s.Context(), b.Lease)
	s.untilQueued(a, 2)
	cancel()
	s.returned(first)
	require.ErrorIs(s, first.err, context.Canceled)
	require.ErrorIs(s, first.err, holdfast.ErrLocked)
	s.release(held)
	s.release(s.granted(second))
}

func (s *suite) forces() {
	a, b := s.client(), s.client()
	lease := s.take(a.Mutex(s.lock).Lease)
	if err := b.Mutex(s.lock).ForceUnlock(s.Context()); errors.Is(err, errors.ErrUnsupported) {
		s.Skip("the store takes no lock away")
	} else {
		require.NoError(s, err)
	}
	next := s.take(b.Mutex(s.lock).Lease)
	require.ErrorIs(s, lease.Renew(s.Context()), holdfast.ErrLost)
	require.ErrorIs(s, context.Cause(lease.Context()), holdfast.ErrLost)
	require.NoError(s, next.Renew(s.Context()))
	s.release(next)
}

func (s *suite) reads() {
	a, b := s.client().RWMutex(s.lock), s.client().RWMutex(s.lock)
	s.needs(a.TryLease)
	one, other := s.take(a.RLease), s.take(b.RLease)
	require.False(s, b.TryLock())
	s.release(one)
	require.False(s, b.TryLock())
	s.release(other)
	writer := s.take(b.Lease)
	require.False(s, a.TryRLock())
	require.False(s, a.TryLock())
	s.release(writer)
}

func (s *suite) writes() {
	a, b, c := s.strict().RWMutex(s.lock), s.strict().RWMutex(s.lock), s.strict().RWMutex(s.lock)
	s.needs(a.TryLease)
	reader := s.take(a.RLease)
	writer := s.wait(s.Context(), b.Lease)
	s.untilQueued(a, 1)
	require.False(s, c.TryRLock(), "FOUL: a reader overtook the writer")
	late := s.wait(s.Context(), c.RLease)
	s.untilQueued(a, 2)
	s.release(reader)
	s.release(s.granted(writer))
	s.release(s.granted(late))
}

func (s *suite) limits() {
	const limit, rounds = 5, 8
	s.needs(lab.Permits(s.client().Semaphore(s.lock, limit), 1))
	r := &referee.Referee{Limit: limit}
	var wg sync.WaitGroup
	for _, weight := range []int64{1, 1, 2, 3, limit} {
		sem := s.client().Semaphore(s.lock, limit)
		wg.Go(func() {
			for range rounds {
				if !assert.NoError(s, sem.Acquire(s.Context(), weight)) {
					return
				}
				r.Enter(weight)
				time.Sleep(time.Millisecond)
				r.Leave(weight)
				sem.Release(weight)
			}
		})
	}
	wg.Wait()
	r.RequireFair(s.T, 5*rounds)
}

func (s *suite) largeRequest() {
	const limit = 3
	a, b := s.strict().Semaphore(s.lock, limit), s.strict().Semaphore(s.lock, limit)
	s.needs(lab.Permits(a, 1))
	small := s.take(lab.Permits(a, 1))
	large := s.wait(s.Context(), lab.Permits(b, limit))
	s.untilQueued(a, 1)
	require.False(s, a.TryAcquire(1), "FOUL: a small request overtook the large one")
	s.release(small)
	s.release(s.granted(large))
}

func (s *suite) closes() {
	a, b := s.open(s, holdfast.WithTTL(lab.Ages)), s.client()
	held := s.take(a.Mutex(s.lock).Lease)
	other := s.take(b.Mutex(s.lock + " of the other").Lease)
	w := s.wait(s.Context(), a.Mutex(s.lock+" of the other").Lease)
	time.Sleep(10 * time.Millisecond) // it may wait already, or not
	require.NoError(s, a.Close())
	s.returned(w)
	require.ErrorIs(s, w.err, holdfast.ErrClosed)
	require.ErrorIs(s, held.Err(), holdfast.ErrNotHeld)
	require.ErrorIs(s, held.Err(), holdfast.ErrClosed)
	require.ErrorIs(s, context.Cause(held.Context()), holdfast.ErrClosed)
	s.release(s.take(b.Mutex(s.lock).Lease)) // long before the TTL is over
	s.release(other)
	s.release(s.take(b.Mutex(s.lock + " of the other").Lease))
}

func (s *suite) staysTaken() {
	const hold = 2 * time.Second // which etcd can keep
	a, b := s.client(holdfast.WithMinHold(hold)), s.strict()
	mu := b.Mutex(s.lock)
	began := time.Now()
	lease, err := a.Mutex(s.lock).Lease(s.Context())
	if errors.Is(err, errors.ErrUnsupported) {
		s.Skip("the store cannot keep a lock that was released")
	}
	require.NoError(s, err)
	w := s.wait(s.Context(), mu.Lease)
	s.untilQueued(mu, 1)
	s.release(lease)
	require.ErrorIs(s, lease.Err(), holdfast.ErrNotHeld)
	s.isTakenUntil(mu, began.Add(hold))
	next := s.granted(w)
	require.GreaterOrEqual(s, time.Since(began), hold)
	require.Less(s, time.Since(began), lab.Ages/3, "only the heartbeat found it free")
	if lease.Fence() != 0 {
		require.Greater(s, next.Fence(), lease.Fence(), "FOUL: fences went back")
	}
	s.release(next)

	// A process that ends keeps it taken, too.
	began = time.Now()
	s.take(a.Mutex(s.lock).Lease)
	require.NoError(s, a.Close())
	s.isTakenUntil(mu, began.Add(hold))
	next = s.take(mu.Lease)
	require.GreaterOrEqual(s, time.Since(began), hold)
	s.release(next)
}

// isTakenUntil tries the lock once. On a machine that stood still the time may be over by then.
func (s *suite) isTakenUntil(mu *holdfast.Mutex, end time.Time) {
	s.Helper()
	if mu.TryLock() {
		require.False(s, time.Now().Before(end), "it was given away")
		mu.Unlock()
	}
}

func (s *suite) hangs() {
	const hold = 200 * time.Millisecond
	began := time.Now()
	lease := s.take(s.client(holdfast.WithMaxHold(hold)).Mutex(s.lock).Lease)
	next := s.take(s.client().Mutex(s.lock).Lease)
	require.GreaterOrEqual(s, time.Since(began), hold)
	require.ErrorIs(s, context.Cause(lease.Context()), holdfast.ErrLost)
	require.ErrorIs(s, context.Cause(lease.Context()), holdfast.ErrHeldTooLong)
	require.ErrorIs(s, lease.Release(s.Context()), holdfast.ErrLost)
	require.NoError(s, next.Renew(s.Context()), "the late release of another ended it")
	s.release(next)
}

func (s *suite) turnsAway() {
	a, b := s.client(), s.client(holdfast.WithMaxWaiters(2))
	mu := a.Mutex(s.lock)
	held := s.take(mu.Lease)
	first := s.wait(s.Context(), b.Mutex(s.lock).Lease)
	s.untilQueued(mu, 1)
	second := s.wait(s.Context(), b.Mutex(s.lock).Lease)
	s.untilQueued(mu, 2)
	third := s.wait(s.Context(), b.Mutex(s.lock).Lease)
	s.returned(third)
	require.ErrorIs(s, third.err, holdfast.ErrQueueFull)
	require.ErrorIs(s, third.err, holdfast.ErrLocked)
	s.release(held)
	s.release(s.granted(first))
	s.release(s.granted(second))
	s.release(s.take(b.Mutex(s.lock).Lease))
}
