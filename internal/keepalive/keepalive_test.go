package keepalive_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// store is a driver that can only renew, as told.
type store struct {
	driver.Driver
	renew func(leases []driver.Lease) []error
	node  func(name string) string

	mu    sync.Mutex
	times []time.Time // of renewals
	sizes []int
}

func (s *store) keeper() *keepalive.Keeper {
	return keepalive.New(s, func(_ context.Context, entries []*keepalive.Entry, _ func(int)) []error {
		var leases []driver.Lease
		for _, e := range entries {
			leases = append(leases, e.Owner.(*held).lease)
		}
		return s.send(leases)
	})
}

func (s *store) send(leases []driver.Lease) []error {
	s.mu.Lock()
	s.times = append(s.times, time.Now())
	s.sizes = append(s.sizes, len(leases))
	s.mu.Unlock()
	return s.renew(leases)
}

func (s *store) Node(_ driver.Kind, name string) string {
	if s.node == nil {
		return ""
	}
	return s.node(name)
}

func (s *store) renewals() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.times)
}

func all(err error) func([]driver.Lease) []error {
	return func(leases []driver.Lease) []error {
		errs := make([]error, len(leases))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
}

const ttl = 9 * time.Second

// held is a lease in care, and when and why it was lost.
type held struct {
	keepalive.Entry
	lease driver.Lease
	lost  chan error
	since time.Time
}

func newHeld(name string) *held {
	h := &held{lost: make(chan error, 1), since: time.Now()}
	h.lease = driver.Lease{Kind: driver.Mutex, Name: name, Token: name, TTL: ttl}
	h.Owner = h
	return h
}

func (h *held) Subject() (driver.Kind, string) { return h.lease.Kind, h.lease.Name }
func (h *held) Lost(err error)                 { h.lost <- err }

// loss waits until the lease is lost, and returns why.
func (h *held) loss(t *testing.T) error {
	t.Helper()
	select {
	case err := <-h.lost:
		return err
	case <-time.After(10 * ttl):
		require.FailNow(t, "the lease goes on for ever")
		return nil
	}
}

func hold(k *keepalive.Keeper, name string, sent time.Time) *held {
	h := newHeld(name)
	k.Locate(&h.Entry, h.lease.Kind, h.lease.Name)
	k.Add(&h.Entry, h.lease, keepalive.NewTrust(sent, ttl))
	return h
}

// bubble runs a test in virtual time with a keeper of the store.
func bubble(t *testing.T, s *store, body func(t *testing.T, k *keepalive.Keeper)) {
	synctest.Test(t, func(t *testing.T) {
		k := s.keeper()
		defer k.Close() // or its timer would keep the bubble alive for ever
		body(t, k)
	})
}

// trusted is how long a lease may be believed in: less than the TTL by 1 % and 2 ms.
const trusted = ttl - ttl/100 - 2*time.Millisecond

func TestLeaseIsRenewedEveryThirdOfItsTTL(t *testing.T) {
	s := &store{renew: all(nil)}
	bubble(t, s, func(t *testing.T, k *keepalive.Keeper) {
		h := hold(k, "a", time.Now())
		time.Sleep(10*ttl + ttl/6)
		require.Equal(t, 30, s.renewals())
		require.Greater(t, h.Entry.Trust().Left(), ttl/3)
		require.True(t, k.Remove(&h.Entry))
		time.Sleep(10 * ttl)
		require.Equal(t, 30, s.renewals(), "no renewal after Remove")
		require.Empty(t, h.lost)
	})
}

func TestTrustEndsInTimeWhileARenewalHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := &store{renew: func(l []driver.Lease) []error { <-release; return all(nil)(l) }}
		k := s.keeper()
		h := hold(k, "a", time.Now())
		<-h.lost
		require.Equal(t, trusted, time.Since(h.since))
		close(release) // a late success changes nothing
		synctest.Wait()
		require.False(t, k.Remove(&h.Entry))
		k.Close()
	})
}

