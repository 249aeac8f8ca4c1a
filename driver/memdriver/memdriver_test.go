package memdriver_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

func TestClientsShareAStoreAndCloseItForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		web, worker := holdfast.Open(store), holdfast.Open(store)
		held, err := web.Mutex("a").Lease(t.Context())
		require.NoError(t, err)
		_, err = worker.Mutex("a").TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		got := make(chan int64)
		go func() {
			lease, err := worker.Mutex("a").Lease(t.Context())
			if err == nil {
				got <- lease.Fence()
			}
			close(got)
		}()
		synctest.Wait()
		require.NoError(t, web.Close()) // releases what it holds
		require.ErrorIs(t, held.Err(), holdfast.ErrNotHeld)
		require.Greater(t, <-got, held.Fence())
		require.NoError(t, worker.Close())
		another := holdfast.Open(store)
		require.True(t, another.Mutex("a").TryLock())
		require.NoError(t, another.Close())
	})
}

func TestLeaseOfWhoCrashedEndsInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		locks := holdfast.Open(store, holdfast.WithTTL(24*time.Hour))
		defer func() { require.NoError(t, locks.Close()) }()
		crashed := driver.Request{Kind: driver.Mutex, Name: "a", Token: "t", Ask: 1, TTL: time.Hour}
		_, err := store.Acquire(t.Context(), &crashed)
		require.NoError(t, err)
		start := time.Now()
		next, err := locks.Mutex("a").Lease(t.Context())
		require.NoError(t, err)
		require.Equal(t, time.Hour, time.Since(start), "who waits asks when the lease ends")
		time.Sleep(48 * time.Hour)
		require.NoError(t, next.Err(), "it is renewed")
	})
}

// tester asks a store of its own.
type tester struct {
	*testing.T
	*memdriver.Driver
}

// each runs body in virtual time with every kind of lock.
func each(t *testing.T, body func(*tester, driver.Request)) {
	for _, r := range []driver.Request{
		{Kind: driver.Mutex},
		{Kind: driver.RWMutex},
		{Kind: driver.RWMutex, Shared: true},
		{Kind: driver.Semaphore, Weight: 3, Limit: 5},
	} {
		t.Run(strings.TrimSpace(fmt.Sprint(r.Kind, " ", map[bool]string{true: "shared"}[r.Shared])), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r.Name, r.TTL, r.Ask = "a", time.Minute, 1
				body(&tester{t, memdriver.New()}, r)
			})
		})
	}
}

func (t *tester) ask(r driver.Request, token string, mods ...func(*driver.Request)) driver.Grant {
	t.Helper()
	r.Token = token
	for _, mod := range mods {
		mod(&r)
	}
	g, err := t.Acquire(t.Context(), &r)
	require.NoError(t, err)
	return g
}

func (t *tester) granted(r driver.Request, token string, mods ...func(*driver.Request)) int64 {
	t.Helper()
	g := t.ask(r, token, mods...)
	require.Equal(t, driver.Granted, g.Status)
	return g.Fence
}

func lease(r driver.Request, token string) driver.Lease {
	return driver.Lease{Kind: r.Kind, Name: r.Name, Token: token, TTL: r.TTL, Owner: r.Owner}
}

func waiting(r *driver.Request) { r.Wait = true }

// heard collects what a token is told.
func heard(news *[]driver.Grant) func(*driver.Request) {
	return func(r *driver.Request) { r.Wake = func(g driver.Grant) { *news = append(*news, g) } }
}

// alone is a request that nobody else can be granted beside.
func alone(r driver.Request) driver.Request {
	r.Shared, r.Weight = false, r.Limit
	return r
}

func TestLateRenewalShortensNothing(t *testing.T) {
	each(t, func(t *tester, r driver.Request) {
		t.granted(r, "t")
		late := lease(r, "t")
		late.TTL = time.Second
		require.NoError(t, t.Renew(t.Context(), []driver.Lease{late})[0])
		require.Equal(t, r.TTL, t.info(r).Holders[0].TimeLeft)
	})
}

