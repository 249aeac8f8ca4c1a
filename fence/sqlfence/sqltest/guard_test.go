package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// write is one of the ways to write a value.
type write struct {
	name string
	run  func(ctx context.Context, e engine, db *sql.DB, value string) error
}

var writes = []write{
	{"transaction", func(ctx context.Context, e engine, db *sql.DB, value string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		_, err = tx.Exec(e.update(), value)
		return errors.Join(err, tx.Commit())
	}},
	{"statement in a transaction without a lease", func(ctx context.Context, e engine, db *sql.DB, value string) error {
		tx, err := db.Begin()
		if err != nil {
			return err
		}
		_, err1 := tx.Exec(e.update(), "rolled back if the next is refused")
		_, err2 := tx.ExecContext(ctx, e.update(), value)
		_, err3 := tx.Exec(e.update(), value)
		return errors.Join(err1, err2, err3, tx.Commit())
	}},
	{"statement", func(ctx context.Context, e engine, db *sql.DB, value string) error {
		_, err := db.ExecContext(ctx, e.update(), value)
		return err
	}},
	{"statement without arguments", func(ctx context.Context, e engine, db *sql.DB, value string) error {
		_, err := db.ExecContext(ctx, "UPDATE state SET value = '"+value+"' WHERE id = 1")
		return err
	}},
	{"prepared statement", func(ctx context.Context, e engine, db *sql.DB, value string) error {
		s, err := db.PrepareContext(ctx, e.update())
		if err != nil {
			return err
		}
		_, err = s.ExecContext(ctx, value)
		return errors.Join(err, s.Close())
	}},
	{"connection", func(ctx context.Context, e engine, db *sql.DB, value string) error {
		c, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		_, err = c.ExecContext(ctx, e.update(), value)
		return errors.Join(err, c.Close())
	}},
	{"query", func(ctx context.Context, e engine, db *sql.DB, value string) error {
		query := e.update() + " RETURNING value"
		if e.dialect == sqlfence.MySQL {
			query = "REPLACE INTO state (id, value) VALUES (1, ?) RETURNING value"
		}
		var back string
		err := db.QueryRowContext(ctx, query, value).Scan(&back)
		if err == nil && back != value {
			err = fmt.Errorf("it returns %q", back)
		}
		return err
	}},
}

func TestOnlyTheNewestHolderWrites(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		db, plain := e.guarded(t), e.plain(t)
		for i, w := range writes {
			t.Run(w.name, func(t *testing.T) {
				n := int64(10 * (i + 1))
				do(t, plain, e.update(), "")
				require.NoError(t, w.run(holder(t, n), e, db, "first"))
				assert.Equal(t, n, recorded(t, e, plain, exclusive("x", 0)))
				require.NoError(t, w.run(holder(t, n), e, db, "first again"))
				assert.Equal(t, "first again", value(t, plain))

				require.NoError(t, w.run(holder(t, n+1), e, db, "second"))
				for range 3 { // on whatever connection
					err := w.run(holder(t, n), e, db, "late")
					require.ErrorIs(t, err, fence.ErrStale)
					assert.ErrorContains(t, err, fmt.Sprintf("mutex:x has %d, but %d was seen", n, n+1))
				}
				require.NoError(t, w.run(holder(t, n+1), e, db, "second again"))
				assert.Equal(t, "second again", value(t, plain))
				assert.Equal(t, n+1, recorded(t, e, plain, exclusive("x", 0)))

				require.NoError(t, w.run(t.Context(), e, db, "nobody"), "there is no lease")
				assert.Equal(t, "nobody", value(t, plain))
			})
		}
		assert.LessOrEqual(t, db.Stats().OpenConnections, 3, "a connection is lost with each refusal")
	})
}

// A fence is recorded for itself, before the transaction: the lease was there, whatever comes of it.
func TestWhatFailsLeavesNothingButTheFence(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		db, plain := e.guarded(t), e.plain(t)
		_, err := db.ExecContext(holder(t, 5), "UPDATE missing SET n = 1")
		require.Error(t, err)
		assert.NotErrorIs(t, err, fence.ErrStale)

		tx, err := db.BeginTx(holder(t, 6), nil)
		require.NoError(t, err)
		_, err = tx.Exec(e.update(), "6")
		require.NoError(t, err)
		require.NoError(t, tx.Rollback())
		assert.Empty(t, value(t, plain))
		assert.Equal(t, int64(6), recorded(t, e, plain, exclusive("x", 0)))
		require.ErrorIs(t, writes[0].run(holder(t, 5), e, db, "5"), fence.ErrStale)
	})
}

