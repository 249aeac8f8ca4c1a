package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/urfave/cli/v3"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/flags"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
)

const help = `Makes the schema holdfast in a PostgreSQL: its tables, and a function for
each operation of a lock, as pgdriver.Migrate does in Go. If the schema is
there and not older than this command, it does nothing. In an older one it
replaces the functions. Programs may go on meanwhile.

The user must be allowed to create a schema, or own an empty one of the name
holdfast. See the documentation of pgdriver for the rights of others.

With --print it asks no database. It writes the SQL for one without the
schema, for whoever runs migrations there.

Examples:
   holdfast migrate --store postgres://owner@db.internal/app
   holdfast migrate --print | psql -v ON_ERROR_STOP=1 app

Exit codes: 0 if the schema is there now;
   64   wrong command line
   69   no answer from the store, or a refusal`

// migrateTimeout bounds the wait for locks of tables that programs use.
const migrateTimeout = time.Minute

// Migrate is holdfast migrate.
func Migrate() *cli.Command {
	return &cli.Command{
		Name:            "migrate",
		Usage:           "make the schema of locks in a PostgreSQL",
		UsageText:       "holdfast migrate [options]",
		Description:     help,
		HideHelpCommand: true,
		OnUsageError:    flags.OnUsageError,
		ArgValidator:    flags.NoArguments,
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "print", Usage: "write the SQL instead of running it", Local: true},
		}, store.Flags()...),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
			defer stop()
			if cmd.Bool("print") {
				var s script
				err := pgdriver.Migrate(ctx, &s)
				if err == nil {
					_, err = fmt.Printf("BEGIN;\n\n%sCOMMIT;\n", &s.text)
				}
				if err != nil {
					return exit.With(exit.Failure, err)
				}
				return nil
			}
			return migrate(ctx, store.AddressOf(cmd))
		},
	}
}

func migrate(ctx context.Context, a *store.Address) error {
	if !strings.HasPrefix(a.URL, "postgres://") && !strings.HasPrefix(a.URL, "postgresql://") {
		return exit.WrongUsage(errors.New("--store: only a PostgreSQL has a schema; want postgres://user@host/database"))
	}
	password, err := a.Password()
	if err != nil {
		return exit.WrongUsage(err)
	}
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	s, pool, err := connect(ctx, a, password)
	if err != nil {
		return err
	}
	defer s.Close()
	before, err := version(ctx, pool)
	if err == nil {
		err = pgdriver.Migrate(ctx, pool)
	}
	var after int
	if err == nil {
		after, err = version(ctx, pool)
	}
	if err != nil {
		return s.Unavailable(err)
	}
	done := "is there already"
	switch {
	case before == 0:
		done = "was made"
	case before < after:
		done = fmt.Sprintf("was made of version %d", before)
	}
	if _, err := fmt.Printf("the schema holdfast, version %d, %s in %s\n", after, done, s.Name); err != nil {
		return exit.With(exit.Failure, err)
	}
	return nil
}

// script is a transaction in a database without the schema, of which it keeps the text.
type script struct {
	pgx.Tx
	text strings.Builder
}

// Begin returns the transaction, which is always under way.
func (s *script) Begin(context.Context) (pgx.Tx, error) { return s, nil }

// Exec implements [pgx.Tx].
func (s *script) Exec(_ context.Context, sql string, _ ...any) (pgconn.CommandTag, error) {
	fmt.Fprintf(&s.text, "%s;\n\n", strings.TrimRight(sql, "; \n"))
	return pgconn.CommandTag{}, nil
}

// QueryRow implements [pgx.Tx]. There is nothing yet.
func (*script) QueryRow(context.Context, string, ...any) pgx.Row { return nothing{} }

// Commit implements [pgx.Tx].
func (*script) Commit(context.Context) error { return nil }

// Rollback implements [pgx.Tx].
func (*script) Rollback(context.Context) error { return pgx.ErrTxClosed }

type nothing struct{}

// Scan implements [pgx.Row]. The results stay as they are: false, and 0.
func (nothing) Scan(...any) error { return nil }
