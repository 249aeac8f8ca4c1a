// Package postgres lets commands use locks in a PostgreSQL.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
)

func init() { store.Register(open, "postgres", "postgresql") }

// open connects to a PostgreSQL whose schema holdfast is there.
func open(ctx context.Context, a *store.Address, password string) (*store.Store, error) {
	s, pool, err := connect(ctx, a, password)
	if err != nil {
		return nil, err
	}
	there, err := version(ctx, pool)
	if err == nil && there == 0 {
		err = errNoSchema
	}
	if err != nil {
		s.Close()
		return nil, s.Unavailable(err)
	}
	s.Driver = pgdriver.New(pool)
	return s, nil
}

// version returns that of the schema holdfast, or 0 if there is none.
func version(ctx context.Context, pool *pgxpool.Pool) (n int, err error) {
	var there bool
	err = pool.QueryRow(ctx, `SELECT to_regclass('holdfast.version') IS NOT NULL`).Scan(&there)
	if err == nil && there {
		err = pool.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM holdfast.version`).Scan(&n)
	}
	return n, err
}

// connect makes a pool of connections. The store has no driver yet.
func connect(ctx context.Context, a *store.Address, password string) (*store.Store, *pgxpool.Pool, error) {
	if a.Prefix != store.DefaultPrefix {
		return nil, nil, exit.WrongUsage(errors.New("--prefix: a PostgreSQL has none: all its locks are in the schema holdfast"))
	}
	// pgx knows what each sslmode means for these files.
	params := url.Values{}
	for name, file := range map[string]string{"sslrootcert": a.Files.CA, "sslcert": a.Files.Cert, "sslkey": a.Files.Key} {
		if file != "" {
			params.Set(name, file)
		}
	}
	dsn := a.URL
	if len(params) > 0 {
		separator := "?"
		if strings.Contains(dsn, "?") {
			separator = "&"
		}
		if a.Files.CA != "" && !strings.Contains(dsn, "sslmode=") {
			params.Set("sslmode", "verify-full")
		}
		dsn += separator + params.Encode()
	}
	c, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		why := errors.Unwrap(err) // which leaves out the URL, that may have a password
		if why == nil {
			why = errors.New("cannot read the URL: in a password, / is written as %2F, @ as %40, and % as %25")
		}
		return nil, nil, exit.WrongUsage(fmt.Errorf("--store: %w", why))
	}
	if password != "" {
		c.ConnConfig.Password = password
	}
	// The next statement may run in another session of a PgBouncer, and one process prepares what
	// the one before left there.
	if c.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, nil, exit.WrongUsage(fmt.Errorf("--store: %w", err))
	}
	s := &store.Store{Name: fmt.Sprintf("PostgreSQL database %q at %s:%d", c.ConnConfig.Database, c.ConnConfig.Host, c.ConnConfig.Port), Close: pool.Close, Client: pool, Explain: explain}
	return s, pool, nil
}

var errNoSchema = errors.New("there is no schema holdfast: holdfast migrate makes it, or pgdriver.Migrate in Go, as a user that may create a schema")

// explain says of an error of PostgreSQL what to do about it.
func explain(name string, err error) error {
	answer, answered := errors.AsType[*pgconn.PgError](err)
	switch {
	case errors.Is(err, errNoSchema):
		return fmt.Errorf("%s: %w", name, err)
	case answered && (answer.Code == "28P01" || answer.Code == "28000" || answer.Code == "08P01" && strings.HasPrefix(answer.Message, "password ")): // of a PgBouncer
		return fmt.Errorf("%s refuses the user or the password: %s", name, answer.Message)
	case answered && answer.Code == "42501":
		return fmt.Errorf("%s: the user lacks a right, see the documentation of pgdriver: %s", name, answer.Message)
	case answered:
		return fmt.Errorf("%s: %s", name, answer.Message)
	}
	return fmt.Errorf("no %s: %w", name, err)
}