func TestAllLeasesOfAContextAreChecked(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		db, plain := e.guarded(t), e.plain(t)
		require.NoError(t, writes[0].run(fence.With(t.Context(), exclusive("b", 7)), e, db, "b"))
		both := func(a, b int64) context.Context {
			return fence.With(t.Context(), exclusive("b", b), exclusive("a", a))
		}
		for _, w := range writes {
			require.ErrorIs(t, w.run(both(5, 6), e, db, "late"), fence.ErrStale, w.name)
			assert.Equal(t, "b", value(t, plain), "it was rolled back")
		}
		require.NoError(t, writes[0].run(both(5, 8), e, db, "in time"))
		assert.Equal(t, int64(5), recorded(t, e, plain, exclusive("a", 0)))
		assert.Equal(t, int64(8), recorded(t, e, plain, exclusive("b", 0)))
	})
}

func TestLocksAreToldApartByKindAndName(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		db := e.guarded(t)
		long := strings.Repeat("\xff", driver.MaxName)
		for i, f := range []fence.Fence{
			{Kind: driver.Mutex, Name: "n"}, {Kind: driver.RWMutex, Name: "n"}, {Kind: driver.Mutex, Name: "N"},
			{Kind: driver.Mutex, Name: "n "}, {Kind: driver.Mutex, Name: "ñ"}, {Kind: driver.Mutex, Name: `n'"\`},
			{Kind: driver.Mutex, Name: "\x00"}, {Kind: driver.Mutex, Name: long}, {Kind: driver.Mutex, Name: long[1:]},
		} {
			f.Number = int64(100 - i)
			require.NoError(t, sqlfence.Check(fence.With(t.Context(), f), db), "%q", f.Name)
			f.Number--
			require.ErrorIs(t, sqlfence.Check(fence.With(t.Context(), f), db), fence.ErrStale, "%q", f.Name)
		}
	})
}

// levels are those that the database has.
func levels(e engine) []sql.IsolationLevel {
	if e.dialect == sqlfence.SQLite {
		return []sql.IsolationLevel{sql.LevelDefault}
	}
	return []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
}

func TestTransactionsFollowOneAnotherInTheOrderOfTheirFences(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		db, plain := e.guarded(t), e.plain(t)
		for i, level := range levels(e) {
			t.Run(level.String(), func(t *testing.T) {
				opts, n := &sql.TxOptions{Isolation: level}, int64(10*(i+1))
				do(t, plain, e.update(), "")
				first, err := db.BeginTx(holder(t, n), opts)
				require.NoError(t, err)
				_, err = first.Exec(e.update(), "first")
				require.NoError(t, err)

				// The next one reads only when the first, which may be paused, is through.
				type result struct {
					read string
					err  error
				}
				next := make(chan result, 1)
				go func() {
					var r result
					for retry := true; retry; {
						retry, r.err = false, nil
						tx, err := db.BeginTx(holder(t, n+1), opts)
						if err != nil {
							// What SQL does at these levels: the program has to try again.
							retry = strings.Contains(err.Error(), "could not serialize access")
							r.err = err
							continue
						}
						if r.err = tx.QueryRow("SELECT value FROM state WHERE id = 1").Scan(&r.read); r.err == nil {
							r.err = tx.Commit()
						}
					}
					next <- r
				}()
				select {
				case r := <-next:
					t.Fatalf("the next did not wait: %+v", r)
				case <-time.After(100 * time.Millisecond):
				}
				require.NoError(t, first.Commit())
				select {
				case r := <-next:
					require.NoError(t, r.err)
					assert.Equal(t, "first", r.read)
				case <-time.After(20 * time.Second):
					t.Fatal("the next waits for ever")
				}
				require.ErrorIs(t, writes[0].run(holder(t, n), e, db, "late"), fence.ErrStale)
			})
		}
	})
}

func TestReadersAreStaleOnlyAfterALaterWriter(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		db := e.guarded(t)
		rw := func(number int64, shared bool) context.Context {
			return fence.With(t.Context(), fence.Fence{Kind: driver.RWMutex, Name: "x", Number: number, Shared: shared})
		}
		const reader, writer = true, false
		for _, w := range writes {
			do(t, db, "DELETE FROM holdfast_fence")
			require.NoError(t, w.run(rw(3, reader), e, db, "r"), w.name)
			require.NoError(t, w.run(rw(2, reader), e, db, "an earlier one that holds it, too"), w.name)
			require.NoError(t, w.run(rw(4, writer), e, db, "w"), w.name)
			require.ErrorIs(t, w.run(rw(3, reader), e, db, "late"), fence.ErrStale, w.name)
			require.NoError(t, w.run(rw(6, reader), e, db, "r"), w.name)
			require.NoError(t, w.run(rw(5, reader), e, db, "r"), w.name)
			require.NoError(t, w.run(rw(4, reader), e, db, "the writer, downgraded"), w.name)
			require.NoError(t, w.run(rw(7, writer), e, db, "w"), w.name)
			require.ErrorIs(t, w.run(rw(6, reader), e, db, "late"), fence.ErrStale, w.name)
			require.ErrorIs(t, w.run(rw(4, writer), e, db, "late"), fence.ErrStale, w.name)
		}
	})
}

func TestReadersDoNotWaitForOneAnotherButWritersDo(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		if e.dialect == sqlfence.SQLite {
			t.Skip("SQLite has one writer at a time anyway, and lets none write on an old view")
		}
		db := e.guarded(t)
		rw := func(number int64, shared bool) context.Context {
			return fence.With(t.Context(), fence.Fence{Kind: driver.RWMutex, Name: "x", Number: number, Shared: shared})
		}
		for n := range int64(3) { // the first time there is no row to lock
			n := 10 * (n + 1)
			reader, err := db.BeginTx(rw(n, true), nil)
			require.NoError(t, err)
			if n > 10 {
				require.NoError(t, sqlfence.Check(rw(n+1, true), db), "another reader")
			}
			written := make(chan error, 1)
			go func() { written <- sqlfence.Check(rw(n+2, false), db) }()
			select {
			case err := <-written:
				t.Fatalf("the writer did not wait: %v", err)
			case <-time.After(100 * time.Millisecond):
			}
			require.NoError(t, reader.Commit())
			require.NoError(t, <-written)
			_, err = db.BeginTx(rw(n+1, true), nil)
			require.ErrorIs(t, err, fence.ErrStale)
		}
	})
}

func TestReadOnlyTransactionIsCheckedButNotRecorded(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		db, plain := e.guarded(t), e.plain(t)
		opts := &sql.TxOptions{ReadOnly: true}
		read := func(number int64) error {
			tx, err := db.BeginTx(holder(t, number), opts)
			if err != nil {
				return err
			}
			var v string
			return errors.Join(tx.QueryRow("SELECT value FROM state WHERE id = 1").Scan(&v), tx.Commit())
		}
		require.NoError(t, read(5))
		assert.Zero(t, recorded(t, e, plain, exclusive("x", 0)))
		require.NoError(t, writes[0].run(holder(t, 6), e, db, "6"))
		require.ErrorIs(t, read(5), fence.ErrStale)
		require.NoError(t, read(6))
		require.NoError(t, read(7))
	})
}

func TestSavepointDoesNotUndoACheck(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		db := e.guarded(t)
		require.NoError(t, sqlfence.Check(holder(t, 5), db))
		tx, err := db.Begin()
		require.NoError(t, err)
		for _, query := range []string{"SAVEPOINT s", "check", "ROLLBACK TO SAVEPOINT s"} {
			if query == "check" {
				_, err = tx.ExecContext(holder(t, 7), "UPDATE state SET value = 'undone'")
			} else {
				_, err = tx.Exec(query)
			}
			require.NoError(t, err)
		}
		if e.dialect != sqlfence.SQLite { // where the transaction keeps all others out
			require.NoError(t, sqlfence.Check(holder(t, 8), db), "nothing of 7 is left")
			_, err = tx.ExecContext(holder(t, 7), "UPDATE state SET value = 'late'")
			require.ErrorIs(t, err, fence.ErrStale)
			require.ErrorIs(t, tx.Commit(), fence.ErrStale)
			return
		}
		_, err = tx.ExecContext(holder(t, 4), "UPDATE state SET value = 'late'")
		require.ErrorIs(t, err, fence.ErrStale)
		require.ErrorIs(t, tx.Commit(), fence.ErrStale)
	})
}

func TestRefusedTransactionCannotBeCommitted(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		db, plain := e.guarded(t), e.plain(t)
		require.NoError(t, sqlfence.Check(holder(t, 5), db))
		tx, err := db.Begin()
		require.NoError(t, err)
		_, err = tx.Exec(e.update(), "before")
		require.NoError(t, err)
		_, err = tx.ExecContext(holder(t, 4), e.update(), "late")
		require.ErrorIs(t, err, fence.ErrStale)
		_, err = tx.Exec(e.update(), "after")
		require.ErrorIs(t, err, fence.ErrStale)
		require.ErrorIs(t, tx.Commit(), fence.ErrStale)
		assert.Empty(t, value(t, plain))
	})
}

func TestWithoutTheTableNothingIsWritten(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		db, plain := e.guarded(t), e.plain(t)
		do(t, plain, "DROP TABLE holdfast_fence")
		for _, w := range writes {
			require.ErrorContains(t, w.run(holder(t, 1), e, db, "x"), "holdfast_fence", w.name)
		}
		assert.Empty(t, value(t, plain))
		require.NoError(t, writes[0].run(t.Context(), e, db, "without a lease"))
	})
}

func TestColumnsOfAQueryAreThoseOfTheDriver(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		columns := func(db *sql.DB, ctx context.Context) (all []string) {
			rows, err := db.QueryContext(ctx, "SELECT id, value FROM state")
			require.NoError(t, err)
			defer func() { require.NoError(t, rows.Close()) }()
			types, err := rows.ColumnTypes()
			require.NoError(t, err)
			for _, c := range types {
				length, hasLength := c.Length()
				nullable, known := c.Nullable()
				precision, scale, decimal := c.DecimalSize()
				all = append(all, fmt.Sprintln(c.Name(), c.DatabaseTypeName(), c.ScanType(),
					length, hasLength, nullable, known, precision, scale, decimal))
			}
			return all
		}
		assert.Equal(t, columns(e.plain(t), t.Context()), columns(e.guarded(t), holder(t, 5)))
	})
}

func TestStatementThatWasCancelledLeavesNothing(t *testing.T) {
	slow := map[sqlfence.Dialect]string{
		sqlfence.Postgres: "SELECT pg_sleep(3)",
		sqlfence.MySQL:    "DO SLEEP(3)",
		sqlfence.SQLite:   "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c WHERE n < 1e9) INSERT INTO state SELECT n+1, '' FROM c",
	}
	few(t, func(t *testing.T, e engine) {
		db, plain := e.guarded(t), e.plain(t)
		for _, inTransaction := range []bool{false, true} {
			ctx, cancel := context.WithCancel(holder(t, 5))
			soon := func() { time.AfterFunc(100*time.Millisecond, cancel) } // it does not matter when
			var err error
			if inTransaction {
				tx, begun := db.BeginTx(ctx, nil)
				require.NoError(t, begun)
				soon()
				_, err = tx.ExecContext(ctx, slow[e.dialect])
				_ = tx.Rollback() // database/sql may have done so
			} else {
				soon()
				_, err = db.ExecContext(ctx, slow[e.dialect])
			}
			cancel()
			require.Error(t, err)
			// The server may notice only when the statement is through, and keep the row until then.
			require.NoError(t, writes[0].run(holder(t, 6), e, db, "the next one"))
			var n int
			require.NoError(t, plain.QueryRow("SELECT count(*) FROM state").Scan(&n))
			assert.Equal(t, 1, n)
			do(t, plain, "DELETE FROM holdfast_fence")
		}
	})
}

func TestConnectionOfTheDriverCanBeReached(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		raw := func(db *sql.DB) (kind string) {
			c, err := db.Conn(t.Context())
			require.NoError(t, err)
			require.NoError(t, c.Raw(func(dc any) error {
				kind = fmt.Sprintf("%T", sqlfence.Unwrap(dc))
				return nil
			}))
			require.NoError(t, c.Close())
			return kind
		}
		db, plain := e.guarded(t), e.plain(t)
		assert.Equal(t, raw(plain), raw(db))
		assert.IsType(t, plain.Driver(), db.Driver())
	})
}

func TestCheckOfADatabaseWithoutAGuardIsRefused(t *testing.T) {
	each(t, func(t *testing.T, e engine) {
		assert.ErrorIs(t, sqlfence.Check(holder(t, 1), e.plain(t)), errors.ErrUnsupported)
	})
}
