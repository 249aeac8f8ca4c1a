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
		require.EqualValues(t, 2, <-got)
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

func of(owner string) func(*driver.Request) {
	return func(r *driver.Request) { r.Owner = owner }
}

func TestOwnerHoldsByAnyNumberOfTokens(t *testing.T) {
	each(t, func(t *tester, r driver.Request) {
		first := t.granted(r, "t1", of("o"))
		if r.Shared || r.Kind == driver.Semaphore { // They have none: two readers are two, and 3 + 3 > 5.
			g := t.ask(r, "t2", of("o"))
			require.Equal(t, r.Shared, g.Status == driver.Granted)
			require.NotEqual(t, first, g.Fence)
			return
		}
		require.Equal(t, driver.Queued, t.ask(r, "other", of("p"), waiting).Status)
		require.Equal(t, driver.Queued, t.ask(r, "nobody's", waiting).Status)
		require.Equal(t, first, t.granted(r, "t2", of("o")), "at once, and with the same fence")
		require.Equal(t, first, t.granted(r, "t2", of("o")))
		require.Len(t, t.info(r).Holders, 2)
		require.NoError(t, t.Release(t.Context(), lease(r, "t1")))
		require.ErrorIs(t, t.Release(t.Context(), lease(r, "t1")), driver.ErrNotHeld)
		require.Equal(t, driver.Queued, t.ask(r, "other", of("p"), waiting).Status)
		require.NoError(t, t.Release(t.Context(), lease(r, "t2")))
		require.Greater(t, t.granted(r, "other", of("p"), waiting), first)
	})
}

func TestEachTokenOfAnOwnerHasALeaseOfItsOwn(t *testing.T) {
	each(t, func(t *tester, r driver.Request) {
		if r.Shared || r.Kind == driver.Semaphore {
			return
		}
		t.granted(r, "t1", of("o"))
		time.Sleep(r.TTL / 2)
		t.granted(r, "t2", of("o"))
		time.Sleep(r.TTL / 2)
		errs := t.Renew(t.Context(), []driver.Lease{lease(r, "t1"), lease(r, "t2")})
		require.ErrorIs(t, errs[0], driver.ErrNotHeld)
		require.NoError(t, errs[1])
		require.Equal(t, driver.Busy, t.ask(r, "other").Status)
		time.Sleep(r.TTL)
		t.granted(r, "other")
	})
}

// When one token of an owner gets the lock, so do the others that wait.
func TestWaitersOfAnOwnerComeInTogether(t *testing.T) {
	each(t, func(t *tester, r driver.Request) {
		if r.Shared || r.Kind == driver.Semaphore {
			return
		}
		t.granted(r, "t1")
		var woken []driver.Grant
		heard := func(r *driver.Request) { r.Wake = func(g driver.Grant) { woken = append(woken, g) } }
		for _, token := range []string{"t2", "t3", "t4"} {
			t.ask(r, token, waiting, of(map[string]string{"t2": "o", "t3": "p", "t4": "o"}[token]), heard)
		}
		require.NoError(t, t.Release(t.Context(), lease(r, "t1")))
		require.Len(t, woken, 2)
		require.Equal(t, woken[0], woken[1])
		require.Equal(t, driver.Queued, t.ask(r, "t3", of("p"), waiting).Status)
	})
}

func (t *tester) attach(r driver.Request, old, token string) (driver.Grant, error) {
	r.Token = token
	if r.Kind == driver.Semaphore { // Who attaches need not know.
		r.Weight, r.Limit = 0, 0
	}
	r.Shared = false
	return t.Attach(t.Context(), lease(r, old), &r)
}

func (t *tester) info(r driver.Request) driver.Info {
	t.Helper()
	info, err := t.Inspect(t.Context(), r.Kind, r.Name)
	require.NoError(t, err)
	return info
}

