package sqlfence_test

//lint:file-ignore SA1019 Drivers may be old.

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	locks "github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

func held(t *testing.T) context.Context {
	return fence.With(t.Context(), fence.Fence{Kind: locks.Mutex, Name: "x", Number: 7})
}

// A fence is recorded before the transaction begins, and by the first one only.
func TestCheckIsTheFirstStatementOfATransaction(t *testing.T) {
	for _, skip := range []bool{false, true} {
		t.Run(fmt.Sprint("driver prepares all ", skip), func(t *testing.T) {
			f := &fake{skip: skip}
			db := f.open(t)
			require.NoError(t, db.PingContext(t.Context()))
			f.took()
			first := "look, record, "
			if skip { // what has arguments is prepared, once for a connection
				first = "prepare look, look, prepare record, record, "
			}
			for range 2 {
				tx, err := db.BeginTx(held(t), nil)
				require.NoError(t, err)
				_, err = tx.ExecContext(held(t), "a")
				require.NoError(t, err)
				_, err = tx.Exec("b")
				require.NoError(t, err)
				require.NoError(t, tx.Commit())
				assert.Equal(t, first+"begin, claim, look, exec a, exec b, commit", f.took())
				first = ""
			}
		})
	}
}

func TestSingleStatementIsATransaction(t *testing.T) {
	f := &fake{rows: 2}
	db := f.open(t)
	_, err := db.ExecContext(held(t), "a", 1)
	require.NoError(t, err)
	assert.Equal(t, "connect, look, record, begin, claim, look, exec a, commit", f.took())
	var n int
	require.NoError(t, db.QueryRowContext(held(t), "q").Scan(&n))
	assert.Equal(t, "begin, claim, look, query q, close rows, commit", f.took())
	s, err := db.PrepareContext(held(t), "s")
	require.NoError(t, err)
	_, err = s.ExecContext(held(t))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	assert.Equal(t, "prepare s, begin, claim, look, exec s, commit", f.took())
}

// Whoever only reads takes nothing from those who write.
func TestSingleSelectClaimsNothing(t *testing.T) {
	f := &fake{rows: 1}
	db := f.open(t)
	for _, first := range []string{"connect, look, record, ", ""} {
		var n int
		require.NoError(t, db.QueryRowContext(held(t), "-- why\n select 1").Scan(&n))
		assert.Equal(t, first+"begin, look, query -- why\n select 1, close rows, commit", f.took())
	}
	f.fence = nil // somebody has deleted it
	var n int
	require.NoError(t, db.QueryRowContext(held(t), "SELECT 1").Scan(&n))
	assert.Equal(t, "begin, look, rollback, begin, record, query SELECT 1, close rows, commit", f.took())
}

// The connection that records does so for all that wait: they would wait for its transaction.
func TestOneConnectionRecordsForAll(t *testing.T) {
	f := &fake{}
	db := f.open(t)
	a, err := db.BeginTx(held(t), nil)
	require.NoError(t, err)
	b, err := db.BeginTx(held(t), nil)
	require.NoError(t, err)
	require.NoError(t, errors.Join(a.Commit(), b.Commit()))
	assert.Equal(t, "connect, look, record, begin, claim, look, connect, begin, claim, look, commit, commit", f.took())
}

func TestDriverThatPreparesAllIsNotAskedTwice(t *testing.T) {
	f := &fake{skip: true}
	db := f.open(t)
	_, err := db.ExecContext(held(t), "a", 1)
	require.NoError(t, err)
	assert.Contains(t, f.took(), "rollback, prepare a", "now it is known")
	_, err = db.ExecContext(held(t), "a", 1)
	require.NoError(t, err)
	assert.Equal(t, "prepare a, begin, claim, look, exec a, commit", f.took())
}

func TestWithoutALeaseTheDriverSeesWhatItSawBefore(t *testing.T) {
	f := &fake{}
	db := f.open(t)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.Exec("a")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	_, err = db.Exec("b")
	require.NoError(t, err)
	permit := fence.With(t.Context(), fence.Fence{Kind: locks.Semaphore, Name: "x", Number: 7, Shared: true})
	_, err = db.ExecContext(permit, "c") // holders of a semaphore are all equal
	require.NoError(t, err)
	assert.Equal(t, "connect, begin, exec a, commit, exec b, exec c", f.took())
}

