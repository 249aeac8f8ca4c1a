package pgdriver_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// A holder reads a number in a fenced transaction. Whatever is done to its lease then, nobody is
// let in that would read it, too, before the holder has written: both updates count.
func TestNoVerbLosesAnUpdateOfATransactionThatCountsOnALease(t *testing.T) {
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
			s := start(t)
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
			require.Equal(t, 2, n, "an update was lost")
		})
	}
}
