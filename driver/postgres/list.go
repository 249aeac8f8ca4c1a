package pgdriver

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var _ driver.Lister = (*Driver)(nil)

// listTime is how long a list may take. It reads all of the table.
const listTime = time.Minute

// List implements [driver.Lister]. It reads the table of locks, which has the idle ones of some
// minutes.
func (d *Driver) List(ctx context.Context, prefix string, f func(k driver.Kind, name string) error) error {
	var kind driver.Kind
	var name string
	type lock struct {
		kind driver.Kind
		name string
	}
	var locks []lock // f may need the connection
	err := d.rows(ctx, listTime, []any{&kind, &name}, func() error {
		locks = append(locks, lock{kind, unhex(&name)})
		return nil
	}, `
		SELECT kind, encode(name, 'hex') FROM holdfast.lock
		 WHERE substring(name FOR length($1::bytea)) = $1 AND EXISTS (SELECT FROM holdfast.claim WHERE lock = lock.id)`, []byte(prefix))
	if err != nil {
		return err
	}
	for _, l := range locks {
		if err := f(l.kind, l.name); err != nil {
			return err
		}
	}
	return nil
}