func TestWithoutALeaseNothingIsAllocated(t *testing.T) {
	f := &still{}
	under, err := f.Connect(t.Context())
	require.NoError(t, err)
	c, err := sqlfence.WrapConnector(f, sqlfence.SQLite).Connect(t.Context())
	require.NoError(t, err)
	ctx := context.WithValue(t.Context(), f, f)
	work := func(c driver.Conn) float64 {
		return testing.AllocsPerRun(100, func() {
			tx, err := c.(driver.ConnBeginTx).BeginTx(ctx, driver.TxOptions{})
			if err == nil {
				_, err = c.(driver.ExecerContext).ExecContext(ctx, "a", nil)
			}
			if err == nil {
				err = tx.Commit()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	assert.Equal(t, work(under), work(c))
}

// still is a driver that does nothing.
type still struct{}

func (s *still) Connect(context.Context) (driver.Conn, error)                 { return s, nil }
func (s *still) Driver() driver.Driver                                        { return nil }
func (s *still) Prepare(string) (driver.Stmt, error)                          { return nil, nil }
func (s *still) Close() error                                                 { return nil }
func (s *still) Begin() (driver.Tx, error)                                    { return s, nil }
func (s *still) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return s, nil }
func (s *still) Commit() error                                                { return nil }
func (s *still) Rollback() error                                              { return nil }
func (s *still) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return driver.ResultNoRows, nil
}

func TestLeaseThatIsKnownToBeOverIsRefusedWithoutTheDatabase(t *testing.T) {
	client := holdfast.Open(memdriver.New())
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	lease, err := client.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	f := &fake{}
	db := f.open(t)
	ctx := context.WithoutCancel(lease.Context())
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	require.NoError(t, lease.Release(t.Context()))
	f.took()

	_, err = db.BeginTx(ctx, nil)
	require.ErrorIs(t, err, holdfast.ErrLost)
	_, err = db.ExecContext(ctx, "a")
	require.ErrorIs(t, err, holdfast.ErrLost)
	_, err = db.QueryContext(ctx, "q")
	require.ErrorIs(t, err, holdfast.ErrLost)
	assert.Empty(t, f.took())

	tx, err = db.Begin()
	require.NoError(t, err)
	_, err = tx.ExecContext(ctx, "a")
	require.ErrorIs(t, err, holdfast.ErrLost)
	require.ErrorIs(t, tx.Commit(), holdfast.ErrLost)
	assert.Equal(t, "begin, rollback", f.took())
}

func TestBadConnectionIsReplacedOnlyIfNothingWasDone(t *testing.T) {
	for _, test := range []struct{ fails, want string }{
		{"record", "look, record, close, connect, look, record, begin, claim, look, exec a, commit"},
		{"begin", "look, record, begin, close, connect, begin, claim, look, exec a, commit"},
		{"claim", "look, record, begin, claim, rollback, close, connect, begin, claim, look, exec a, commit"},
		{"exec a", "look, record, begin, claim, look, exec a, rollback, close, connect, begin, claim, look, exec a, commit"},
		{"commit", "look, record, begin, claim, look, exec a, commit, close"}, // it may have been done
	} {
		t.Run(test.fails, func(t *testing.T) {
			f := &fake{}
			db := f.open(t)
			require.NoError(t, db.PingContext(t.Context()))
			f.took()
			f.fail = map[string]error{test.fails: driver.ErrBadConn}
			_, err := db.ExecContext(held(t), "a")
			assert.Equal(t, test.want, f.took())
			assert.Equal(t, test.fails == "commit", err != nil, err)
			assert.NotErrorIs(t, err, driver.ErrBadConn)
		})
	}
}

func TestConnectionWhoseTransactionCannotBeRolledBackIsClosed(t *testing.T) {
	f := &fake{fail: map[string]error{"exec a": errors.New("a"), "rollback": errors.New("rollback")}}
	db := f.open(t)
	_, err := db.ExecContext(held(t), "a")
	require.EqualError(t, err, "a")
	assert.Equal(t, "connect, look, record, begin, claim, look, exec a, rollback, close", f.took())
}

func TestErrorOfACommitAfterTheLastRowIsSeen(t *testing.T) {
	f := &fake{rows: 2, fail: map[string]error{}}
	db := f.open(t)
	failed := errors.New("failed")
	for name, read := range map[string]func(*sql.Rows) error{
		"all": func(r *sql.Rows) error {
			for r.Next() {
			}
			return r.Err()
		},
		"the first": func(r *sql.Rows) error { r.Next(); return r.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			for _, fails := range []error{nil, failed} {
				if fails != nil {
					f.fail["commit"] = fails
				}
				rows, err := db.QueryContext(held(t), "q")
				require.NoError(t, err)
				assert.ErrorIs(t, read(rows), fails)
				assert.Contains(t, f.took(), "begin, claim, look, query q, close rows, commit")
			}
		})
	}
	t.Run("a row fails", func(t *testing.T) {
		f.fail["next"] = failed
		rows, err := db.QueryContext(held(t), "q")
		require.NoError(t, err)
		assert.False(t, rows.Next())
		assert.ErrorIs(t, rows.Err(), failed)
		assert.Equal(t, "begin, claim, look, query q, close rows, rollback", f.took())
	})
}

func TestQueryWhoseContextEndsIsRolledBack(t *testing.T) {
	f := &fake{rows: 2}
	db := f.open(t)
	ctx, cancel := context.WithCancel(held(t))
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	rows, err := conn.QueryContext(ctx, "q")
	require.NoError(t, err)
	require.True(t, rows.Next())
	cancel()
	_ = rows.Close() // database/sql may have done so
	require.NoError(t, conn.Close())
	assert.Equal(t, "connect, look, record, begin, claim, look, query q, close rows, rollback", f.took())
}

func TestConnectionWithRowsOfAGuardedQueryTakesNothingElse(t *testing.T) {
	f := &fake{rows: 2}
	db := f.open(t)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	rows, err := conn.QueryContext(held(t), "q")
	require.NoError(t, err)
	f.took()
	for _, ctx := range []context.Context{held(t), t.Context()} { // it would be in the transaction of the rows
		_, err = conn.ExecContext(ctx, "a")
		assert.ErrorContains(t, err, "rows of a query")
		_, err = conn.QueryContext(ctx, "a")
		assert.ErrorContains(t, err, "rows of a query")
		_, err = conn.BeginTx(ctx, nil)
		assert.ErrorContains(t, err, "under way")
	}
	assert.Empty(t, f.took())
	require.NoError(t, rows.Close())
	_, err = conn.ExecContext(t.Context(), "a")
	assert.NoError(t, err)
	require.NoError(t, conn.Close())
}

// database/sql looks for optional methods in a connection, a statement and rows. It finds those
// that the driver has, and no others.
func TestOptionalMethodsAreThoseOfTheDriver(t *testing.T) {
	type (
		execer    struct{ driver.ExecerContext }
		oldExecer struct{ driver.Execer }
		queryer   struct{ driver.QueryerContext }
	)
	base := struct{ driver.Conn }{&still{}}
	for _, under := range []driver.Conn{
		base,
		struct {
			driver.Conn
			execer
		}{Conn: base},
		struct {
			driver.Conn
			oldExecer
		}{Conn: base},
		struct {
			driver.Conn
			queryer
		}{Conn: base},
		struct {
			driver.Conn
			execer
			queryer
		}{Conn: base},
	} {
		c, err := sqlfence.WrapConnector(one{under}, sqlfence.SQLite).Connect(t.Context())
		require.NoError(t, err)
		_, execs := under.(driver.ExecerContext)
		_, execsOld := under.(driver.Execer)
		_, queries := under.(driver.QueryerContext)
		_, wrappedExecs := c.(driver.ExecerContext)
		_, wrappedQueries := c.(driver.QueryerContext)
		assert.Equal(t, execs || execsOld, wrappedExecs, "%T", under)
		assert.Equal(t, queries, wrappedQueries, "%T", under)
		assert.Equal(t, under, sqlfence.Unwrap(c))

		// These answer what database/sql does without them.
		assert.NoError(t, c.(driver.Pinger).Ping(t.Context()))
		assert.NoError(t, c.(driver.SessionResetter).ResetSession(t.Context()))
		assert.True(t, c.(driver.Validator).IsValid())
		assert.Equal(t, driver.ErrSkip, c.(driver.NamedValueChecker).CheckNamedValue(nil))
		_, err = c.(driver.ConnBeginTx).BeginTx(t.Context(), driver.TxOptions{ReadOnly: true})
		assert.Error(t, err)
	}
	assert.Equal(t, 5, sqlfence.Unwrap(5), "what is not ours stays what it is")
}

type one struct{ conn driver.Conn }

func (o one) Connect(context.Context) (driver.Conn, error) { return o.conn, nil }
func (o one) Driver() driver.Driver                        { return nil }
