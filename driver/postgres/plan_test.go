package pgdriver_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/pgtest"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// crowd puts 10,000 locks that are held into the store, and 10,000 tokens that wait for the
// lock l behind its holder.
const crowd = `
	INSERT INTO holdfast.lock (kind, name, size, look)
		SELECT 'mutex', convert_to('lock ' || i, 'UTF8'), 1 << 30, now() + interval '1 minute' FROM generate_series(1, 10000) i
		UNION ALL SELECT 'semaphore', convert_to('lock ' || i, 'UTF8'), 3, now() FROM generate_series(1, 100) i
		ON CONFLICT DO NOTHING;
	INSERT INTO holdfast.claim (lock, token, held, shared, weight, ttl, until, ask, wants, notice, holder, since, fence, fences, last)
		SELECT id, 'holder ' || id, true, false, size, '1 hour', now() + interval '1 hour', 1, 1, false, '', now(), 1, 1, 1
		FROM holdfast.lock WHERE name <> 'l';
	INSERT INTO holdfast.claim (lock, token, held, shared, weight, ttl, until, ask, wants, notice, holder, client, place, asks)
		SELECT l.id, 'waiter ' || i, false, false, l.size, '1 hour', now() + interval '1 hour', 1, 1, false, '', 'client', nextval('holdfast.place'), now()
		FROM generate_series(1, 10000) i, holdfast.lock l WHERE kind = 'mutex' AND name = 'l';
	INSERT INTO holdfast.tombstone SELECT id, 'gone ' || id, now() + interval '1 minute' FROM holdfast.lock;`

// Every statement of every operation finds its rows by an index, whether the server has looked
// at the tables since they grew or planned the statements when they were empty.
func TestEveryStatementUsesAnIndex(t *testing.T) {
	redistest.SoakOnly(t)
	server := pgtest.Shared(t, calm...)
	t.Parallel()
	for _, analyzed := range []bool{true, false} {
		t.Run(map[bool]string{true: "analyzed", false: "planned when empty"}[analyzed], func(t *testing.T) {
			t.Parallel()
			s := database(t, server)
			var plans []string
			s.Pool = s.pool(t, func(c *pgxpool.Config) {
				c.MaxConns = 1
				c.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
					if strings.Contains(n.Message, "plan:") {
						plans = append(plans, n.Message)
					}
				}
				c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
					_, err := conn.Exec(ctx, `LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0;
						SET auto_explain.log_nested_statements = on; SET auto_explain.log_analyze = on; SET auto_explain.log_timing = off;
						SET client_min_messages = log;`)
					return err
				}
			})
			a := s.asker(t)
			operate(a, "t") // makes the lock l
			if !analyzed {
				for i := range 8 { // after five runs a plan is kept
					operate(a, fmt.Sprint("t", i))
				}
			}
			holder := request("holder", long)
			a.granted(holder)
			_, err := s.Exec(t.Context(), crowd)
			require.NoError(t, err)
			if analyzed {
				_, err = s.Exec(t.Context(), `ANALYZE holdfast.lock, holdfast.claim, holdfast.tombstone`)
				require.NoError(t, err)
			}
			plans = nil
			operate(a, "late")
			_, err = s.Exec(t.Context(), `SELECT holdfast.fenced('lock 7', 1)`)
			require.NoError(t, err)
			_, err = s.Exec(t.Context(), `SELECT holdfast.sweep()`)
			require.NoError(t, err)
			a.release("holder")
			require.Greater(t, len(plans), 100)
			read := regexp.MustCompile(`(rows=\d+ loops|Rows Removed by Filter: \d+)`)
			for _, plan := range plans {
				require.NotContains(t, plan, "Seq Scan", plan)
				require.NotContains(t, plan, "Sort Key: w.place", plan)
				for _, rows := range read.FindAllString(plan, -1) {
					require.NotRegexp(t, `\d{4}`, rows, "reads 1,000 rows or more: %s", plan)
				}
			}
		})
	}
}

