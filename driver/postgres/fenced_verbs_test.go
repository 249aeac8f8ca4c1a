package pgdriver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/pgtest"
)

// A holder reads a number in a fenced transaction. Whatever is done to its lease then, nobody is
// let in that would read it, too, before the holder has written: both updates count.
func TestNoVerbLosesAnUpdateOfATransactionThatCountsOnALease(t *testing.T) {
	server := pgtest.Shared(t, calm...)
	t.Parallel()
	of := func(k driver.Kind, token string) *driver.Request {
		return &driver.Request{Kind: k, Name: "l", Token: token, Ask: 1, TTL: long, Weight: 3, Limit: 3, Wake: func(driver.Grant) {}}
	}
	type verb struct {
		kind driver.Kind
		do   func(a asker, l driver.Lease) error
		next func(a asker, l driver.Lease, n uint64) (driver.Grant, error) // how another comes in, nil for Acquire
	}
	again := func(do func(a asker, l driver.Lease) error) func(asker, driver.Lease, uint64) (driver.Grant, error) {
		return func(a asker, l driver.Lease, n uint64) (driver.Grant, error) {
			if err := do(a, l); err != nil {
				return driver.Grant{}, err
			}
			r := of(l.Kind, "b")
			r.Ask, r.Shared, r.Weight = n, l.Kind == driver.RWMutex, 1
			return a.Acquire(a.Context(), r)
		}
	}
	lower := func(a asker, l driver.Lease) error { return a.Downgrade(a.Context(), l, 1) }
	for name, v := range map[string]verb{
		"attach": {kind: driver.Mutex, next: func(a asker, l driver.Lease, n uint64) (driver.Grant, error) {
			r := of(l.Kind, "b")
			r.Ask = n
			return a.Attach(a.Context(), l, r)
		}},
		"downgrade":       {kind: driver.RWMutex, next: again(lower)},
		"release in part": {kind: driver.Semaphore, next: again(lower)},
		"release":         {kind: driver.Mutex, do: func(a asker, l driver.Lease) error { return a.Release(a.Context(), l) }},
		"late release": {kind: driver.RWMutex, do: func(a asker, l driver.Lease) error {
			l.Unsettled = true
			return a.Release(a.Context(), l)
		}},
		"force":  {kind: driver.Semaphore, do: func(a asker, l driver.Lease) error { return a.ForceRelease(a.Context(), l.Kind, l.Name) }},
		"resize": {kind: driver.Semaphore, do: func(a asker, l driver.Lease) error { return a.Resize(a.Context(), l.Name, "change", 2) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := database(t, server)
			_, err := s.Exec(t.Context(), `CREATE TABLE account (n int); INSERT INTO account VALUES (0)`)
			require.NoError(t, err)
			a := s.asker(t)
			add := func(fence int64) (commit func()) {
				tx, err := s.Begin(t.Context())
				require.NoError(t, err)
				t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
				_, err = tx.Exec(t.Context(), `SELECT holdfast.fenced('l', $1, $2)`, fence, v.kind)
				require.NoError(t, err)
				var n int
				require.NoError(t, tx.QueryRow(t.Context(), `SELECT n FROM account`).Scan(&n))
				return func() {
					_, err := tx.Exec(context.Background(), `UPDATE account SET n = $1`, n+1)
					require.NoError(t, err)
					require.NoError(t, tx.Commit(context.Background()))
				}
			}
			l := driver.Lease{Kind: v.kind, Name: "l", Token: "a", TTL: long}
			held, err := a.Acquire(t.Context(), of(v.kind, "a"))
			require.NoError(t, err)
			commit := add(held.Fence)
			if v.do != nil {
				require.NoError(t, v.do(a, l))
			}
			next := v.next
			if next == nil {
				next = func(a asker, l driver.Lease, n uint64) (driver.Grant, error) {
					r := of(l.Kind, "b")
					r.Ask, r.Weight = n, 1
					return a.Acquire(a.Context(), r)
				}
			}
			var g driver.Grant
			ask := uint64(0)
			try := func() bool {
				ask++
				g, err = next(a, l, ask)
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
					require.NoError(t, a.Release(t.Context(), l))
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
	waiter := request("waiter", long)
	waiter.Wait = true
	require.Equal(t, driver.Queued, d.ask(waiter).Status)
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