// Only who comes next asks when a lease ends. If all did, they would all ask for nothing.
func TestNextInLineIsToldWhenTheFirstLeaseEnds(t *testing.T) {
	each(t, func(t *tester, r driver.Request) {
		const early = 10 * time.Second
		if r.Shared || r.Kind == driver.Semaphore {
			r.Weight = min(r.Weight, 2)
			t.granted(r, "long")
		}
		t.granted(r, "short", func(r *driver.Request) { r.TTL = early })
		if r.Shared || r.Kind == driver.Semaphore {
			t.granted(r, "longer", func(r *driver.Request) { r.TTL, r.Weight = 2*r.TTL, min(r.Weight, 1) })
		}
		require.Equal(t, early, t.ask(alone(r), "hasty").RetryAfter)
		require.Equal(t, early, t.ask(alone(r), "first", waiting).RetryAfter)
		require.Zero(t, t.ask(alone(r), "second", waiting).RetryAfter)
	})
}

func TestWhoAsksIsAnsweredAndNotWoken(t *testing.T) {
	each(t, func(t *tester, r driver.Request) {
		t.granted(r, "dead", func(r *driver.Request) { r.TTL = time.Second })
		var news []driver.Grant
		require.Equal(t, driver.Queued, t.ask(alone(r), "waiter", waiting, heard(&news)).Status)
		time.Sleep(time.Second)
		t.granted(alone(r), "waiter", waiting, heard(&news))
		require.Empty(t, news)
	})
}

func TestWaiterThatResizeRefusesIsToldToAsk(t *testing.T) {
	each(t, func(t *tester, r driver.Request) {
		if r.Kind != driver.Semaphore {
			return
		}
		t.granted(r, "holder")
		var news []driver.Grant
		t.ask(alone(r), "waiter", waiting, heard(&news))
		require.NoError(t, t.Resize(t.Context(), r.Name, "resize", r.Limit-1))
		require.Equal(t, []driver.Grant{{Status: driver.Queued}}, news)
	})
}

func (t *tester) info(r driver.Request) driver.Info {
	t.Helper()
	info, err := t.Inspect(t.Context(), r.Kind, r.Name)
	require.NoError(t, err)
	return info
}

func TestTagOfTheHolderIsTold(t *testing.T) {
	each(t, func(t *tester, r driver.Request) {
		t.granted(r, "holder")
		l := lease(r, "holder")
		l.HolderTag = "renewed"
		require.NoError(t, t.Renew(t.Context(), []driver.Lease{l})[0])
		require.Equal(t, "renewed", t.ask(alone(r), "hasty").HolderTag)
		var woken []driver.Grant
		g := t.ask(alone(r), "waiter", waiting, heard(&woken))
		require.Equal(t, "renewed", g.HolderTag)
		l.HolderTag = "released"
		require.NoError(t, t.Release(t.Context(), l))
		require.Len(t, woken, 1)
		require.Equal(t, "released", woken[0].HolderTag)
	})
}

func TestWhatIsOverIsForgotten(t *testing.T) {
	each(t, func(t *tester, r driver.Request) {
		l := lease(r, "given-up")
		l.Unsettled = true
		require.ErrorIs(t, t.Release(t.Context(), l), driver.ErrNotHeld)
		if r.Kind == driver.Semaphore {
			require.NoError(t, t.Resize(t.Context(), r.Name, "resize", 3))
			time.Sleep(time.Minute)
			require.EqualValues(t, 3, t.info(r).Limit)
		}
		time.Sleep(time.Minute + 1)
		require.Zero(t, t.info(r).Limit)
		t.granted(r, "given-up")
		if r.Kind == driver.Semaphore {
			require.EqualValues(t, 5, t.info(r).Limit)
		}
	})
}

func TestTombstonesOfALockInUseAreDropped(t *testing.T) {
	each(t, func(t *tester, r driver.Request) {
		t.granted(r, "holder", func(r *driver.Request) { r.TTL = time.Hour })
		for _, token := range []string{"one", "two"} {
			l := lease(r, token)
			l.Unsettled = true
			require.ErrorIs(t, t.Release(t.Context(), l), driver.ErrNotHeld)
			time.Sleep(time.Minute + 1)
		}
		t.ask(r, "one") // is not known any more
	})
}
