// Package locks is holdfast ls, inspect, wait and unlock.
package locks

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/flags"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/term"
	"github.com/holdfast-go/holdfast/driver"
)

const inspectHelp = `Shows who holds a lock and who waits for it, in the order in which they will
be served. LEFT is the time after which the lease ends unless it is renewed,
and FENCE is the fencing token; (+31) is how many more a client may use that
passes the lock on among its goroutines. Where a holder waits for another
lock itself, and its program has the hook of package deadlock, a line tells
for which, who holds that, and so on.

The three kinds of lock do not meet: "nightly" may be a mutex, an rwmutex and
a semaphore at the same time. Without --kind those are shown that are in use.
holdfast run takes the rwmutex of a name, with --limit the semaphore, or what
its --kind says.

With --watch it goes on until Ctrl-C. On a terminal it draws again and again;
otherwise it writes the state whenever holders or queue have changed. A store
that has answered once may be away for a while: it says so, and tries again.

With --json each lock is one line, in the form that holdfast.Info has in Go:

   {"kind":"mutex","name":"nightly","holders":[{"holder":"web1:4242",
   "since":"2026-11-22T15:30:00Z","fence":1790000000000000,
   "last_fence":1790000000000000,"left_ns":9120000000}],
   "queue":[{"holder":"web2:77","since":"2026-11-22T15:30:04Z"}]}

A name that is no UTF-8 stands there in base64, too, as "name_base64", for
--base64. A name that begins with a dash comes after --, at the end.

Examples:
   holdfast inspect nightly --watch
   holdfast inspect --json -- -x

Exit codes: 0 if somebody holds the lock or waits for it; 1 if nobody does;
   64   wrong command line, or the store has no such locks
   69   no answer from the store, or a refusal`

// allKinds are the kinds of lock that a name can stand for.
var allKinds = []driver.Kind{driver.Mutex, driver.RWMutex, driver.Semaphore}

// Inspect is holdfast inspect.
func Inspect() *cli.Command {
	return &cli.Command{
		Name:            "inspect",
		Usage:           "show who holds a lock and who waits",
		UsageText:       "holdfast inspect NAME [options]",
		Description:     inspectHelp,
		HideHelpCommand: true,
		OnUsageError:    flags.OnUsageError,
		Flags: append([]cli.Flag{
			kindFlag(),
			base64Flag(),
			watchFlag(),
			flags.JSON(),
		}, store.Flags()...),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			name, err := oneName(cmd)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
			defer stop()
			s, err := store.AddressOf(cmd).Open(ctx)
			if err != nil {
				return err
			}
			defer s.Close()
			write := writer(s, name, cmd.Bool("json"))
			if cmd.Bool("watch") {
				return watch(ctx, s, write, func() ([]*found, error) {
					looking, cancel := context.WithTimeout(ctx, store.ConnectTimeout)
					defer cancel()
					return inspect(looking, s, cmd.String("kind"), name)
				})
			}
			locks, err := inspect(ctx, s, cmd.String("kind"), name)
			if err != nil {
				return err
			}
			if len(locks) == 0 && !cmd.Bool("json") {
				return exit.With(exit.Failure, fmt.Errorf("nobody holds %q on %s, or waits for it", name, s.Name))
			}
			if err := write(os.Stdout, locks); err != nil {
				return exit.With(exit.Failure, err)
			}
			if len(locks) == 0 {
				return exit.Silent(exit.Failure)
			}
			return nil
		},
	}
}

func kindFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "kind", Usage: "`KIND` of lock: " + strings.Join(flags.Kinds, ", ") + " (default: what is in use)",
		Local: true, Validator: flags.OneOf(flags.Kinds...), HideDefault: true,
	}
}

func base64Flag() cli.Flag {
	return &cli.BoolFlag{Name: "base64", Usage: "NAME is in base64, as name_base64 is in JSON", Local: true}
}

// oneName returns the only argument, the name of a lock.
func oneName(cmd *cli.Command) (string, error) {
	name := cmd.Args().First()
	if cmd.Bool("base64") {
		b, err := base64.StdEncoding.DecodeString(name)
		if err != nil {
			return "", exit.WrongUsage(fmt.Errorf("%q is not base64", name))
		}
		name = string(b)
	}
	switch {
	case name == "":
		return "", exit.WrongUsage(fmt.Errorf("which lock? want %s", cmd.UsageText))
	case cmd.NArg() > 1:
		return "", exit.WrongUsage(fmt.Errorf("unexpected argument %q; see %s --help", cmd.Args().Get(1), cmd.FullName()))
	case len(name) > driver.MaxName:
		return "", exit.WrongUsage(fmt.Errorf("a name has at most %d bytes", driver.MaxName))
	default:
		return name, nil
	}
}

// inspect returns the locks of that name that are in use, or the one of a kind if kind is
// not empty. Its errors carry an exit code.
func inspect(ctx context.Context, s *store.Store, kind, name string) ([]*found, error) {
	inspector, ok := driver.As[driver.Inspector](s.Driver)
	if !ok {
		return nil, s.Lacks("cannot say who holds a lock")
	}
	kinds := allKinds
	if kind != "" {
		kinds = []driver.Kind{driver.Kind(kind)}
	}
	var locks []*found
	for _, k := range kinds {
		info, err := inspector.Inspect(ctx, k, name)
		if errors.Is(err, errors.ErrUnsupported) {
			if kind == "" {
				continue // a store need not have all kinds
			}
			return nil, s.Lacks("has no locks of --kind " + kind)
		}
		if err != nil {
			return nil, s.Unavailable(err)
		}
		if f := (&found{kind: k, Info: info}); !f.idle() {
			f.chains = f.chainsAt(ctx, inspector, time.Now())
			locks = append(locks, f)
		}
	}
	return locks, nil
}

// writer returns what writes locks of one name. On a terminal the first line is the store.
func writer(s *store.Store, name string, asJSON bool) func(io.Writer, []*found) error {
	if asJSON {
		return writeJSON
	}
	return func(w io.Writer, locks []*found) error {
		if term.Is(os.Stdout) {
			fmt.Fprintln(w, s.Name)
		}
		if len(locks) == 0 {
			_, err := fmt.Fprintf(w, "nobody holds %q or waits for it\n", name)
			return err
		}
		for _, l := range locks {
			if err := l.write(w, time.Now()); err != nil {
				return err
			}
		}
		return nil
	}
}
