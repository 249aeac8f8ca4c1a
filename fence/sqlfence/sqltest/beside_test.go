package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
	"github.com/holdfast-go/holdfast/internal/test/pgtest"
)

// soon is a context of a holder that ends the test instead of hanging it.
func soon(t testing.TB, number int64) context.Context {
	ctx, cancel := context.WithTimeout(holder(t, number), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// What a holder does on one connection does not wait for what it has open on another, from the
// first use of the lease on.
func TestHolderDoesNotWaitForItself(t *testing.T) {
	few(t, func(t *testing.T, e engine) {
		do(t, e.plain(t), "INSERT INTO state VALUES (2, 'b')")
		number := int64(0)
		for name, work := range map[string]func(ctx context.Context, db *sql.DB) error{
			"writes beside open rows": func(ctx context.Context, db *sql.DB) error {
				rows, err := db.QueryContext(ctx, "SELECT id FROM state ORDER BY id")
				if err != nil {
					return err
				}
				for rows.Next() {
					var id int
					if err := rows.Scan(&id); err != nil {
						return err
					}
					if _, err := db.ExecContext(ctx, fmt.Sprint("UPDATE state SET value = 'x' WHERE id = ", id)); err != nil {
						return errors.Join(err, rows.Close())
					}
				}
				return rows.Err()
			},
			"reads beside a transaction": func(ctx context.Context, db *sql.DB) error {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				_, err = tx.ExecContext(ctx, e.update(), "y")
				var n int
				return errors.Join(err, db.QueryRowContext(ctx, "SELECT count(*) FROM state").Scan(&n), tx.Commit())
			},
			"writes beside a transaction": func(ctx context.Context, db *sql.DB) error {
				if e.dialect == sqlfence.SQLite {
					return nil // has one writer at a time
				}
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				_, err = db.ExecContext(ctx, "UPDATE state SET value = 'z' WHERE id = 2")
				return errors.Join(err, tx.Commit())
			},
			"readers of an RWMutex, too": func(ctx context.Context, db *sql.DB) error {
				ctx = fence.With(ctx, fence.Fence{Kind: "rwmutex", Name: fmt.Sprint("x", number), Number: number, Shared: true})
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				var n int
				return errors.Join(db.QueryRowContext(ctx, "SELECT count(*) FROM state").Scan(&n), tx.Commit())
			},
		} {
			for _, fresh := range []bool{true, false} {
				if fresh {
					number++
				}
				assert.NoError(t, work(soon(t, number), e.guarded(t)), "%s, new lease %t", name, fresh)
			}
		}
	})
}

// One connection is all that a guarded statement or transaction takes.
func TestOneConnectionIsEnough(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		db := e.guarded(t)
		db.SetMaxOpenConns(1)
		for i, w := range writes {
			require.NoError(t, w.run(soon(t, int64(i+1)), e, db, "v"), w.name)
		}
	})
}

// Goroutines of one holder that begin with a new lease take turns only where the database has
// them: each of these waits in its transaction for all the others.
func TestGoroutinesOfOneHolderWorkAtTheSameTime(t *testing.T) {
	few(t, func(t *testing.T, e engine) {
		if e.dialect == sqlfence.SQLite {
			return // has one writer at a time
		}
		db := e.guarded(t)
		for round := range int64(20) {
			ctx := soon(t, round+1)
			var met, done sync.WaitGroup
			met.Add(8)
			for range 8 {
				done.Go(func() {
					tx, err := db.BeginTx(ctx, nil)
					met.Done()
					if assert.NoError(t, err) {
						met.Wait()
						assert.NoError(t, tx.Commit())
					}
				})
			}
			done.Wait()
		}
	})
}

// A query that reads leaves no trace in the log of the database.
func TestReadingUnderALeaseWritesNothing(t *testing.T) {
	e := fresh(t, engine{"pgx", "pgx", database(t, pgtest.Shared(t)), sqlfence.Postgres})
	db, plain := e.guarded(t), e.plain(t)
	xid := func() (n int64) {
		require.NoError(t, plain.QueryRow("SELECT txid_snapshot_xmax(txid_current_snapshot())").Scan(&n))
		return n
	}
	ctx := holder(t, 5)
	var v string
	require.NoError(t, db.QueryRowContext(ctx, "SELECT value FROM state").Scan(&v), "records")
	before := xid()
	for range 10 {
		require.NoError(t, db.QueryRowContext(ctx, "SELECT value FROM state").Scan(&v))
	}
	assert.Equal(t, before, xid(), "transactions that wrote")
}

