package locks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/flags"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/show"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/term"
	"github.com/holdfast-go/holdfast/driver"
)

const listHelp = `Lists the locks that somebody holds or waits for, one line for each holder;
2/5 is a holder of 2 of 5 permits. HELD is for how long the holder has had
the lock, LEFT the time after which the lease ends unless it is renewed,
FENCE the fencing token, and WAIT how many wait for the lock, and the longest
of them for how long. A dash stands for what the store does not know. PREFIX
is what the names of the locks begin with.

It looks at all keys of a Redis, and of all masters of a Cluster, by SCAN.
That takes about a second for a million keys, and holds up nobody. The user
needs the right +scan. Locks that are taken or given back meanwhile may be
missing.

On setnx+redis:// every string is taken for a lock: give the PREFIX, or
--prefix, that the locks have. It shows a getset lock by the end of its lease
if another program holds it.

WAIT says circle, and JSON "circle":true, where holders wait for each other
in a circle. They say so if their programs have the hook of package deadlock,
which ends the circle. holdfast inspect NAME shows who waits for whom.

With --watch it goes on until Ctrl-C, as inspect does. With --json each lock
is one line, in the form that holdfast inspect --help shows.

On a terminal long names are cut in the middle, so that a lock has one line.
One that is still too narrow shows no FENCE, nor LEFT, KIND and HELD if that
is not enough.

A key in the place of a lock that holds something else is left out. Standard
error says so.

Examples:
   holdfast ls orders: --watch
   holdfast ls --json | jq -r 'select(.queue | length > 10) | .name'

Exit codes: 0, even if there are none;
   64   wrong command line, or the store cannot list its locks
   69   no answer from the store, or a refusal`

// listPatience is how long one look at a store that is watched may take. It has many locks.
const listPatience = time.Minute

// lookers is how many locks are looked at at a time, and crowd where they go many in one call.
const lookers, crowd = 16, 256

// List is holdfast ls.
func List() *cli.Command {
	return &cli.Command{
		Name:            "ls",
		Usage:           "list the locks that are held",
		UsageText:       "holdfast ls [PREFIX] [options]",
		Description:     listHelp,
		HideHelpCommand: true,
		OnUsageError:    flags.OnUsageError,
		Flags:           append([]cli.Flag{watchFlag(), flags.JSON()}, store.Flags()...),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() > 1 {
				return exit.WrongUsage(fmt.Errorf("unexpected argument %q; see holdfast ls --help", cmd.Args().Get(1)))
			}
			ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
			defer stop()
			s, err := store.AddressOf(cmd).Open(ctx)
			if err != nil {
				return err
			}
			defer s.Close()
			write := listWriter(s, cmd.Bool("json"))
			if cmd.Bool("watch") {
				return watch(ctx, s, write, func() ([]*found, error) {
					looking, cancel := context.WithTimeout(ctx, listPatience)
					defer cancel()
					return list(looking, s, cmd.Args().First(), nil)
				})
			}
			locks, err := list(ctx, s, cmd.Args().First(), exit.Say)
			if err != nil {
				return err
			}
			if len(locks) == 0 && !cmd.Bool("json") {
				fmt.Fprintln(os.Stderr, "no locks")
				return nil
			}
			if err := write(os.Stdout, locks); err != nil {
				return exit.With(exit.Failure, err)
			}
			return nil
		},
	}
}

// list returns the locks that are in use, by name and kind. It calls leftOut, if that is not nil,
// with what is in the place of a lock and is none.
func list(ctx context.Context, s *store.Store, prefix string, leftOut func(error)) ([]*found, error) {
	lister, able := driver.As[driver.Lister](s.Driver)
	inspector, ableToo := driver.As[driver.Inspector](s.Driver)
	if !able || !ableToo {
		return nil, s.Lacks("cannot list its locks; holdfast inspect NAME shows one")
	}
	var all []*found
	group, looking := errgroup.WithContext(ctx)
	group.SetLimit(lookers)
	if _, able := driver.As[driver.Batcher](s.Driver); able {
		group.SetLimit(crowd)
	}
	err := lister.List(looking, prefix, func(k driver.Kind, name string) error {
		f := &found{kind: k}
		all = append(all, f)
		group.Go(func() (err error) {
			f.Info, err = inspector.Inspect(looking, k, name)
			if typed, is := errors.AsType[wrongType](err); is && typed.ErrorType() == "wrong_type" {
				// Somebody else's key in the place of a lock. It keeps nobody from seeing the others.
				if leftOut != nil {
					leftOut(fmt.Errorf("left out the %s %q: its key holds something that is no lock (%s)", k, name, whose(err)))
				}
				return nil
			}
			return err
		})
		return looking.Err()
	})
	if failed := group.Wait(); failed != nil { // and List has failed because of it
		err = failed
	}
	if err != nil {
		return nil, s.Unavailable(err)
	}
	all = slices.DeleteFunc(all, (*found).idle)
	slices.SortFunc(all, func(a, b *found) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.kind, b.kind))
	})
	markCircles(ctx, inspector, all)
	return all, nil
}

// waits is how many wait, and for how long the longest of them does, or that it is in a circle.
func (f *found) waits(now time.Time) string {
	n, longest := strconv.Itoa(len(f.Queue)), now
	if f.circle {
		return n + ", circle"
	}
	for _, q := range f.Queue {
		if !q.Since.IsZero() && q.Since.Before(longest) {
			longest = q.Since
		}
	}
	if longest.Equal(now) {
		return n
	}
	return n + " for " + show.Whole(now.Sub(longest))
}

// listWriter returns what writes locks, a line for each holder.
func listWriter(s *store.Store, asJSON bool) func(io.Writer, []*found) error {
	if asJSON {
		return writeJSON
	}
	return func(w io.Writer, locks []*found) error {
		if len(locks) == 0 {
			_, err := fmt.Fprintf(w, "no locks on %s\n", s.Name)
			return err
		}
		return writeList(w, locks, time.Now())
	}
}

func writeList(w io.Writer, locks []*found, now time.Time) error {
	rows := [][]string{{"NAME", "KIND", "HOLDER", "HELD", "LEFT", "FENCE", "WAIT"}}
	for _, l := range locks {
		name, kind, queue := show.Printable(l.Name), string(l.kind), l.waits(now)
		if len(l.Holders) == 0 {
			rows = append(rows, []string{name, kind, "-", "-", "-", "-", queue})
		}
		for _, h := range l.Holders {
			kind := kind + show.Part(h.Shared, 0)
			if l.Limit > 0 {
				kind += fmt.Sprintf(" %d/%d", h.Weight, l.Limit)
			}
			rows = append(rows, []string{name, kind, show.Printable(h.Holder), show.HeldFor(h.Since, now), show.Remaining(h.TimeLeft), show.Fence(holdfast.Holder{Fence: h.Fence}), queue})
		}
	}
	if width, _, ok := term.Size(os.Stdout); ok && width > 0 {
		rows = show.Fit(rows, width, []int{0, 2}, []int{5, 4, 1, 3})
	}
	t := show.NewTable(w, rows[0]...)
	for _, row := range rows[1:] {
		t.Row(row...)
	}
	return t.Flush()
}

// wrongType is an error that may say that something else is in the place of a lock.
type wrongType interface {
	error
	ErrorType() string
}

// whose is what the store says of that: Redis the same of all keys.
func whose(err error) string {
	if strings.Contains(err.Error(), "WRONGTYPE") {
		return "WRONGTYPE"
	}
	return err.Error()
}
