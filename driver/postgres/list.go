package pgdriver

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
)

var _ driver.Lister = (*Driver)(nil)

// List implements [driver.Lister]. It reads the table of locks, which has the idle ones of some
// minutes.
func (d *Driver) List(ctx context.Context, prefix string, f func(k driver.Kind, name string) error) error {
	rows, err := d.pool.Query(ctx, `
		SELECT kind, name FROM holdfast.lock
		 WHERE substring(name FOR length($1::bytea)) = $1 AND EXISTS (SELECT FROM holdfast.claim WHERE lock = lock.id)`, []byte(prefix))
	if err != nil {
		return classify(err)
	}
	type lock struct {
		Kind driver.Kind
		Name []byte
	}
	locks, err := pgx.CollectRows(rows, pgx.RowToStructByPos[lock]) // f may need the connection
	if err != nil {
		return classify(err)
	}
	for _, l := range locks {
		if err := f(l.Kind, string(l.Name)); err != nil {
			return err
		}
	}
	return nil
}