func TestAttachPutsATokenInThePlaceOfAnother(t *testing.T) {
	each(t, func(t *tester, r driver.Request) {
		first := t.granted(r, "old")
		writer := r
		writer.Shared, writer.Weight = false, r.Limit
		require.Equal(t, driver.Queued, t.ask(writer, "waiter", waiting).Status)
		time.Sleep(r.TTL / 2)
		t.ask(writer, "waiter", waiting)
		before := t.info(r)

		g, err := t.attach(r, "old", "new")
		require.NoError(t, err)
		require.Equal(t, driver.Granted, g.Status)
		require.Greater(t, g.Fence, first)
		again, err := t.attach(r, "old", "new")
		require.NoError(t, err)
		require.Equal(t, g, again)
		_, err = t.attach(r, "old", "late")
		require.ErrorIs(t, err, driver.ErrNotHeld)

		after := t.info(r)
		require.Len(t, after.Holders, 1)
		require.Equal(t, before.Holders[0].Shared, after.Holders[0].Shared)
		require.Equal(t, before.Holders[0].Weight, after.Holders[0].Weight)
		require.Equal(t, r.TTL, after.Holders[0].TimeLeft)
		require.Len(t, after.Queue, 1, "nobody was in between")

		old := r
		old.Token = "old" // an ask that was on its way
		_, err = t.Acquire(t.Context(), &old)
		require.ErrorIs(t, err, driver.ErrNotHeld)
		require.ErrorIs(t, t.Release(t.Context(), lease(r, "old")), driver.ErrNotHeld)
		require.Equal(t, driver.Queued, t.ask(writer, "waiter", waiting).Status)
		require.NoError(t, t.Release(t.Context(), lease(r, "new")))
		t.granted(writer, "waiter", waiting)
	})
}

func TestAttachNeedsAHold(t *testing.T) {
	each(t, func(t *tester, r driver.Request) {
		_, err := t.attach(r, "never", "new")
		require.ErrorIs(t, err, driver.ErrNotHeld)
		t.granted(r, "old")
		given := lease(r, "given-up")
		given.Unsettled = true
		require.ErrorIs(t, t.Release(t.Context(), given), driver.ErrNotHeld)
		_, err = t.attach(r, "old", "given-up")
		require.ErrorIs(t, err, driver.ErrNotHeld)
		time.Sleep(r.TTL)
		_, err = t.attach(r, "old", "new")
		require.ErrorIs(t, err, driver.ErrNotHeld)
		r.Name = ""
		_, err = t.attach(r, "old", "new")
		require.ErrorIs(t, err, driver.ErrNotExecuted)
	})
}

func TestCarrierOfTheHolderIsTold(t *testing.T) {
	each(t, func(t *tester, r driver.Request) {
		t.granted(r, "holder")
		l := lease(r, "holder")
		l.Carrier = "renewed"
		require.NoError(t, t.Renew(t.Context(), []driver.Lease{l})[0])
		alone := r
		alone.Shared, alone.Weight = false, r.Limit
		require.Equal(t, "renewed", t.ask(alone, "hasty").Carrier)
		var woken []driver.Grant
		g := t.ask(alone, "waiter", waiting, func(r *driver.Request) { r.Wake = func(g driver.Grant) { woken = append(woken, g) } })
		require.Equal(t, "renewed", g.Carrier)
		l.Carrier = "released"
		require.NoError(t, t.Release(t.Context(), l))
		require.Len(t, woken, 1)
		require.Equal(t, "released", woken[0].Carrier)
	})
}

func TestWhatIsOverIsForgotten(t *testing.T) {
	each(t, func(t *tester, r driver.Request) {
		l := lease(r, "given-up")
		l.Unsettled = true
		require.ErrorIs(t, t.Release(t.Context(), l), driver.ErrNotHeld)
		if r.Kind == driver.Semaphore {
			require.NoError(t, t.Resize(t.Context(), r.Name, 3))
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