// Rule 1. The store may have renewed the lease just after the request was sent.
func TestRenewalProvesTheLeaseFromWhenItWasSent(t *testing.T) {
	const late = ttl / 10
	s := &store{renew: func(l []driver.Lease) []error { time.Sleep(late); return all(nil)(l) }}
	bubble(t, s, func(t *testing.T, k *keepalive.Keeper) {
		h := hold(k, "a", time.Now())
		time.Sleep(ttl/3 + late)
		synctest.Wait()
		require.Equal(t, trusted-late, h.Entry.Trust().Left())
		require.True(t, k.Remove(&h.Entry))
	})
}

func TestFailedRenewalsAreRepeatedUntilTrustEnds(t *testing.T) {
	broken := errors.New("broken")
	s := &store{renew: all(broken)}
	bubble(t, s, func(t *testing.T, k *keepalive.Keeper) {
		h := hold(k, "a", time.Now())
		cause := h.loss(t)
		require.ErrorIs(t, cause, broken)
		require.NotErrorIs(t, cause, keepalive.ErrClock)
		require.NoError(t, h.Entry.Trust().Cause(), "the clock is not to blame")
		require.Equal(t, trusted, time.Since(h.since))
		require.Greater(t, s.renewals(), 4)
		require.Less(t, s.renewals(), 40)
	})
}

func TestRenewalThatSucceedsInTheEndKeepsTheLease(t *testing.T) {
	s := &store{}
	failures := 3
	s.renew = func(l []driver.Lease) []error {
		if failures--; failures >= 0 {
			return all(errors.New("broken"))(l)
		}
		return all(nil)(l)
	}
	bubble(t, s, func(t *testing.T, k *keepalive.Keeper) {
		h := hold(k, "a", time.Now())
		time.Sleep(3 * ttl)
		require.Empty(t, h.lost)
		require.True(t, k.Remove(&h.Entry))
	})
}

func TestLeaseThatTheStoreDoesNotKnowIsLostAtOnce(t *testing.T) {
	s := &store{renew: all(fmt.Errorf("renew: %w", driver.ErrNotHeld))}
	bubble(t, s, func(t *testing.T, k *keepalive.Keeper) {
		h := hold(k, "a", time.Now())
		require.ErrorIs(t, h.loss(t), driver.ErrNotHeld)
		require.Equal(t, ttl/3, time.Since(h.since))
	})
}

// Rule 2. A push may rest on an ask that was sent a while ago.
func TestGrantThatUsedUpMuchTimeIsRenewedAtOnce(t *testing.T) {
	s := &store{renew: all(nil)}
	bubble(t, s, func(t *testing.T, k *keepalive.Keeper) {
		sent := time.Now()
		time.Sleep(ttl / 2)
		h := hold(k, "a", sent)
		synctest.Wait()
		require.Equal(t, 1, s.renewals())
		require.Equal(t, trusted, h.Entry.Trust().Left())
		k.Remove(&h.Entry)
	})
}

// A batch can take several trips, of which the last may hang.
func TestLeaseIsRenewedWhenItsOwnAnswerIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keepalive.New(&store{}, func(ctx context.Context, entries []*keepalive.Entry, renewed func(int)) []error {
			for i, e := range entries {
				if _, name := e.Owner.Subject(); name == "told" {
					renewed(i)
				}
			}
			<-ctx.Done()
			return all(ctx.Err())(make([]driver.Lease, len(entries)))
		})
		told, untold := hold(k, "told", time.Now()), hold(k, "untold", time.Now())
		require.NoError(t, untold.loss(t))
		require.Equal(t, trusted, time.Since(untold.since))
		time.Sleep(3 * ttl)
		require.True(t, k.Remove(&told.Entry), "FOUL: a lease was lost that the store has renewed")
		k.Close()
	})
}

