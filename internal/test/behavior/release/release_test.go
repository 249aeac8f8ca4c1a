package release_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// reluctant is a store that does not let go as long as refusal says why.
type reluctant struct {
	*memdriver.Driver
	refusal atomic.Pointer[error]
	before  func(driver.Lease) // if not nil, is called before each release
}

var errReluctant = errors.New("WRONGPASS or the like")

func (r *reluctant) refuse(err error) { r.refusal.Store(&err) }

func (r *reluctant) refused() error {
	if err := r.refusal.Load(); err != nil {
		return *err
	}
	return nil
}

func (r *reluctant) Release(ctx context.Context, l driver.Lease) error {
	if r.before != nil {
		r.before(l)
	}
	if err := r.refused(); err != nil {
		return err
	}
	return r.Driver.Release(ctx, l)
}

func (r *reluctant) Downgrade(ctx context.Context, l driver.Lease, weight int64) error {
	if err := r.refused(); err != nil {
		return err
	}
	return r.Driver.Downgrade(ctx, l, weight)
}

// withReluctant runs body in virtual time with a client of a reluctant store, and another one.
func withReluctant(t *testing.T, body func(t *testing.T, r *reluctant, c, other *holdfast.Client, log *lab.Log)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, log := &reluctant{Driver: memdriver.New()}, new(lab.Log)
		c := holdfast.Open(r, holdfast.WithTTL(lab.Ages), holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		other := holdfast.Open(r.Driver, holdfast.WithTTL(lab.Ages))
		body(t, r, c, other, log)
		require.NoError(t, c.Close())
		require.NoError(t, other.Close())
	})
}

// A refusal may pass, such as while a password is changed. Renewals are repeated then, and so
// must be whatever gives something up, or the others wait for a TTL.
func TestWhatTheStoreRefusesForAMomentIsGivenUpAfterIt(t *testing.T) {
	for name, giveUp := range map[string]func(t *testing.T, c *holdfast.Client) (leased error){
		"Unlock": func(t *testing.T, c *holdfast.Client) error {
			c.RWMutex("x").Unlock()
			return nil
		},
		"Release": func(t *testing.T, c *holdfast.Client) error {
			lease, err := c.Semaphore("x", 3).TryLease(t.Context(), 2)
			require.NoError(t, err)
			defer c.RWMutex("x").Unlock()
			return lease.Release(t.Context())
		},
		"Release of some": func(t *testing.T, c *holdfast.Client) error {
			require.NoError(t, c.Semaphore("x", 3).Acquire(t.Context(), 3))
			c.Semaphore("x", 3).Release(2)
			c.RWMutex("x").Unlock()
			return nil
		},
		"a wait that ends": func(t *testing.T, c *holdfast.Client) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, err := c.RWMutex("x").RLease(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			c.RWMutex("x").Unlock()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			withReluctant(t, func(t *testing.T, r *reluctant, c, other *holdfast.Client, log *lab.Log) {
				c.RWMutex("x").Lock()
				r.refuse(fmt.Errorf("%w: %w", errReluctant, driver.ErrNotExecuted))
				began := time.Now()
				if err := giveUp(t, c); err != nil {
					require.ErrorIs(t, err, errReluctant, "the caller learns of it")
					require.Less(t, time.Since(began), 2*time.Second)
				}
				time.Sleep(3 * time.Second)
				require.False(t, other.RWMutex("x").TryLock())
				r.refuse(nil)
				time.Sleep(2 * time.Second)
				require.True(t, other.RWMutex("x").TryLock(), "long before the TTL is over")
				other.RWMutex("x").Unlock()
				require.True(t, other.Semaphore("x", 3).TryAcquire(2))
				other.Semaphore("x", 3).Release(2)
				require.Empty(t, log.String())
			})
		})
	}
}

func TestUnlockThatTheStoreNeverCarriesOutIsLogged(t *testing.T) {
	withReluctant(t, func(t *testing.T, r *reluctant, c, other *holdfast.Client, log *lab.Log) {
		c.Mutex("x").Lock()
		r.refuse(errReluctant)
		c.Mutex("x").Unlock()
		require.True(t, func() bool { other.Mutex("x").Lock(); return true }())
		time.Sleep(5 * time.Second)
		require.Contains(t, log.String(), "not released")
		require.Contains(t, log.String(), "lock=x")
		require.Contains(t, log.String(), errReluctant.Error())
		require.Equal(t, 1, strings.Count(log.String(), "\n"))
		other.Mutex("x").Unlock()
	})
}

// The same on a real Redis, with a real password.
func TestUnlockWhileAPasswordIsChangedReachesRedisAfterIt(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	l := lab.New(t, s)
	l.Remember()
	user := l.User("app", "~*", "&*", "+@all")
	c := l.Open(s.Client(t, user))
	l.Ready(c)
	c.Mutex("x").Lock()
	require.NoError(t, l.Direct.Do(t.Context(), "ACL", "SETUSER", "app", "resetpass", ">other").Err())
	require.NoError(t, l.Direct.Do(t.Context(), "CLIENT", "KILL", "USER", "app").Err())
	c.Mutex("x").Unlock()
	require.Len(t, l.Inspect("x").Holders, 1)
	l.User("app", "~*", "&*", "+@all")
	l.SoonFree(l.Near(), "x")
}

