package sqlfence

import (
	"context"
	"database/sql/driver"
	"errors"

	holdfast "github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/internal/leasectx"
)

// conn checks what is done on a connection of the driver. database/sql calls its methods one
// at a time.
type conn struct {
	driver.Conn
	sql      *statements
	records  *records
	tx       tx                     // the transaction under way
	prepared map[string]driver.Stmt // statements of checks, if the driver runs no others
	skips    bool                   // the driver wants statements with arguments to be prepared
	broken   bool                   // a transaction of ours could not be ended
	busy     <-chan error           // gets what comes of a commit that nobody waits for any more; mostly nil
}

// guarded is what the connections of this package have in common.
type guarded interface{ unwrap() driver.Conn }

func (c *conn) unwrap() driver.Conn { return c.Conn }

// enter checks what a statement's context says, and reports whether the statement is alone: in
// a transaction of its own, which leave ends, and which is there for what how says.
func (c *conn) enter(ctx context.Context, query string, how mode) (single bool, err error) {
	switch {
	case c.tx.failed != nil:
		return false, c.tx.failed
	case c.tx.mode >= alone:
		return false, errors.New("sqlfence: rows of a query with a lease are open on this connection; use a transaction")
	}
	fences, err := checkable(ctx)
	switch {
	case err != nil:
		c.tx.fail(err)
		return false, err
	case c.tx.Tx != nil:
		return false, c.tx.take(ctx, fences, query)
	case fences == nil:
		return false, nil
	}
	if err := c.settle(ctx, fences); err != nil {
		return false, err
	}
	opts := driver.TxOptions{}
	if how == aloneRead && c.sql.wrote == "" {
		// The driver of SQLite may claim the only place to write for a transaction, but not for this one.
		_, opts.ReadOnly = c.Conn.(driver.ConnBeginTx)
	}
	if _, err = c.begin(ctx, opts, how, fences); errors.Is(err, errForgotten) {
		_, err = c.begin(ctx, driver.TxOptions{}, alone, fences)
	}
	return err == nil, err
}

// leave ends the transaction of a statement that is alone.
func (c *conn) leave(ctx context.Context, err error) error {
	if err == nil {
		err = c.tx.confirm(ctx)
	}
	if err != nil {
		c.abort()
		return err
	}
	return c.tx.Commit()
}

// abort rolls back a transaction that nobody else will end.
func (c *conn) abort() {
	if c.tx.Rollback() != nil {
		c.broken = true // or the next statements of somebody would be in it
	}
}

// checkable returns the fences of a context that are worth a statement.
func checkable(ctx context.Context) ([]fence.Fence, error) {
	fences, err := fence.Of(ctx)
	n := 0
	for _, f := range fences {
		if f.Kind != holdfast.Semaphore {
			fences[n] = f
			n++
		}
	}
	if n == 0 {
		return nil, err
	}
	return fences[:n], err
}

// BeginTx begins a transaction, and checks the leases of ctx in it.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if c.tx.Tx != nil {
		return nil, errors.New("sqlfence: a transaction is under way on this connection")
	}
	fences, err := checkable(ctx)
	if err != nil {
		return nil, err
	}
	if opts.ReadOnly {
		return c.begin(ctx, opts, readOnly, fences)
	}
	if err := c.settle(ctx, fences); err != nil {
		return nil, err
	}
	return c.begin(ctx, opts, ordinary, fences)
}

func (c *conn) begin(ctx context.Context, opts driver.TxOptions, what mode, fences []fence.Fence) (driver.Tx, error) {
	within := ctx
	var life *lifetime
	if leasectx.Of(ctx) != nil {
		life = newLifetime(ctx)
		within = life
	}
	under, err := beginTx(within, c.Conn, opts)
	if err != nil {
		if life != nil {
			life.close()
		}
		return nil, err
	}
	c.tx = tx{Tx: under, conn: c, life: life, mode: what}
	if fences != nil {
		if err := c.tx.check(ctx, fences); err != nil {
			c.abort()
			return nil, err
		}
		c.tx.checked = fences
	}
	return &c.tx, nil
}

// Begin is BeginTx for callers that have no context.
func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

// Prepare is PrepareContext for callers that have no context.
func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// PrepareContext prepares a statement whose executions are checked.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	under, err := prepare(ctx, c.Conn, query)
	if err != nil {
		return nil, err
	}
	return newStmt(under, c, query), nil
}

// Close closes the connection. One on which the driver waits is closed once it does not: drivers may count
// on one call at a time.
func (c *conn) Close() error {
	if busy := c.busy; busy != nil {
		c.busy = nil
		go func() {
			<-busy
			_ = c.Close()
		}()
		return nil
	}
	for _, s := range c.prepared {
		_ = s.Close() // it goes with the connection
	}
	return c.Conn.Close()
}

// Ping implements [driver.Pinger].
func (c *conn) Ping(ctx context.Context) error {
	if p, ok := c.Conn.(driver.Pinger); ok {
		return p.Ping(ctx)
	}
	return nil
}

// ResetSession implements [driver.SessionResetter].
func (c *conn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

// IsValid implements [driver.Validator].
func (c *conn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !c.broken && (!ok || v.IsValid())
}

// CheckNamedValue implements [driver.NamedValueChecker].
func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.Conn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type execer struct{ conn *conn }

// ExecContext implements [driver.ExecerContext].
func (e execer) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c := e.conn
	if c.detour(ctx, args) {
		return nil, driver.ErrSkip
	}
	return c.runExec(ctx, query, func() (driver.Result, error) { return exec(ctx, c.Conn, query, args) })
}

func (c *conn) runExec(ctx context.Context, query string, run func() (driver.Result, error)) (driver.Result, error) {
	single, err := c.enter(ctx, query, alone)
	if err != nil {
		return nil, err
	}
	result, err := run()
	if single {
		c.skips = c.skips || err == driver.ErrSkip
		return result, c.leave(ctx, err)
	}
	c.tx.note(err)
	return result, err
}

type queryer struct{ conn *conn }

// QueryContext implements [driver.QueryerContext].
func (q queryer) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c := q.conn
	if c.detour(ctx, args) {
		return nil, driver.ErrSkip
	}
	return c.runQuery(ctx, query, func() (driver.Rows, error) { return query1(ctx, c.Conn, query, args) })
}

func (c *conn) runQuery(ctx context.Context, query string, run func() (driver.Rows, error)) (driver.Rows, error) {
	how := alone
	if c.sql.shareCosts && reads(query) {
		how = aloneRead
	}
	single, err := c.enter(ctx, query, how)
	if err != nil {
		return nil, err
	}
	under, err := run()
	switch {
	case !single && (c.tx.Tx == nil || err != nil):
		c.tx.note(err)
		return under, err
	case err != nil:
		c.skips = c.skips || err == driver.ErrSkip
		return nil, c.leave(ctx, err)
	}
	return &rows{Rows: under, conn: c, ctx: ctx, single: single}, nil
}

// detour reports whether a statement would be skipped by the driver after its transaction was
// begun, so that it would have to be begun again for the prepared statement.
func (c *conn) detour(ctx context.Context, args []driver.NamedValue) bool {
	if !c.skips || len(args) == 0 || c.tx.Tx != nil {
		return false
	}
	fences, err := checkable(ctx)
	return err == nil && fences != nil
}
