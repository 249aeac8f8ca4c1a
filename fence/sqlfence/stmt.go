package sqlfence

import (
	"context"
	"database/sql/driver"
)

// stmt is a prepared statement whose executions are checked.
type stmt struct {
	driver.Stmt
	conn  *conn
	query string
}

// ExecContext implements [driver.StmtExecContext].
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.runExec(ctx, s.query, func() (driver.Result, error) { return execStmt(ctx, s.Stmt, args) })
}

// QueryContext implements [driver.StmtQueryContext].
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.runQuery(ctx, s.query, func() (driver.Rows, error) { return queryStmt(ctx, s.Stmt, args) })
}

// CheckNamedValue implements [driver.NamedValueChecker]. Of the statement and the connection
// database/sql asks only the first that has one.
func (s *stmt) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := s.Stmt.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return s.conn.CheckNamedValue(v)
}