// The time of a lease can run out while the store keeps the caller of Release waiting. The
// holder had stopped before, so nothing was lost.
func TestLeaseThatRunsOutWhileItIsReleasedWasNotLost(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, mu *holdfast.Mutex) error{
		"Release": func(ctx context.Context, mu *holdfast.Mutex) error {
			lease, err := mu.Lease(ctx)
			if err != nil {
				return err
			}
			return lease.Release(ctx)
		},
		"Do": func(ctx context.Context, mu *holdfast.Mutex) error {
			return mu.Do(ctx, func(context.Context) error { return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			withReluctant(t, func(t *testing.T, r *reluctant, c, other *holdfast.Client, log *lab.Log) {
				// A release that hangs is repeated beside. All hang until the store has ended the lease.
				var hangs atomic.Bool
				ended := make(chan struct{})
				r.before = func(driver.Lease) {
					if !hangs.Swap(true) {
						other.Mutex("x").Lock()
						close(ended)
					}
					<-ended
				}
				require.NoError(t, call(t.Context(), c.Mutex("x")))
				other.Mutex("x").Unlock()
				require.Empty(t, log.String())
			})
		})
	}
}

// The release of a lock that was taken away is a loss, also if nobody knew of that here.
func TestReleaseTellsThatTheLockWasTakenAway(t *testing.T) {
	withReluctant(t, func(t *testing.T, r *reluctant, c, other *holdfast.Client, log *lab.Log) {
		r.before = func(driver.Lease) { _ = other.Mutex("x").ForceUnlock(t.Context()) }
		lease, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrLost)
		require.ErrorIs(t, c.Mutex("x").Do(t.Context(), func(context.Context) error { return nil }), holdfast.ErrLost)
	})
}

// beside runs two calls at about the same time, in ever other orders.
func beside(rounds int, round func() (one, other func())) {
	for n := range rounds {
		one, other := round()
		var wg sync.WaitGroup
		wg.Go(one)
		wg.Go(func() {
			for range n % 40 {
				runtime.Gosched()
			}
			other()
		})
		wg.Wait()
	}
}

// Of Release and Close one releases the lock. The other has nothing to complain of.
func TestReleaseBesideCloseIsNoLoss(t *testing.T) {
	store := memdriver.New()
	beside(redistest.Rounds(20_000), func() (func(), func()) {
		c := holdfast.Open(store)
		lease, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		release := func() {
			err := lease.Release(context.Background())
			assert.NotErrorIs(t, err, holdfast.ErrLost)
		}
		return release, func() { assert.NoError(t, c.Close()) }
	})
}

// Of Detach and Close one decides what becomes of the lock: a token that Detach has returned
// can be attached to.
func TestDetachBesideCloseReturnsNoTokenOfWhatIsReleased(t *testing.T) {
	store := memdriver.New()
	after := holdfast.Open(store)
	defer func() { require.NoError(t, after.Close()) }()
	var token string
	var err error
	settle := func() {
		if err != nil || token == "" {
			require.True(t, after.Mutex("x").TryLock(), "neither released nor detached: %v", err)
			after.Mutex("x").Unlock()
			return
		}
		lease, attached := after.Attach(t.Context(), token)
		require.NoError(t, attached)
		require.NoError(t, lease.Release(t.Context()))
	}
	beside(redistest.Rounds(20_000), func() (func(), func()) {
		settle() // the round before
		c := holdfast.Open(store, holdfast.WithoutRenewal())
		lease, failed := c.Mutex("x").Lease(t.Context())
		require.NoError(t, failed)
		return func() { token, err = lease.Detach(context.Background()) }, func() { assert.NoError(t, c.Close()) }
	})
	settle()
}

// Close cannot tell Redis anything through a client that is closed, and says so.
func TestCloseAfterTheRedisClientSaysThatRedisWasNotTold(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		for name, take := range map[string]func(c *holdfast.Client){
			"Lease": func(c *holdfast.Client) { _, err := c.Mutex("x").Lease(t.Context()); require.NoError(t, err) },
			"Lock":  func(c *holdfast.Client) { c.Mutex("y").Lock() },
			"Unlock": func(c *holdfast.Client) {
				c.Mutex("z", holdfast.WithLinger(time.Hour)).Lock()
				c.Mutex("z", holdfast.WithLinger(time.Hour)).Unlock()
			},
		} {
			rdb := redis.NewClient(s.Options())
			c := holdfast.New(rdb, holdfast.WithPrefix(s.Prefix()), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
			take(c)
			require.NoError(t, rdb.Close())
			assert.Contains(t, lab.Panics(t, c.Mutex("free").Lock), redis.ErrClosed.Error(), "nobody will open it again")
			require.ErrorIs(t, lab.Promptly(t, lab.Soon, c.Close), redis.ErrClosed, name)
		}
	})
}

// An Unlock that cannot reach Redis at all is in the log, for nobody else hears of it.
func TestUnlockAfterTheRedisClientIsClosedIsLogged(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, log := redis.NewClient(s.Options()), new(lab.Log)
		c := holdfast.New(rdb, holdfast.WithPrefix(s.Prefix()), holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		c.Mutex("x").Lock()
		require.NoError(t, rdb.Close())
		c.Mutex("x").Unlock()
		require.Contains(t, log.String(), "not released")
		require.NoError(t, lab.Promptly(t, lab.Soon, c.Close))
	})
}
