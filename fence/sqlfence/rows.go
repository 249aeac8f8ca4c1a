package sqlfence

import (
	"context"
	"database/sql/driver"
	"io"
	"reflect"
)

// rows are those of a query in a transaction, which hears of their error. If the query is alone, to
// close them ends its transaction. database/sql does so after the last one, and [database/sql.Rows.Err] tells if the commit has failed. They have all
// the optional methods, and answer what database/sql does where the driver's are missing.
type rows struct {
	driver.Rows
	conn   *conn
	ctx    context.Context
	single bool
	err    error // that the query has failed with
}

// Next implements [driver.Rows].
func (r *rows) Next(dest []driver.Value) error {
	err := r.Rows.Next(dest)
	r.note(err)
	return err
}

// Close commits, also if the rows were not read to the end, but not if their context has ended.
func (r *rows) Close() error {
	if !r.single {
		err := r.Rows.Close()
		r.note(err)
		return err
	}
	r.note(r.ctx.Err())
	r.note(r.Rows.Close())
	return r.conn.leave(r.ctx, r.err)
}

func (r *rows) note(err error) {
	if r.err == nil && err != io.EOF {
		r.err = err
	}
	r.conn.tx.note(err) // at once: a transaction goes on beside its open rows
}

// HasNextResultSet implements [driver.RowsNextResultSet].
func (r *rows) HasNextResultSet() bool {
	n, ok := r.Rows.(driver.RowsNextResultSet)
	return ok && n.HasNextResultSet()
}

// NextResultSet implements [driver.RowsNextResultSet].
func (r *rows) NextResultSet() error {
	n, ok := r.Rows.(driver.RowsNextResultSet)
	if !ok {
		return io.EOF
	}
	err := n.NextResultSet()
	r.note(err)
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
