package pgdriver_test

import (
	"context"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
)

func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@db/shop?pool_max_conns=4") // of its own
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := pgdriver.Migrate(ctx, pool); err != nil { // once, where the tables are migrated
		log.Fatal(err)
	}
	locks := holdfast.Open(pgdriver.New(pool))
	defer locks.Close()

	// The lock stays ours until the commit, even if this process is paused for longer than its TTL.
	mu := locks.Mutex("orders:42")
	lease, err := mu.Lease(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT holdfast.fenced($1, $2)`, lease.Name(), lease.Fence()); err != nil {
			return err // the lease is over
		}
		_, err := tx.Exec(ctx, `UPDATE orders SET state = 'paid' WHERE id = 42`)
		return err
	})
	if err != nil {
		log.Print(err)
	}
}

// Behind a PgBouncer in transaction mode, waiters need a connection that is not.
func ExampleWithListenConfig() {
	pool, err := pgxpool.New(context.Background(), "postgres://app@bouncer/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	direct, err := pgx.ParseConfig("postgres://app@db/shop")
	if err != nil {
		log.Fatal(err)
	}
	locks := holdfast.Open(pgdriver.New(pool, pgdriver.WithListenConfig(direct)))
	defer locks.Close()
}
