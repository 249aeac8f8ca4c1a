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
	life      *lifetime // nil if it was begun without a lease
	mode      mode
	guard     guard
	checked   []fence.Fence // before all else: no savepoint can undo it
	failed    error         // why it must not be committed
	doubtful  bool          // a statement has failed, and the transaction may have ended with it
}

// mode is what a transaction is there for.
type mode int

const (
	ordinary  mode = iota
	readOnly       // by sql.TxOptions
	alone          // of a single statement
	aloneRead      // of a query that seems to read: it is seen afterwards whether it wrote
)

// guard is what a transaction may still do.
type guard int

const (
	unbound guard = iota
	bound         // a fence was checked: no statement may end the transaction
	ended         // by a statement, so none with a lease may follow
)

// take checks a statement in the transaction.
func (t *tx) take(ctx context.Context, fences []fence.Fence, query string) error {
	if t.conn.sql.ends(query) {
		if t.guard == bound || fences != nil {
			word, _ := firstWord(query)
			return fmt.Errorf("sqlfence: %s would end the transaction, which has a lease: %w", word, errors.ErrUnsupported)
		}
		t.guard = ended
	}
	if t.guard == bound || fences != nil {
		if err := t.goesOn(ctx); err != nil {
			return err
		}
	}
	if fences == nil {
		return nil
	}
	if t.guard == ended {
		return fmt.Errorf("sqlfence: a statement has ended the transaction before one with a lease: %w", errors.ErrUnsupported)
	}
	return t.check(ctx, fences)
}

// note has the next statement with a lease see whether a failed one has ended the transaction.
func (t *tx) note(err error) {
	if err != nil && err != io.EOF && err != driver.ErrSkip {
		t.doubtful = true
	}
}

// goesOn fails the transaction if the database has ended it.
func (t *tx) goesOn(ctx context.Context) error {
	if !t.doubtful {
		return nil
	}
	c := t.conn
	for _, query := range c.sql.within {
		if _, err := c.exec(ctx, query); err != nil {
			t.fail(fmt.Errorf("%w: %w", errEnded, err))
			return t.failed
		}
	}
	if c.sql.anew != "" {
		switch _, err := c.exec(ctx, c.sql.anew); {
		case err == nil:
			t.fail(errEnded)
			return t.failed
		case ctx.Err() != nil: // It may not have been asked.
			return err
		}
	}
	t.doubtful = false
	return nil
}

var errEnded = errors.New("sqlfence: the database has ended the transaction, when an earlier statement failed")

// check checks the fences that have not been checked when the transaction began. If it fails,
// so does the transaction.
func (t *tx) check(ctx context.Context, fences []fence.Fence) error {
	t.guard = bound
	for _, f := range fences {
		if slices.Contains(t.checked, f) {
			continue
		}
		if err := t.checkOne(ctx, f); err != nil {
			err = failedCheck(f, err)
			t.fail(err)
			return err
		}
	}
	return nil
}

func failedCheck(f fence.Fence, err error) error {
	if errors.Is(err, fence.ErrStale) {
		return err
	}
	return fmt.Errorf("sqlfence: check of %s: %w", f.Key(), err)
}

func (t *tx) checkOne(ctx context.Context, f fence.Fence) error {
	c := t.conn
	switch {
	case t.mode == readOnly:
		_, _, err := c.compare(ctx, c.sql.look, f)
		return err
	case t.mode == aloneRead:
		seen, found, err := c.compare(ctx, c.sql.look, f)
		if err == nil && !f.Shared && (!found || seen != f.Number) {
			c.records.forget(f)
			err = errForgotten
		}
		return err
	case f.Shared:
		return c.share(ctx, f)
	}
	if c.records.has(f) {
		if c.sql.claim != "" {
			if _, err := c.exec(ctx, c.sql.claim); err != nil {
				return err
			}
		}
		seen, found, err := c.compare(ctx, c.sql.share, f)
		if err != nil || found && seen == f.Number {
			return err
		}
		c.records.forget(f)
	}
	return c.record(ctx, f)
}

// errForgotten says that somebody has deleted what was recorded.
var errForgotten = errors.New("it was deleted from holdfast_fence")

// share checks a fence that others may have, too.
func (c *conn) share(ctx context.Context, f fence.Fence) error {
	_, found, err := c.compare(ctx, c.sql.share, f)
	if err != nil || found || c.sql.seed == "" {
		return err
	}
	// Without a row to lock, nothing would keep the first writer out.
	if _, err := c.exec(ctx, c.sql.seed, f.Key()); err != nil {
		return err
	}
	_, found, err = c.compare(ctx, c.sql.share, f)
	if err == nil && !found { // it was deleted, or cannot be seen
		err = errors.New("there is no row to lock")
	}
	return err
}

// confirm checks the fences of a query that only seemed to read, and keeps their rows until the
// commit. Its writes are not seen before, so it is not too late.
func (t *tx) confirm(ctx context.Context) error {
	c := t.conn
	if t.mode != aloneRead || c.sql.wrote == "" {
		return nil
	}
	wrote, err := c.one(ctx, c.sql.wrote)
	if err != nil || wrote == 0 {
		return err
	}
	fences := t.checked
	t.mode, t.checked = alone, nil
	return t.check(ctx, fences)
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
	under, c, life := t.Tx, t.conn, t.life
	*t = tx{}
	if life == nil {
		return under.Commit()
	}
	return c.commit(under, life)
}

// Rollback implements [driver.Tx].
func (t *tx) Rollback() error {
	under, life := t.Tx, t.life
	*t = tx{}
	if life != nil {
		defer life.close()
	}
	return under.Rollback()
}

// compare checks a fence against the row that a query reads, if it finds one.
func (c *conn) compare(ctx context.Context, query string, f fence.Fence) (seen int64, found bool, err error) {
	switch seen, err = c.one(ctx, query, f.Key()); err {
	case nil:
		return seen, true, f.Check(seen)
	case io.EOF:
		return 0, false, nil
	}
	return 0, false, err
}

// one returns the number that a query reads, io.EOF if there is none.
func (c *conn) one(ctx context.Context, query string, args ...driver.Value) (int64, error) {
	rows, err := c.query(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	row := make([]driver.Value, 1)
	err = rows.Next(row)
	if closed := rows.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return 0, err
	}
	return number(row[0])
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