// A crowd that has taken turns leaves pages of dead rows, whether or not somebody can clean them
// up. Whatever the server has counted of them, those who wait are read in their order, and those
// who hold by an index of theirs; both read few pages, and what is dead is read once.
func TestQueueOfACrowdIsReadByItsIndexAmongDeadPages(t *testing.T) {
	redistest.SoakOnly(t)
	server := pgtest.Shared(t, calm...)
	t.Parallel()
	for name, then := range map[string]string{
		"as it grew":           ``,
		"analyzed":             `ANALYZE holdfast.lock, holdfast.claim, holdfast.tombstone`,
		"vacuumed":             `VACUUM ANALYZE holdfast.lock, holdfast.claim, holdfast.tombstone`,
		"with few dead":        `VACUUM FULL ANALYZE holdfast.claim`,
		"analyzed when vacant": `DELETE FROM holdfast.claim WHERE NOT held; ANALYZE holdfast.claim`,
		"seen by an old one":   `ANALYZE holdfast.claim`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t, server)
			var plans []string
			ctx := t.Context()
			pool := s.pool(t, func(c *pgxpool.Config) {
				c.MaxConns = 1
				c.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
					if strings.Contains(n.Message, "plan:") {
						plans = append(plans, n.Message)
					}
				}
				c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
					_, err := conn.Exec(ctx, `LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0;
						SET auto_explain.log_nested_statements = on; SET client_min_messages = log;`)
					return err
				}
			})
			a := store{s.Server, pool}.asker(t)
			a.granted(request("t", long))
			if name == "seen by an old one" {
				tx, err := s.Begin(ctx)
				require.NoError(t, err)
				defer func() { _ = tx.Rollback(context.Background()) }()
				_, err = tx.Exec(ctx, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT FROM holdfast.lock`)
				require.NoError(t, err)
			}
			for range 40 {
				_, err := s.Exec(ctx, `DELETE FROM holdfast.claim WHERE NOT held; INSERT INTO holdfast.claim
					(lock, token, held, shared, weight, ttl, until, ask, wants, notice, holder, client, place, asks)
					SELECT l.id, 'waiter ' || i, false, false, l.size, '1 hour', now() + interval '1 hour', 1, 1, false, '', 'client',
						nextval('holdfast.place'), now() + interval '1 hour' FROM generate_series(1, 64) i, holdfast.lock l;
					UPDATE holdfast.claim SET held = true, since = now(), fence = 1, last = 1, fences = 1 WHERE token < 'waiter 3' AND NOT held;
					UPDATE holdfast.claim SET held = false WHERE token LIKE 'waiter%' AND held`)
				require.NoError(t, err)
			}
			for _, sql := range strings.Split(then, ";") {
				_, err := s.Exec(ctx, sql)
				require.NoError(t, err)
			}
			for i := range 12 { // after five runs a plan is kept
				waiter := request(fmt.Sprint("w", i), long)
				waiter.Wait = true
				require.Equal(t, driver.Queued, a.ask(waiter).Status)
				a.release(waiter.Token)
			}
			queues, holders := 0, 0
			for _, plan := range plans {
				require.NotContains(t, plan, "Seq Scan", plan)
				require.NotContains(t, plan, "Bitmap", plan)
				if strings.Contains(plan, "NOT w.held ORDER BY w.place\n") {
					queues++
					require.Contains(t, plan, "claim_queue", plan)
					require.NotContains(t, plan, "Sort Key", plan)
				}
				if strings.Contains(plan, "sum(c.weight)") {
					holders++
					require.Contains(t, plan, "claim_holders", plan)
				}
			}
			t.Logf("%d plans, %d of queues, %d of holders", len(plans), queues, holders)
			require.NotZero(t, queues)
			require.NotZero(t, holders)
		})
	}
}

// operate calls every function, as a token of its own that finds the mutex l in whatever state.
func operate(a asker, token string) {
	a.Helper()
	ctx := a.Context()
	for _, name := range []string{"l", "lock 5", "free " + token} {
		for _, k := range []driver.Kind{driver.Mutex, driver.Semaphore} {
			waiter := &driver.Request{Kind: k, Name: name, Token: token, Ask: 1, TTL: long, Wait: true, Weight: 1, Limit: 3, Wake: func(driver.Grant) {}}
			l := driver.Lease{Kind: k, Name: name, Token: token, TTL: long, Unsettled: true}
			hasty := *waiter
			hasty.Token, hasty.Wait = "hasty "+token, false
			hasty.Token = strings.ReplaceAll(hasty.Token, " ", "-")
			_, err := a.Acquire(ctx, &hasty)
			require.NoError(a, err)
			_ = a.Release(ctx, driver.Lease{Kind: k, Name: name, Token: hasty.Token})
			for range 2 {
				_, err = a.Acquire(ctx, waiter)
				require.NoError(a, err)
				waiter.Ask++
			}
			_ = a.Renew(ctx, []driver.Lease{l})
			_, _ = a.Notice(ctx, l)
			_, _ = a.RaiseFence(ctx, l, 1, 1)
			_ = a.Downgrade(ctx, l, 1)
			attached := *waiter
			attached.Token = token + "-attached"
			if _, err := a.Attach(ctx, l, &attached); err == nil {
				l.Unsettled = false
				_ = a.Release(ctx, driver.Lease{Kind: k, Name: name, Token: attached.Token})
			}
			l.Unsettled = false
			_ = a.Release(ctx, l)
			if name != "l" {
				_, err = a.Inspect(ctx, k, name)
				require.NoError(a, err)
				_ = a.ForceRelease(ctx, k, name)
			}
		}
	}
	require.NoError(a, a.Resize(ctx, "lock 6", "resize-"+token+time.Now().String()[11:27], 3))
}

// The planner puts a price on what it is told to avoid. Where that cannot be avoided the price
// has the server compile the plan, which takes longer than all else.
func TestNoPlanIsCompiled(t *testing.T) {
	s := begin(t)
	var plans []string
	s.Pool = s.pool(t, func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { plans = append(plans, n.Message) }
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_analyze = on;
				SET auto_explain.log_nested_statements = on; SET client_min_messages = log`)
			return err
		}
	})
	a := s.asker(t)
	none := lease("none", long) // of a lock that is not there, as is all that it waits behind
	waiter := request("none", long)
	for _, f := range []func() error{
		func() error { _, err := a.Attach(t.Context(), none, waiter); return err },
		func() error {
			return a.Downgrade(t.Context(), driver.Lease{Kind: driver.RWMutex, Name: "l", Token: "none", TTL: long}, 1)
		},
		func() error { return a.ForceRelease(t.Context(), none.Kind, none.Name) },
		func() error { return a.Renew(t.Context(), []driver.Lease{none, none})[0] },
		func() error { _, err := a.Notice(t.Context(), none); return err },
		func() error { _, err := a.RaiseFence(t.Context(), none, 1, 1); return err },
		func() error { return a.Release(t.Context(), none) },
	} {
		require.ErrorIs(t, f(), driver.ErrNotHeld)
	}
	operate(a, "t")
	_, err := s.Exec(t.Context(), `SELECT holdfast.sweep()`)
	require.NoError(t, err)
	require.Greater(t, len(plans), 100)
	for _, plan := range plans {
		require.NotContains(t, plan, "JIT:", plan)
	}
}
