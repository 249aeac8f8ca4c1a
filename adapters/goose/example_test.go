package gooselock_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/holdfast-go/holdfast"
	gooselock "github.com/holdfast-go/holdfast/adapters/goose"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// All processes of a fleet migrate when they start. One does, and the others wait for it.
func ExampleNew() {
	locks := holdfast.Open(memdriver.New()) // holdfast.New(rdb)
	defer locks.Close()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection would have a database of its own
	migrations := fstest.MapFS{"1_orders.sql": {Data: []byte("-- +goose Up\nCREATE TABLE orders (id INTEGER);")}}

	locker := gooselock.New(locks, "migrations:shop", holdfast.WithTTL(30*time.Second))
	p, err := goose.NewProvider(goose.DialectSQLite3, db, migrations, goose.WithLocker(locker))
	if err != nil {
		log.Fatal(err)
	}
	done, err := p.Up(context.Background())
	fmt.Println(len(done), "migration", err)
	// Output: 1 migration <nil>
}
