package memdriver_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

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
		for _, token := range []string{"t2", "t3", "t4"} {
			t.ask(r, token, waiting, of(map[string]string{"t2": "o", "t3": "p", "t4": "o"}[token]), heard(&woken))
		}
		require.NoError(t, t.Release(t.Context(), lease(r, "t1")))
		require.Len(t, woken, 2)
		require.Equal(t, woken[0], woken[1])
		require.Equal(t, driver.Queued, t.ask(r, "t3", of("p"), waiting).Status)
	})
}

// Another token of the owner may count on what this one has.
func TestOwnerKeepsAllOfIt(t *testing.T) {
	each(t, func(t *tester, r driver.Request) {
		if r.Kind != driver.RWMutex || r.Shared {
			return
		}
		t.granted(r, "t1", of("o"))
		t.granted(r, "t2", of("o"))
		require.ErrorIs(t, t.Downgrade(t.Context(), lease(r, "t1"), 1), errors.ErrUnsupported)
		r.Shared = true
		require.Equal(t, driver.Busy, t.ask(r, "reader").Status)
	})
}

func TestLongOwnerIsRefused(t *testing.T) {
	each(t, func(t *tester, r driver.Request) {
		r.Token, r.Owner = "t", strings.Repeat("o", driver.MaxOwner+1)
		_, err := t.Acquire(t.Context(), &r)
		require.ErrorIs(t, err, driver.ErrNotExecuted)
		t.granted(r, "t", of(r.Owner[1:]))
	})
}
