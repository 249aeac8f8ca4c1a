package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// database/sql looks at the context before it asks a guard, except in a Conn, which has its
// connection. The cause of the context says in any case what has happened.
func TestErrorAfterALossIsThatOfTheContextOrOfTheGuard(t *testing.T) {
	client := holdfast.Open(memdriver.New())
	short := client.Mutex("x", holdfast.WithTTL(20*time.Millisecond), holdfast.WithoutRenewal())
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	begin := func(b interface {
		BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
	}) func(context.Context) error {
		return func(ctx context.Context) error { _, err := b.BeginTx(ctx, nil); return err }
	}
	type runner interface {
		ExecContext(context.Context, string, ...any) (sql.Result, error)
		QueryRowContext(context.Context, string, ...any) *sql.Row
	}
	exec := func(r runner) func(context.Context) error {
		return func(ctx context.Context) error { _, err := r.ExecContext(ctx, "a"); return err }
	}
	query := func(r runner) func(context.Context) error {
		return func(ctx context.Context) error { return r.QueryRowContext(ctx, "q").Err() }
	}
	db := (&fake{}).open(t)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	stmt, err := db.PrepareContext(t.Context(), "s")
	require.NoError(t, err)
	inTx := func(way func(runner) func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			tx, err := db.BeginTx(context.Background(), nil)
			if err != nil {
				return err
			}
			return errors.Join(way(tx)(ctx), tx.Rollback())
		}
	}
	for _, way := range []struct {
		name  string
		run   func(context.Context) error
		asked bool // although the context has ended
	}{
		{"DB.BeginTx", begin(db), false},
		{"DB.ExecContext", exec(db), false},
		{"DB.QueryContext", query(db), false},
		{"Conn.BeginTx", begin(conn), true},
		{"Conn.ExecContext", exec(conn), true},
		{"Conn.QueryContext", query(conn), true},
		{"Tx.ExecContext", inTx(exec), false},
		{"Tx.QueryContext", inTx(query), false},
		{"Stmt.ExecContext", func(ctx context.Context) error { _, err := stmt.ExecContext(ctx); return err }, false},
		{"Stmt.QueryContext", func(ctx context.Context) error { return stmt.QueryRowContext(ctx).Err() }, false},
	} {
		lease, err := short.Lease(t.Context())
		require.NoError(t, err)
		<-lease.Done()
		ctx := lease.Context()
		err = way.run(ctx)
		assert.Equal(t, way.asked, errors.Is(err, holdfast.ErrLost), "%s: %v", way.name, err)
		assert.Equal(t, !way.asked, errors.Is(err, context.Canceled), "%s: %v", way.name, err)
		assert.ErrorIs(t, context.Cause(ctx), holdfast.ErrLost)
		assert.ErrorIs(t, way.run(context.WithoutCancel(ctx)), holdfast.ErrLost, way.name)
	}
	require.NoError(t, errors.Join(stmt.Close(), conn.Close()))
}
