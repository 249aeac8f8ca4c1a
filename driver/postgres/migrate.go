package pgdriver

import (
	"context"
	"embed"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// version is that of the schema in sql. A change of any file there needs another one. Clients of
// the version before go on with the new functions, so these keep their arguments and results;
// testdata has each version that may be found.
const version = 7

//go:embed sql/*.sql
var files embed.FS

// parts are the files in sql in an order in which they can be run.
var parts = []string{
	"schema", "time", "open", "tell", "serve",
	"acquire", "release", "renew", "notice", "attach", "downgrade", "resize", "force", "steal", "raise",
	"inspect", "sweep", "fenced",
}

// Migrate makes the schema holdfast in the database that conn leads to: its tables, and a
// function for each operation. Run it where you migrate your own tables, as a user that may
// create a schema, or that owns an empty schema holdfast. In a transaction it takes effect with
// that. If the schema is there and not older than this package it does nothing, so it may be run
// at every start, and by many at a time. In an older one it replaces the functions, as the user
// that owns them; one whose results are others is made anew, without rights to execute it that were
// given by hand. The old one stays beside it under another name, for calls that are under way.
// Programs that still have the older package may go on meanwhile. Those that have this one need it
// to be called before: in an older schema they get an error that says so.
//
// conn is a [pgx.Conn], a [pgx.Tx] or a pool.
func Migrate(ctx context.Context, conn interface {
	Begin(context.Context) (pgx.Tx, error)
}) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// One at a time. The lock ends with the transaction.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext('holdfast'))`); err != nil {
			return err
		}
		var there bool
		if err := tx.QueryRow(ctx, `SELECT to_regclass('holdfast.version') IS NOT NULL`, pgx.QueryExecModeExec).Scan(&there); err != nil {
			return err
		}
		missing, installed := parts, 0
		if there {
			if err := tx.QueryRow(ctx, `SELECT max(version) FROM holdfast.version`, pgx.QueryExecModeExec).Scan(&installed); err != nil || installed >= version {
				return err
			}
			missing = parts[1:] // all but the tables
		}
		for _, part := range missing {
			text, err := files.ReadFile("sql/" + part + ".sql")
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, string(text)); err != nil {
				return fmt.Errorf("%s.sql: %w", part, err)
			}
		}
		_, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO holdfast.version VALUES (%d)", version))
		return err
	})
	if err != nil {
		return fmt.Errorf("pgdriver: migrate: %w", err)
	}
	return nil
}