// A query that looks as if it would read may call a function that writes. It is paused there, and
// meanwhile the next holder comes.
func TestQueryThatOnlySeemsToReadIsConfirmed(t *testing.T) {
	e := fresh(t, engine{"pgx", "pgx", database(t, pgtest.Shared(t)), sqlfence.Postgres})
	db, plain := e.guarded(t), e.plain(t)
	do(t, plain, `CREATE FUNCTION put(v text) RETURNS text LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_advisory_lock_shared(1); PERFORM pg_advisory_unlock_shared(1);
		UPDATE state SET value = v; RETURN v; END $$`)
	put := func(n int64, v string) error {
		var back string
		return db.QueryRowContext(soon(t, n), "SELECT put('"+v+"')").Scan(&back)
	}
	require.NoError(t, put(5, "in time"))
	assert.Equal(t, "in time", value(t, plain))

	gate, err := plain.Conn(t.Context())
	require.NoError(t, err)
	_, err = gate.ExecContext(t.Context(), "SELECT pg_advisory_lock(1)")
	require.NoError(t, err)
	late := make(chan error, 1)
	go func() { late <- put(5, "late") }()
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, plain.QueryRow(`SELECT count(*) FROM pg_locks JOIN pg_database d ON database = d.oid
			WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted`).Scan(&n))
		return n == 1
	}, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, writes[0].run(soon(t, 6), e, db, "of the next"))
	_, err = gate.ExecContext(t.Context(), "SELECT pg_advisory_unlock(1)")
	require.NoError(t, errors.Join(err, gate.Close()))
	require.ErrorIs(t, <-late, fence.ErrStale)
	assert.Equal(t, "of the next", value(t, plain))
}

// What would end the transaction, and free the row of the fence, is refused under a lease.
func TestStatementsThatEndTheTransactionAreRefusedUnderALease(t *testing.T) {
	few(t, func(t *testing.T, e engine) {
		db, plain := e.guarded(t), e.plain(t)
		ending := []string{"COMMIT", "rollback", "ROLLBACK AND NO CHAIN", "/* why */ END"}
		if e.dialect == sqlfence.MySQL {
			ending = append(ending, "CREATE TABLE other (id INTEGER)", "-- why\n drop table state", "/*!50000 TRUNCATE */ state",
				"START TRANSACTION", "BEGIN", "SET autocommit = 1", "LOCK TABLES state WRITE", "ALTER TABLE state ADD n INT",
				"EXECUTE IMMEDIATE 'COMMIT'", "SET STATEMENT max_statement_time = 1 FOR COMMIT")
		}
		if e.dialect == sqlfence.SQLite {
			ending = append(ending, "\ufeffCOMMIT")
		}
		if e.dialect == sqlfence.Postgres {
			ending = append(ending, "/* /* why */ not */ COMMIT")
		}
		for _, query := range ending {
			n := int64(10)
			do(t, plain, "DELETE FROM holdfast_fence")
			tx, err := db.BeginTx(holder(t, n), nil)
			require.NoError(t, err)
			_, err = tx.Exec(query)
			require.ErrorIs(t, err, errors.ErrUnsupported, query)
			if s, err := tx.Prepare(query); err == nil {
				_, err = s.Exec()
				require.ErrorIs(t, err, errors.ErrUnsupported, query)
			}
			_, err = tx.Exec(e.update(), query)
			require.NoError(t, errors.Join(err, tx.Commit()), "it goes on")
			assert.Equal(t, query, value(t, plain))
		}
		tx, err := db.BeginTx(holder(t, 10), nil)
		require.NoError(t, err)
		for _, query := range []string{"SAVEPOINT s", "ROLLBACK TO SAVEPOINT s", "CREATE TEMPORARY TABLE t (id INTEGER)"} {
			_, err := tx.Exec(query)
			require.NoError(t, err, query)
		}
		require.NoError(t, tx.Commit())
		if e.dialect != sqlfence.MySQL {
			return
		}
		tx, err = db.Begin() // without a lease one may
		require.NoError(t, err)
		_, err = tx.Exec("CREATE TABLE IF NOT EXISTS other (id INTEGER)")
		require.NoError(t, err)
		_, err = tx.ExecContext(holder(t, 10), e.update(), "late")
		require.ErrorIs(t, err, errors.ErrUnsupported, "there is no transaction any more")
		_ = tx.Rollback()
		do(t, plain, "DROP TABLE other")
	})
}
