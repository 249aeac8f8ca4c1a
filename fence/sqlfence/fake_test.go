package sqlfence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// fake is a database that knows only what was done.
type fake struct {
	log  []string
	fail map[string]error // what a call answers, once
	skip bool             // connections run nothing that has arguments and is not prepared
	rows int              // that a query returns

	fence driver.Value // in the only row of the table of fences
}

func (f *fake) Connect(context.Context) (driver.Conn, error) {
	return &fakeConn{fake: f}, f.did("connect")
}
func (f *fake) Driver() driver.Driver { return nil }

// open returns a database with one dialect: that in which nothing but a look is needed.
func (f *fake) open(t *testing.T) *sql.DB {
	db := sqlfence.OpenDB(f, sqlfence.SQLite)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// did notes a call, with the statements of checks by one word.
func (f *fake) did(what string) error {
	if verb, query, _ := strings.Cut(what, " "); strings.Contains(query, "holdfast_fence") {
		words := map[string]string{"SELECT": "look", "DELETE": "claim", "INSERT": "record"}
		what = words[query[:6]]
		if verb == "prepare" {
			what = "prepare " + what
		}
	}
	f.log = append(f.log, what)
	err := f.fail[what]
	delete(f.fail, what)
	return err
}

// took returns what was done since the last call.
func (f *fake) took() string {
	all := strings.Join(f.log, ", ")
	f.log = nil
	return all
}

type fakeConn struct {
	*fake
}

func (c *fakeConn) Prepare(query string) (driver.Stmt, error) {
	return &fakeStmt{c, query}, c.did("prepare " + query)
}
func (c *fakeConn) Close() error               { return c.did("close") }
func (c *fakeConn) Ping(context.Context) error { return c.fail["ping"] }
func (c *fakeConn) Begin() (driver.Tx, error)  { return fakeTx{c}, c.did("begin") }
func (c *fakeConn) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.skip && len(args) > 0 {
		return nil, driver.ErrSkip
	}
	return c.ran(query, args)
}

func (c *fakeConn) ran(query string, args []driver.NamedValue) (driver.Result, error) {
	err := c.did("exec " + query)
	if err == nil && strings.HasPrefix(query, "INSERT INTO holdfast_fence") {
		c.fence = args[1].Value
	}
	return driver.RowsAffected(1), err
}

// answer returns rows, those of a check without a note in the log.
func (f *fake) answer(query string) (driver.Rows, error) {
	err := f.did("query " + query)
	if !strings.Contains(query, "holdfast_fence") {
		return &fakeRows{fake: f, left: f.rows}, err
	}
	return &fenceRow{f.fence}, err
}

type fenceRow struct{ fence driver.Value }

func (r *fenceRow) Columns() []string { return []string{"fence"} }
func (r *fenceRow) Close() error      { return nil }
func (r *fenceRow) Next(to []driver.Value) error {
	if r.fence == nil {
		return io.EOF
	}
	to[0], r.fence = r.fence, nil
	return nil
}

func (c *fakeConn) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.skip && len(args) > 0 {
		return nil, driver.ErrSkip
	}
	return c.answer(query)
}

type fakeStmt struct {
	*fakeConn
	query string
}

func (s *fakeStmt) Close() error  { return nil }
func (s *fakeStmt) NumInput() int { return -1 }
func (s *fakeStmt) Exec(values []driver.Value) (driver.Result, error) {
	args := make([]driver.NamedValue, len(values))
	for i, v := range values {
		args[i].Value = v
	}
	return s.ran(s.query, args)
}
func (s *fakeStmt) Query([]driver.Value) (driver.Rows, error) { return s.answer(s.query) }

type fakeTx struct{ *fakeConn }

func (t fakeTx) Commit() error   { return t.did("commit") }
func (t fakeTx) Rollback() error { return t.did("rollback") }

type fakeRows struct {
	*fake
	left int
}

func (r *fakeRows) Columns() []string { return []string{"n"} }
func (r *fakeRows) Close() error      { return r.did("close rows") }
func (r *fakeRows) Next(to []driver.Value) error {
	if err := r.fail["next"]; err != nil {
		return err
	}
	if r.left == 0 {
		return io.EOF
	}
	r.left--
	to[0] = int64(r.left)
	return nil
}
