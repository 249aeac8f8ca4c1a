package sqltest

import (
	"context"
	"database/sql/driver"
	"testing"

	"github.com/stretchr/testify/require"
)

type playerKey struct{}

// stop pauses the player of a context until the schedule goes on with it.
func stop(ctx context.Context) {
	if p, ok := ctx.Value(playerKey{}).(*player); ok {
		p.stopped <- struct{}{}
		<-p.step
	}
}

// paused is a connector whose connections stop before each statement.
type paused struct{ driver.Connector }

func connectorOf(t testing.TB, e engine) driver.Connector {
	d := e.plain(t).Driver()
	dc, ok := d.(driver.DriverContext)
	if !ok {
		return dsnConnector{d, e.dsn}
	}
	c, err := dc.OpenConnector(e.dsn)
	require.NoError(t, err)
	return c
}

type dsnConnector struct {
	driver driver.Driver
	dsn    string
}

func (d dsnConnector) Connect(context.Context) (driver.Conn, error) { return d.driver.Open(d.dsn) }
func (d dsnConnector) Driver() driver.Driver                        { return d.driver }

func (p paused) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := p.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return pausedConn{c}, nil
}

type pausedConn struct{ driver.Conn }

func (c pausedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	stop(ctx)
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c pausedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	stop(ctx)
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c pausedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return pausedStmt{s}, nil
}

func (c pausedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	stop(ctx)
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return pausedTx{tx, ctx}, nil
}

func (c pausedConn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.Conn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c pausedConn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c pausedConn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !ok || v.IsValid()
}

type pausedStmt struct{ driver.Stmt }

func (s pausedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	stop(ctx)
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s pausedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	stop(ctx)
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

type pausedTx struct {
	driver.Tx
	ctx context.Context
}

func (t pausedTx) Commit() error {
	stop(t.ctx)
	return t.Tx.Commit()
}
