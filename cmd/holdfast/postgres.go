package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
)

// openPostgres connects to a PostgreSQL whose schema holdfast is there.
func (a *address) openPostgres(ctx context.Context, password string) (*store, error) {
	// pgx knows what each sslmode means for these files.
	params := url.Values{}
	for name, file := range map[string]string{"sslrootcert": a.files.ca, "sslcert": a.files.cert, "sslkey": a.files.key} {
		if file != "" {
			params.Set(name, file)
		}
	}
	dsn := a.url
	if len(params) > 0 {
		separator := "?"
		if strings.Contains(dsn, "?") {
			separator = "&"
		}
		if a.files.ca != "" && !strings.Contains(dsn, "sslmode=") {
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
		return nil, usage(fmt.Errorf("--store: %w", why))
	}
	if password != "" {
		c.ConnConfig.Password = password
	}
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, usage(fmt.Errorf("--store: %w", err))
	}
	s := &store{name: fmt.Sprintf("PostgreSQL database %q at %s:%d", c.ConnConfig.Database, c.ConnConfig.Host, c.ConnConfig.Port), close: pool.Close, postgres: pool}
	var migrated bool
	err = pool.QueryRow(ctx, `SELECT to_regclass('holdfast.version') IS NOT NULL`).Scan(&migrated)
	if err == nil && !migrated {
		err = errNoSchema
	}
	if err != nil {
		s.close()
		return nil, s.unavailable(err)
	}
	s.driver = pgdriver.New(pool)
	return s, nil
}

var errNoSchema = errors.New("there is no schema holdfast: have pgdriver.Migrate run once by a user that may create a schema")

// explainPostgres says of an error of PostgreSQL what to do about it.
func explainPostgres(name string, err error) error {
	answer, answered := errors.AsType[*pgconn.PgError](err)
	switch {
	case errors.Is(err, errNoSchema):
		return fmt.Errorf("%s: %w", name, err)
	case answered && (answer.Code == "28P01" || answer.Code == "28000"):
		return fmt.Errorf("%s refuses the user or the password: %s", name, answer.Message)
	case answered && answer.Code == "42501":
		return fmt.Errorf("%s: the user lacks a right, see the documentation of pgdriver: %s", name, answer.Message)
	case answered:
		return fmt.Errorf("%s: %s", name, answer.Message)
	}
	return fmt.Errorf("no %s: %w", name, err)
}
