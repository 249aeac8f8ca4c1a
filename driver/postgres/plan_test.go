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
	t.Parallel()
	for _, analyzed := range []bool{true, false} {
		t.Run(map[bool]string{true: "analyzed", false: "planned when empty"}[analyzed], func(t *testing.T) {
			t.Parallel()
			s := start(t, "-c", "autovacuum=off")
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
			_, _ = a.Extend(ctx, l, 10)
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
