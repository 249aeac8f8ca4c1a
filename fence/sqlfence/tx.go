package sqlfence

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/holdfast-go/holdfast/fence"
)

// tx is the transaction under way on a connection. The connection has room for one, so that
// beginning one allocates nothing.
type tx struct {
	driver.Tx // nil if there is none
	conn      *conn
	readOnly  bool
	alone     bool          // of a single statement
	checked   []fence.Fence // before all else: no savepoint can undo it
	failed    error         // why it must not be committed
}

// check checks the fences that have not been checked when the transaction began, and records
// them. If it fails, so does the transaction.
func (t *tx) check(ctx context.Context, fences []fence.Fence) error {
	for _, f := range fences {
		if slices.Contains(t.checked, f) {
			continue
		}
		if err := t.checkOne(ctx, f); err != nil {
			if !errors.Is(err, fence.ErrStale) {
				err = fmt.Errorf("sqlfence: check of %s: %w", f.Key(), err)
			}
			t.fail(err)
			return err
		}
	}
	return nil
}

func (t *tx) checkOne(ctx context.Context, f fence.Fence) error {
	c := t.conn
	if t.readOnly {
		_, err := c.compare(ctx, c.sql.look, f)
		return err
	}
	if f.Shared {
		found, err := c.compare(ctx, c.sql.share, f)
		if err != nil || found || c.sql.seed == "" {
			return err
		}
		// Without a row to lock, nothing would keep the first writer out.
		if _, err := c.exec(ctx, c.sql.seed, f.Key()); err != nil {
			return err
		}
		found, err = c.compare(ctx, c.sql.share, f)
		if err == nil && !found { // it was deleted, or cannot be seen
			err = errors.New("there is no row to lock")
		}
		return err
	}
	args := []driver.Value{f.Key()}
	for range c.sql.numbers {
		args = append(args, f.Number)
	}
	result, err := c.exec(ctx, c.sql.record, args...)
	switch {
	case err != nil && c.sql.refuses:
		if _, stale := c.compare(ctx, c.sql.look, f); errors.Is(stale, fence.ErrStale) {
			return stale
		}
		return err
	case err != nil, c.sql.refuses:
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return err
	}
	if _, err := c.compare(ctx, c.sql.look, f); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s has %d", fence.ErrStale, f.Key(), f.Number) // its snapshot is older
}

// fail has the transaction rolled back, whatever is asked for.
func (t *tx) fail(err error) {
	if t.Tx != nil && t.failed == nil {
		t.failed = err
	}
}

// Commit implements [driver.Tx].
func (t *tx) Commit() error {
	if failed := t.failed; failed != nil {
		t.conn.abort()
		return failed
	}
	under := t.Tx
	*t = tx{}
	return under.Commit()
}

// Rollback implements [driver.Tx].
func (t *tx) Rollback() error {
	under := t.Tx
	*t = tx{}
	return under.Rollback()
}

// compare checks a fence against the row that a query reads, if it finds one.
func (c *conn) compare(ctx context.Context, query string, f fence.Fence) (found bool, err error) {
	rows, err := c.query(ctx, query, f.Key())
	if err != nil {
		return false, err
	}
	row := make([]driver.Value, 1)
	err = rows.Next(row)
	if closed := rows.Close(); err == nil {
		err = closed
	}
	switch {
	case err == io.EOF:
		return false, nil
	case err != nil:
		return false, err
	}
	seen, err := number(row[0])
	if err != nil {
		return false, err
	}
	return true, f.Check(seen)
}

func number(v driver.Value) (int64, error) {
	switch v := v.(type) {
	case int64:
		return v, nil
	case []byte: // the text protocol of MySQL
		return strconv.ParseInt(string(v), 10, 64)
	case string:
		return strconv.ParseInt(v, 10, 64)
	}
	return 0, fmt.Errorf("holdfast_fence.fence is a %T", v)
}

// exec runs a statement of a check.
func (c *conn) exec(ctx context.Context, query string, args ...driver.Value) (driver.Result, error) {
	result, err := exec(ctx, c.Conn, query, named(args))
	if err != driver.ErrSkip {
		return result, err
	}
	s, err := c.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	return execStmt(ctx, s, named(args))
}

// query runs a query of a check.
func (c *conn) query(ctx context.Context, query string, args ...driver.Value) (driver.Rows, error) {
	rows, err := query1(ctx, c.Conn, query, named(args))
	if err != driver.ErrSkip {
		return rows, err
	}
	s, err := c.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	return queryStmt(ctx, s, named(args))
}

// statement returns the prepared statement, which is kept for as long as the connection: it
// costs a round trip.
func (c *conn) statement(ctx context.Context, query string) (driver.Stmt, error) {
	if s := c.prepared[query]; s != nil {
		return s, nil
	}
	s, err := prepare(ctx, c.Conn, query)
	if err != nil {
		return nil, err
	}
	if c.prepared == nil {
		c.prepared = map[string]driver.Stmt{}
	}
	c.prepared[query] = s
	return s, nil
}

func named(values []driver.Value) []driver.NamedValue {
	args := make([]driver.NamedValue, len(values))
	for i, v := range values {
		args[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return args
}
