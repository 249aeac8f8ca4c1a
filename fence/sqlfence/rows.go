package sqlfence

import (
	"context"
	"database/sql/driver"
	"io"
	"reflect"
)

// rows are those of a query that is alone: the last one ends its transaction. It has all the
// optional methods, and answers what database/sql does where the driver's are missing.
type rows struct {
	driver.Rows
	conn *conn
	ctx  context.Context
	err  error // that the query has failed with
	done bool
}

// Next commits before it says that there is no more: an error of Close would not be seen.
func (r *rows) Next(dest []driver.Value) error {
	if r.done {
		return io.EOF
	}
	err := r.Rows.Next(dest)
	switch {
	case err == nil:
		return nil
	case err != io.EOF:
		r.err = err
		return err
	case r.HasNextResultSet():
		return io.EOF
	}
	if err := r.end(nil); err != nil {
		return err
	}
	return io.EOF
}

// Close commits if the query was closed early, unless its context has ended.
func (r *rows) Close() error {
	if r.done {
		return nil
	}
	if r.err == nil {
		r.err = r.ctx.Err()
	}
	return r.end(r.err)
}

func (r *rows) end(err error) error {
	r.done = true
	if closed := r.Rows.Close(); err == nil {
		err = closed
	}
	return r.conn.leave(err)
}

// HasNextResultSet implements [driver.RowsNextResultSet].
func (r *rows) HasNextResultSet() bool {
	n, ok := r.Rows.(driver.RowsNextResultSet)
	return ok && !r.done && n.HasNextResultSet()
}

// NextResultSet implements [driver.RowsNextResultSet].
func (r *rows) NextResultSet() error {
	n, ok := r.Rows.(driver.RowsNextResultSet)
	if !ok || r.done {
		return io.EOF
	}
	err := n.NextResultSet()
	if err != nil && err != io.EOF {
		r.err = err
	}
	return err
}

// ColumnTypeScanType implements [driver.RowsColumnTypeScanType].
func (r *rows) ColumnTypeScanType(i int) reflect.Type {
	if t, ok := r.Rows.(driver.RowsColumnTypeScanType); ok {
		return t.ColumnTypeScanType(i)
	}
	return reflect.TypeFor[any]()
}

// ColumnTypeDatabaseTypeName implements [driver.RowsColumnTypeDatabaseTypeName].
func (r *rows) ColumnTypeDatabaseTypeName(i int) string {
	if t, ok := r.Rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
		return t.ColumnTypeDatabaseTypeName(i)
	}
	return ""
}

// ColumnTypeLength implements [driver.RowsColumnTypeLength].
func (r *rows) ColumnTypeLength(i int) (length int64, ok bool) {
	if t, ok := r.Rows.(driver.RowsColumnTypeLength); ok {
		return t.ColumnTypeLength(i)
	}
	return 0, false
}

// ColumnTypeNullable implements [driver.RowsColumnTypeNullable].
func (r *rows) ColumnTypeNullable(i int) (nullable, ok bool) {
	if t, ok := r.Rows.(driver.RowsColumnTypeNullable); ok {
		return t.ColumnTypeNullable(i)
	}
	return false, false
}

// ColumnTypePrecisionScale implements [driver.RowsColumnTypePrecisionScale].
func (r *rows) ColumnTypePrecisionScale(i int) (precision, scale int64, ok bool) {
	if t, ok := r.Rows.(driver.RowsColumnTypePrecisionScale); ok {
		return t.ColumnTypePrecisionScale(i)
	}
	return 0, 0, false
}
