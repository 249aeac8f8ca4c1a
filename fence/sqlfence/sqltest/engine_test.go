package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
	"github.com/holdfast-go/holdfast/internal/test/pgtest"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.HeavyMain(m) }

// engine is a database with a way to reach it.
type engine struct {
	name, driver, dsn string
	dialect           sqlfence.Dialect
}

// each runs a test with two drivers, or ways to use one, for each database, and in the soak with all: on an empty
// database with the table of fences, and beside others.
func each(t *testing.T, body func(t *testing.T, e engine)) {
	if redistest.Again() {
		with(t, 10, body)
	} else {
		with(t, 2, body)
	}
}

// few runs a test with one driver for each database.
func few(t *testing.T, body func(t *testing.T, e engine)) { with(t, 1, body) }

func with(t *testing.T, most int, body func(t *testing.T, e engine)) {
	run := func(t *testing.T, engines []engine) {
		for _, e := range engines[:min(most, len(engines))] {
			t.Run(e.name, func(t *testing.T) { body(t, fresh(t, e)) })
		}
	}
	// Who has a server keeps it for the tests beside.
	if pgtest.Found() {
		pgtest.Shared(t)
	}
	if mariadbd() != "" {
		sharedMariaDB(t)
	}
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { run(t, []engine{sqlite(t, "wal"), sqlite(t, "delete")}) })
	t.Run("postgres", func(t *testing.T) {
		dsn := database(t, pgtest.Shared(t))
		run(t, []engine{
			{"pgx", "pgx", dsn, sqlfence.Postgres},
			{"pgx, simple protocol", "pgx", dsn + " default_query_exec_mode=simple_protocol", sqlfence.Postgres},
			{"pq", "postgres", dsn, sqlfence.Postgres},
		})
	})
	t.Run("mariadb", func(t *testing.T) {
		dsn := sharedMariaDB(t).database(t)
		// Whether rows count that stay as they are, whether arguments go into the text, and
		// whether a number that does not fit its column is cut.
		var engines []engine
		for _, options := range []string{
			"", "clientFoundRows=true", "interpolateParams=true", "interpolateParams=true&clientFoundRows=true&sql_mode=''",
		} {
			engines = append(engines, engine{"mysql " + options, "mysql", dsn + "?" + options, sqlfence.MySQL})
		}
		run(t, engines)
	})
}

// databases counts those that tests have made on servers that they share.
var databases atomic.Int64

// database makes a database on the server, for this test alone.
func database(t testing.TB, server *pgtest.Server) (dsn string) {
	name := fmt.Sprint("test_", databases.Add(1))
	do(t, engine{driver: "pgx", dsn: server.DSN()}.plain(t), "CREATE DATABASE "+name)
	return server.Database(name).DSN()
}

func sqlite(t testing.TB, journal string) engine {
	file := filepath.Join(t.TempDir(), "db")
	return engine{journal, "sqlite", "file:" + file + "?_pragma=busy_timeout(20000)&_pragma=synchronous(off)&_pragma=journal_mode(" + journal + ")", sqlfence.SQLite}
}

// fresh returns an engine whose database has an empty table of fences, and a table state with
// the row (1, ”).
func fresh(t testing.TB, e engine) engine {
	db := e.plain(t)
	do(t, db, "DROP TABLE IF EXISTS holdfast_fence")
	do(t, db, "DROP TABLE IF EXISTS state")
	require.NoError(t, sqlfence.Migrate(t.Context(), db, e.dialect))
	require.NoError(t, sqlfence.Migrate(t.Context(), db, e.dialect), "it is there")
	do(t, db, "CREATE TABLE state (id INTEGER PRIMARY KEY, value VARCHAR(2000) NOT NULL)")
	do(t, db, "INSERT INTO state VALUES (1, '')")
	return e
}

// guarded returns a database that checks fences, plain one that does not.
func (e engine) guarded(t testing.TB) *sql.DB {
	db, err := sqlfence.Open(e.driver, e.dsn, e.dialect)
	return opened(t, db, err)
}

func (e engine) plain(t testing.TB) *sql.DB {
	db, err := sql.Open(e.driver, e.dsn)
	return opened(t, db, err)
}

func opened(t testing.TB, db *sql.DB, err error) *sql.DB {
	t.Helper()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// arg returns the n-th placeholder.
func (e engine) arg(n int) string {
	if e.dialect == sqlfence.Postgres {
		return fmt.Sprint("$", n)
	}
	return "?"
}

func (e engine) update() string {
	return "UPDATE state SET value = " + e.arg(1) + " WHERE id = 1"
}

func do(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), query, args...)
	require.NoError(t, err, query)
}

func value(t testing.TB, db *sql.DB) (v string) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT value FROM state WHERE id = 1").Scan(&v))
	return v
}

func recorded(t testing.TB, e engine, db *sql.DB, f fence.Fence) (number int64) {
	t.Helper()
	err := db.QueryRowContext(t.Context(), "SELECT fence FROM holdfast_fence WHERE name = "+e.arg(1), f.Key()).Scan(&number)
	if err != sql.ErrNoRows {
		require.NoError(t, err)
	}
	return number
}

// holder is a context with the fence of a mutex.
func holder(t testing.TB, number int64) context.Context {
	return fence.With(t.Context(), exclusive("x", number))
}

func exclusive(name string, number int64) fence.Fence {
	return fence.Fence{Kind: driver.Mutex, Name: name, Number: number}
}
