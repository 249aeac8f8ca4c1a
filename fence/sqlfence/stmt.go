package sqlfence

import (
	"context"
	"database/sql/driver"
)

// stmt is a prepared statement whose executions are checked.
type stmt struct {
	driver.Stmt
	conn *conn
}

// ExecContext implements [driver.StmtExecContext].
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	alone, err := s.conn.enter(ctx)
	if err != nil {
		return nil, err
	}
	result, err := execStmt(ctx, s.Stmt, args)
	if alone {
		err = s.conn.leave(err)
	}
	return result, err
}

// QueryContext implements [driver.StmtQueryContext].
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	alone, err := s.conn.enter(ctx)
	if err != nil {
		return nil, err
	}
	under, err := queryStmt(ctx, s.Stmt, args)
	switch {
	case !alone:
		return under, err
	case err != nil:
		return nil, s.conn.leave(err)
	}
	return &rows{Rows: under, conn: s.conn, ctx: ctx}, nil
}

// CheckNamedValue implements [driver.NamedValueChecker]. Of the statement and the connection
// database/sql asks only the first that has one.
func (s *stmt) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := s.Stmt.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return s.conn.CheckNamedValue(v)
}
