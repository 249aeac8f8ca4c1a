package locks

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/flags"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/show"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/term"
	"github.com/holdfast-go/holdfast/driver"
)

const unlockHelp = `Takes a lock from all who hold it. The first waiter gets it. Use it when the
holder is known to be dead or stuck, and the lease is too long to wait for.

A holder that is alive does not stop at once: it finds out when it renews its
lease, within a third of its TTL, and until then there may be two. Only the
fencing token tells what it writes from what the next holder writes.

It shows who holds the lock and asks before it does anything. With --yes it
does not ask; it has to be given where there is no terminal.

Without --kind it takes the lock of that name that is held. If several kinds
of it are, say which. holdfast run takes the rwmutex of a name, with --limit
the semaphore, or what its --kind says.

A name that begins with a dash comes after --, at the end. For a name that
cannot be typed there is --base64: see holdfast inspect --help.

Examples:
   holdfast unlock nightly --force --yes
   holdfast unlock --force -- -x

Exit codes: 0 if the lock was taken from somebody; 1 if nobody held it, or
   the answer was no;
   64   wrong command line, or the store cannot do this
   69   no answer from the store, or a refusal`

// Unlock is holdfast unlock.
func Unlock() *cli.Command {
	return &cli.Command{
		Name:            "unlock",
		Usage:           "take a lock from its holder",
		UsageText:       "holdfast unlock NAME --force [options]",
		Description:     unlockHelp,
		HideHelpCommand: true,
		OnUsageError:    flags.OnUsageError,
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "force", Usage: "take the lock from a holder that may be alive", Local: true},
			&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask", Local: true},
			kindFlag(),
			base64Flag(),
		}, store.Flags()...),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			name, err := oneName(cmd)
			if err != nil {
				return err
			}
			switch yes := cmd.Bool("yes"); {
			case !cmd.Bool("force"):
				return exit.WrongUsage(errors.New("a lock can only be taken from its holder by --force; see holdfast unlock --help"))
			case !yes && !term.Is(os.Stdin):
				return exit.WrongUsage(errors.New("there is no terminal on which to ask; say --yes"))
			}
			ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
			defer stop()
			context.AfterFunc(ctx, stop) // while it asks, Ctrl-C ends it
			s, err := store.AddressOf(cmd).Open(ctx)
			if err != nil {
				return err
			}
			defer s.Close()
			return unlock(ctx, s, cmd.String("kind"), name, cmd.Bool("yes"))
		},
	}
}

func unlock(ctx context.Context, s *store.Store, kind, name string, yes bool) error {
	forcer, ok := driver.As[driver.Forcer](s.Driver)
	if !ok {
		return s.Lacks("cannot take a lock from its holder, as --force does")
	}
	asked := ""
	for {
		lock, err := held(ctx, s, kind, name)
		if err != nil {
			return err
		}
		who := fmt.Sprintf("%s %q on %s is %s", lock.kind, name, s.Name, show.Describe(lock.Info, true))
		if yes || who == asked {
			err := forcer.ForceRelease(ctx, lock.kind, name)
			if errors.Is(err, driver.ErrNotHeld) {
				return nobodyHolds(s, name)
			}
			if err != nil {
				return s.Unavailable(err)
			}
			var names []string
			for _, h := range lock.Holders {
				name := show.Printable(h.Holder)
				if !h.Since.IsZero() {
					name += ", which had it for " + show.Whole(time.Since(h.Since))
				}
				names = append(names, name)
			}
			_, err = fmt.Printf("took the %s %q on %s from %s\n", lock.kind, name, s.Name, strings.Join(names, "; and from "))
			if err != nil {
				return exit.With(exit.Failure, err)
			}
			return nil
		}
		if asked != "" {
			fmt.Println("That has changed.")
		}
		fmt.Printf("The %s.\nTake it away? [y/N] ", who)
		answer, err := read(ctx)
		if err != nil || !strings.HasPrefix(strings.ToLower(strings.TrimSpace(answer)), "y") {
			return exit.With(exit.Failure, fmt.Errorf("%q on %s was left alone", name, s.Name))
		}
		asked = who // it may be somebody else's by now, so look again
	}
}

// read returns a line of the standard input.
func read(ctx context.Context) (string, error) {
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(os.Stdin).ReadString('\n') // at its end that is no
		line <- text
	}()
	select {
	case text := <-line:
		return text, nil
	case <-ctx.Done():
		fmt.Println()
		return "", ctx.Err()
	}
}

// held returns the only lock of that name that is held.
func held(ctx context.Context, s *store.Store, kind, name string) (*found, error) {
	locks, err := inspect(ctx, s, kind, name)
	if err != nil {
		return nil, err
	}
	var held []*found
	var kinds []string
	for _, l := range locks {
		if len(l.Holders) > 0 {
			held, kinds = append(held, l), append(kinds, string(l.kind))
		}
	}
	switch len(held) {
	case 0:
		return nil, nobodyHolds(s, name)
	case 1:
		return held[0], nil
	}
	return nil, exit.WrongUsage(fmt.Errorf("%q is held as %s: say which with --kind", name, strings.Join(kinds, " and as ")))
}

func nobodyHolds(s *store.Store, name string) error {
	return exit.With(exit.Failure, fmt.Errorf("nobody holds %q on %s", name, s.Name))
}
