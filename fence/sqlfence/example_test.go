package sqlfence_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// The program imports a driver, here that of pgx, as for sql.Open.
func ExampleOpen() {
	db, err := sqlfence.Open("pgx", "postgres://app@db/shop", sqlfence.Postgres)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	ctx := context.Background()
	if err := sqlfence.Migrate(ctx, db, sqlfence.Postgres); err != nil { // once
		log.Fatal(err)
	}
	locks := holdfast.Open(memdriver.New()) // holdfast.New(rdb) where there are several processes
	defer locks.Close()

	err = locks.Mutex("orders:42").Do(ctx, func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil) // shows the fence to the database
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, `UPDATE orders SET state = 'paid' WHERE id = 42`); err != nil {
			return err
		}
		return tx.Commit()
	})
	if errors.Is(err, sqlfence.ErrStale) {
		log.Print("another has had the lock since: ", err)
	}
}

// For migrations of one's own, instead of Migrate.
func ExampleDialect_Schema() {
	fmt.Println(sqlfence.Postgres.Schema())
	// Output: CREATE TABLE IF NOT EXISTS holdfast_fence (name text PRIMARY KEY, fence bigint NOT NULL)
}
