package sqlfence

//lint:file-ignore SA1019 Drivers may be old, and are treated as database/sql treats them.

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// newConn returns a connection that has the methods whose presence makes a difference to
// database/sql only if the driver's has them. The other optional methods it has always,
// and answers what database/sql does where they are missing.
func newConn(under driver.Conn, sql *statements, records *records) driver.Conn {
	c := &conn{Conn: under, sql: sql, records: records}
	execs, queries := false, false
	switch under.(type) {
	case driver.ExecerContext, driver.Execer:
		execs = true
	}
	switch under.(type) {
	case driver.QueryerContext, driver.Queryer:
		queries = true
	}
	switch {
	case execs && queries:
		return struct {
			*conn
			execer
			queryer
		}{c, execer{c}, queryer{c}}
	case execs:
		return struct {
			*conn
			execer
		}{c, execer{c}}
	case queries:
		return struct {
			*conn
			queryer
		}{c, queryer{c}}
	}
	return c
}

// newStmt returns a statement that has a ColumnConverter only if the driver's has one: where
// the number of arguments is unknown, database/sql converts nothing otherwise.
func newStmt(under driver.Stmt, c *conn, query string) driver.Stmt {
	s := &stmt{under, c, query}
	if cc, ok := under.(driver.ColumnConverter); ok {
		return struct {
			*stmt
			converter
		}{s, converter{cc}}
	}
	return s
}

type converter struct{ under driver.ColumnConverter }

// ColumnConverter implements [driver.ColumnConverter].
func (c converter) ColumnConverter(i int) driver.ValueConverter { return c.under.ColumnConverter(i) }

func beginTx(ctx context.Context, c driver.Conn, opts driver.TxOptions) (driver.Tx, error) {
	if b, ok := c.(driver.ConnBeginTx); ok {
		return b.BeginTx(ctx, opts)
	}
	switch {
	case opts.Isolation != driver.IsolationLevel(sql.LevelDefault):
		return nil, errors.New("sql: driver does not support non-default isolation level")
	case opts.ReadOnly:
		return nil, errors.New("sql: driver does not support read-only transactions")
	}
	tx, err := c.Begin()
	if err == nil && ctx.Err() != nil {
		_ = tx.Rollback()
		return nil, ctx.Err()
	}
	return tx, err
}

func prepare(ctx context.Context, c driver.Conn, query string) (driver.Stmt, error) {
	if p, ok := c.(driver.ConnPrepareContext); ok {
		return p.PrepareContext(ctx, query)
	}
	s, err := c.Prepare(query)
	if err == nil && ctx.Err() != nil {
		_ = s.Close()
		return nil, ctx.Err()
	}
	return s, err
}

func exec(ctx context.Context, c driver.Conn, query string, args []driver.NamedValue) (driver.Result, error) {
	switch e := c.(type) {
	case driver.ExecerContext:
		return e.ExecContext(ctx, query, args)
	case driver.Execer:
		values, err := plain(ctx, args)
		if err != nil {
			return nil, err
		}
		return e.Exec(query, values)
	}
	return nil, driver.ErrSkip
}

func query1(ctx context.Context, c driver.Conn, query string, args []driver.NamedValue) (driver.Rows, error) {
	switch q := c.(type) {
	case driver.QueryerContext:
		return q.QueryContext(ctx, query, args)
	case driver.Queryer:
		values, err := plain(ctx, args)
		if err != nil {
			return nil, err
		}
		return q.Query(query, values)
	}
	return nil, driver.ErrSkip
}

func execStmt(ctx context.Context, s driver.Stmt, args []driver.NamedValue) (driver.Result, error) {
	if e, ok := s.(driver.StmtExecContext); ok {
		return e.ExecContext(ctx, args)
	}
	values, err := plain(ctx, args)
	if err != nil {
		return nil, err
	}
	return s.Exec(values)
}

func queryStmt(ctx context.Context, s driver.Stmt, args []driver.NamedValue) (driver.Rows, error) {
	if q, ok := s.(driver.StmtQueryContext); ok {
		return q.QueryContext(ctx, args)
	}
	values, err := plain(ctx, args)
	if err != nil {
		return nil, err
	}
	return s.Query(values)
}

// plain returns arguments for a driver that knows neither names nor contexts.
func plain(ctx context.Context, args []driver.NamedValue) ([]driver.Value, error) {
	values := make([]driver.Value, len(args))
	for i, a := range args {
		if a.Name != "" {
			return nil, errors.New("sql: driver does not support the use of Named Parameters")
		}
		values[i] = a.Value
	}
	return values, ctx.Err()
}
