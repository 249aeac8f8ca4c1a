package pgdriver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// A holder reads a number in a fenced transaction. Whatever is done to its lease then, nobody is
// let in that would read it, too, before the holder has written: both updates count.
func TestNoVerbLosesAnUpdateOfATransactionThatCountsOnALease(t *testing.T) {
	s := own(t)
	_, err := s.Exec(t.Context(), `CREATE TABLE account (n int)`)
	require.NoError(t, err)
	a := s.asker(t)
	of := func(l driver.Lease, token string, weight int64, ask uint64) *driver.Request {
		return &driver.Request{Kind: l.Kind, Name: l.Name, Token: token, Ask: ask, TTL: long, Weight: weight, Limit: 3, Wake: func(driver.Grant) {}}
	}
	lower := func(l driver.Lease, n uint64) (driver.Grant, error) {
		if err := a.Downgrade(t.Context(), l, 1); err != nil {
			return driver.Grant{}, err
		}
		r := of(l, "b", 1, n)
		r.Shared = l.Kind == driver.RWMutex
		return a.Acquire(t.Context(), r)
	}
	release := func(l driver.Lease) error { return a.Release(t.Context(), l) }
	late := func(l driver.Lease) error {
		l.Unsettled = true
		return release(l)
	}
	for name, v := range map[string]struct {
		kind driver.Kind
		do   func(l driver.Lease) error
		next func(l driver.Lease, n uint64) (driver.Grant, error) // how another comes in, nil for Acquire
	}{
		"attach": {kind: driver.Mutex, next: func(l driver.Lease, n uint64) (driver.Grant, error) {
			return a.Attach(t.Context(), l, of(l, "b", 3, n))
		}},
		"downgrade":       {kind: driver.RWMutex, next: lower},
		"release in part": {kind: driver.Semaphore, next: lower},
		"release":         {kind: driver.Mutex, do: release},
		"late release":    {kind: driver.RWMutex, do: late},
		"force":           {kind: driver.Semaphore, do: func(l driver.Lease) error { return a.ForceRelease(t.Context(), l.Kind, l.Name) }},
		"resize":          {kind: driver.Semaphore, do: func(l driver.Lease) error { return a.Resize(t.Context(), l.Name, "change", 2) }},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.Exec(t.Context(), `DELETE FROM account; INSERT INTO account VALUES (0)`)
			require.NoError(t, err)
			l := driver.Lease{Kind: v.kind, Name: name, Token: "a", TTL: long}
			add := func(fence int64) (commit func()) {
				tx, err := s.Begin(t.Context())
				require.NoError(t, err)
				t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
				_, err = tx.Exec(t.Context(), `SELECT holdfast.fenced($1, $2, $3)`, name, fence, v.kind)
				require.NoError(t, err)
				var n int
				require.NoError(t, tx.QueryRow(t.Context(), `SELECT n FROM account`).Scan(&n))
				return func() {
					_, err := tx.Exec(context.Background(), `UPDATE account SET n = $1`, n+1)
					require.NoError(t, err)
					require.NoError(t, tx.Commit(context.Background()))
				}
			}
			held, err := a.Acquire(t.Context(), of(l, "a", 3, 1))
			require.NoError(t, err)
			commit := add(held.Fence)
			if v.do != nil {
				require.NoError(t, v.do(l))
			}
			var g driver.Grant
			ask := uint64(0)
			try := func() bool {
				ask++
				if v.next != nil {
					g, err = v.next(l, ask)
				} else {
					g, err = a.Acquire(t.Context(), of(l, "b", 1, ask))
				}
				if err != nil {
					require.ErrorIs(t, err, driver.ErrTransient)
					require.ErrorIs(t, err, driver.ErrNotExecuted)
				}
				return err == nil && g.Status == driver.Granted
			}
			var second func()
			for range 3 {
				if try() {
					second = add(g.Fence) // Its update is lost, or ours.
					break
				}
			}
			commit()
			if second == nil {
				if name == "resize" { // it took nothing from the holder
					require.NoError(t, release(l))
				}
				require.Eventually(t, try, patience, 10*time.Millisecond)
				second = add(g.Fence)
			}
			second()
			var n int
			require.NoError(t, s.QueryRow(t.Context(), `SELECT n FROM account`).Scan(&n))
			require.Equal(t, 2, n, "FOUL: an update was lost")
		})
	}
}

// Where waiters are told to ask, one may be robbed before it has asked. The suite looks at what comes of
// the place.
func TestWaiterThatIsRobbedUnheardIsToldItsPlace(t *testing.T) {
	d := beginWith(t, unconfirmed).asker(t)
	d.granted(request("holder", long))
	waiter := d.waits("waiter", long)
	d.release("holder")
	_, err := d.Steal(t.Context(), request("thief", long))
	require.NoError(t, err)
	_, err = d.Acquire(t.Context(), waiter)
	require.ErrorIs(t, err, driver.ErrNotHeld)
	unheard, _ := errors.AsType[driver.Unheard](err)
	require.NotZero(t, unheard.Place.Number)
}

// A waiter that comes back stands in its place, unless another does. There it may fit in beside holders.
func TestWaiterThatComesBackToItsPlace(t *testing.T) {
	d := begin(t).asker(t)
	ask := func(token string, shared bool, place int64) driver.Status {
		r := request(token, long)
		r.Kind, r.Holder, r.Shared, r.Wait, r.Place.Number = driver.RWMutex, token, shared, true, place
		return d.ask(r).Status
	}
	require.Equal(t, driver.Granted, ask("reader", true, 0))
	for _, token := range []string{"gone", "writer", "next"} { // 1, 2 and 3
		require.Equal(t, driver.Queued, ask(token, token == "next", 0))
	}
	require.NoError(t, d.Release(t.Context(), driver.Lease{Kind: driver.RWMutex, Name: "l", Token: "gone", TTL: long}))
	require.Equal(t, driver.Queued, ask("late", true, 2))
	require.Equal(t, driver.Granted, ask("back", true, 1))
	info, err := d.Inspect(t.Context(), driver.RWMutex, "l")
	require.NoError(t, err)
	require.Len(t, info.Holders, 2)
	require.Greater(t, info.Holders[1].Fence, info.Holders[0].Fence)
	var queue []string
	for _, w := range info.Queue {
		queue = append(queue, w.Holder)
	}
	require.Equal(t, []string{"writer", "next", "late"}, queue)
}
