package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// A database may end a transaction by itself when a statement fails. A program that goes on
// nevertheless writes nothing: each of its statements would be carried out at once, unchecked.
func TestTransactionThatTheDatabaseEndedWritesNothingMore(t *testing.T) {
	few(t, func(t *testing.T, e engine) {
		ways := map[string]func(t *testing.T, tx *sql.Tx, plain *sql.DB) error{
			"a row that is there": func(t *testing.T, tx *sql.Tx, _ *sql.DB) error {
				_, err := tx.Exec("INSERT INTO state VALUES (1, '')") // ends it nowhere but in PostgreSQL
				return err
			},
		}
		switch e.dialect {
		case sqlfence.MySQL:
			ways["a deadlock"] = deadlock
		case sqlfence.SQLite:
			ways["a rollback"] = func(t *testing.T, tx *sql.Tx, _ *sql.DB) error {
				_, err := tx.Exec("INSERT OR ROLLBACK INTO state VALUES (1, '')")
				return err
			}
			ways["an interrupt"] = func(t *testing.T, tx *sql.Tx, _ *sql.DB) error {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				_, err := tx.ExecContext(ctx, "INSERT INTO state WITH RECURSIVE c(n) AS (SELECT 10 UNION ALL SELECT n + 1 FROM c) SELECT n, '' FROM c")
				return err
			}
			ways["a query"] = func(t *testing.T, tx *sql.Tx, _ *sql.DB) error {
				rows, err := tx.Query("INSERT OR ROLLBACK INTO state SELECT 10, '' UNION ALL SELECT 1, '' RETURNING id")
				if err != nil {
					return err
				}
				for rows.Next() {
				}
				return errors.Join(rows.Err(), rows.Close())
			}
		}
		for way, fail := range ways {
			t.Run(way, func(t *testing.T) {
				db, plain := e.guarded(t), e.plain(t)
				do(t, plain, "DELETE FROM holdfast_fence")
				tx, err := db.BeginTx(holder(t, 5), nil)
				require.NoError(t, err)
				require.Error(t, fail(t, tx, plain))
				next := make(chan error, 1)
				go func() { next <- writes[0].run(soon(t, 6), e, db, "of the next") }()
				var end error
				select {
				case end = <-next: // The lock of the fence has gone.
				case <-time.After(300 * time.Millisecond): // or it is well
				}
				require.NoError(t, end)
				before := value(t, plain)
				_, err = tx.Exec(e.update(), "late")
				if before != "" { // The next has been here.
					require.Error(t, err)
				}
				assert.Equal(t, before, value(t, plain))
				_ = tx.Rollback()
				if before == "" {
					require.NoError(t, <-next)
				}
				assert.Equal(t, "of the next", value(t, plain))
				do(t, plain, e.update(), "")
			})
		}
	})
}

// deadlock has the server choose the transaction as the victim, as the other one has written more.
func deadlock(t *testing.T, tx *sql.Tx, plain *sql.DB) error {
	do(t, plain, "INSERT IGNORE INTO state VALUES (2, ''), (3, '')")
	other, err := plain.Begin()
	require.NoError(t, err)
	run := func(tx *sql.Tx, query string, args ...any) {
		_, err := tx.Exec(query, args...)
		require.NoError(t, err, query)
	}
	run(tx, "UPDATE state SET value = 'a' WHERE id = 2")
	for i := range 50 {
		run(other, "REPLACE INTO state VALUES (?, '')", 100+i)
	}
	run(other, "UPDATE state SET value = 'b' WHERE id = 3")
	done := make(chan error, 1)
	go func() {
		_, err := other.Exec("UPDATE state SET value = 'b' WHERE id = 2")
		done <- errors.Join(err, other.Commit())
	}()
	_, err = tx.Exec("UPDATE state SET value = 'a' WHERE id = 3")
	require.NoError(t, <-done)
	return err
}

// MySQL shows a transaction what was there when it began to read. That the holder is late is
// found nevertheless, and told.
func TestTransactionThatHasReadBeforeItsLeaseIsToldThatItIsLate(t *testing.T) {
	few(t, func(t *testing.T, e engine) {
		if e.dialect != sqlfence.MySQL {
			t.Skip("others fail with a conflict, after which the program has to try again")
		}
		db, plain := e.guarded(t), e.plain(t)
		for _, level := range []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead} {
			do(t, plain, "DELETE FROM holdfast_fence")
			tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
			require.NoError(t, err)
			var v string
			require.NoError(t, tx.QueryRow("SELECT value FROM state WHERE id = 1").Scan(&v))
			require.NoError(t, writes[0].run(soon(t, 6), e, db, "of the next"))
			_, err = tx.ExecContext(soon(t, 5), e.update(), "late")
			require.ErrorIs(t, err, fence.ErrStale, level)
			require.ErrorIs(t, tx.Commit(), fence.ErrStale, level)
			assert.Equal(t, "of the next", value(t, plain))
		}
	})
}