// A slot of a Cluster moves to another node, which then freezes. Nothing of another node waits for it.
func TestFrozenNodeDelaysOnlyWhatIsThereNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var moved, frozen atomic.Bool
		thaw := make(chan struct{})
		s := &store{node: func(name string) string {
			if name[0] == 'm' && moved.Load() {
				return "y"
			}
			return "x"
		}}
		s.renew = func(l []driver.Lease) []error {
			for _, lease := range l {
				if frozen.Load() && s.node(lease.Name) == "y" {
					<-thaw
					break
				}
			}
			return all(nil)(l)
		}
		k := s.keeper()
		var moves, stays []*held
		for i := range 300 {
			moves = append(moves, hold(k, fmt.Sprint("m", i), time.Now()))
			stays = append(stays, hold(k, fmt.Sprint("s", i), time.Now()))
		}
		time.Sleep(ttl)
		moved.Store(true)
		time.Sleep(ttl)
		frozen.Store(true)
		time.Sleep(3 * ttl)
		for _, h := range moves {
			require.False(t, k.Remove(&h.Entry))
		}
		for _, h := range stays {
			require.True(t, k.Remove(&h.Entry), "on the node that is well")
		}
		close(thaw)
		k.Close()
	})
}

// To find out where a lock is can take time. Nobody else has to wait for that.
func TestNodeIsAskedForBesideEverythingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		know := make(chan struct{})
		var asked atomic.Bool
		s := &store{renew: all(nil)}
		s.node = func(name string) string {
			if name[0] == 'x' && asked.Load() {
				<-know
			}
			return name[:1]
		}
		k := s.keeper()
		x, y := hold(k, "x", time.Now()), hold(k, "y", time.Now())
		asked.Store(true)
		<-x.lost
		require.Equal(t, trusted, time.Since(x.since))
		time.Sleep(2 * ttl)
		require.True(t, k.Remove(&y.Entry))
		close(know)
		k.Close()
	})
}

func TestRemoveDuringARenewalLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		s := &store{renew: func(l []driver.Lease) []error { <-answer; return all(driver.ErrNotHeld)(l) }}
		k := s.keeper()
		h := hold(k, "a", time.Now())
		time.Sleep(ttl / 3)
		synctest.Wait()
		require.Equal(t, 1, s.renewals())
		require.True(t, k.Remove(&h.Entry)) // released while the renewal was on its way
		close(answer)
		synctest.Wait()
		require.Empty(t, h.lost)
		k.Close()
	})
}

// A confirmation renews a lease, too, at the same time as the keeper. In real time, for the race
// detector to see it: in a bubble one of the two always comes first.
func TestRenewalsOfOthersGoOnBesideThoseOfTheKeeper(t *testing.T) {
	s := &store{renew: all(nil)}
	k := s.keeper()
	defer k.Close()
	var leases []*held
	for i := range 200 {
		h := newHeld(fmt.Sprint(i))
		h.lease.TTL = 20 * time.Millisecond
		leases = append(leases, h)
		k.Add(&h.Entry, h.lease, keepalive.NewTrust(time.Now(), h.lease.TTL))
	}
	const most = time.Minute // for the first renewal; the store is in memory
	for began := time.Now(); time.Since(began) < time.Second || s.renewals() == 0 && time.Since(began) < most; {
		for _, h := range leases[:100] { // the others are always about to be renewed
			k.Renewed(&h.Entry, time.Now())
		}
		time.Sleep(100 * time.Microsecond)
		for _, h := range leases[:100] {
			k.Announce(&h.Entry)
		}
	}
	for _, h := range leases {
		k.Remove(&h.Entry) // unless the machine was too slow for it
	}
	require.Positive(t, s.renewals())
}

// Batches that hang hold up no others, however many there are: each may have met a connection
// that has fallen silent.
func TestRenewalsThatHangLeaveRoomForOthers(t *testing.T) {
	var first atomic.Int32
	s := &store{}
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		s.renew = func(leases []driver.Lease) []error {
			if first.Add(1) <= 4 {
				<-end
			}
			return make([]error, len(leases))
		}
		k := s.keeper()
		defer k.Close()
		defer close(end)
		var all []*held
		for i := range 4 {
			all = append(all, hold(k, fmt.Sprint(i), time.Now()))
			time.Sleep(ttl / 20) // too far apart to be renewed together
		}
		time.Sleep(3 * ttl)
		for _, h := range all {
			require.Empty(t, h.lost)
			require.True(t, k.Remove(&h.Entry))
		}
	})
}
