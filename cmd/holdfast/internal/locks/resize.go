package locks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/flags"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/show"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
	"github.com/holdfast-go/holdfast/driver"
)

const resizeHelp = `Sets the limit of a semaphore while it is in use, and lets the waiters in
that now fit. Nothing is taken from holders: if they have more permits than
the new limit, others wait until enough are given back.

The new limit is in force for programs and for holdfast run --limit, whatever
limit they name, until nobody has used the semaphore for a minute. Then it
has the limit of whoever comes first. So where programs are replaced one by
one, call it before the first and after the last:

   holdfast resize api --limit 32

Exit codes: 0;
   64   wrong command line, or the store cannot do this
   69   no answer from the store, or a refusal`

// Resize is holdfast resize.
func Resize() *cli.Command {
	return &cli.Command{
		Name:            "resize",
		Usage:           "set the limit of a semaphore that is in use",
		UsageText:       "holdfast resize NAME --limit NUMBER [options]",
		Description:     resizeHelp,
		HideHelpCommand: true,
		OnUsageError:    flags.OnUsageError,
		Flags: append([]cli.Flag{
			&cli.Int64Flag{Name: "limit", Usage: "the `NUMBER` of permits from now on", Required: true, Local: true, HideDefault: true, Validator: flags.Between[int64](1, driver.MaxLimit)},
			base64Flag(),
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
			if err := s.CanLock(); err != nil {
				return err
			}
			return resize(ctx, s, name, cmd.Int64("limit"))
		},
	}
}

func resize(ctx context.Context, s *store.Store, name string, limit int64) error {
	ctx, cancel := context.WithTimeout(ctx, store.ConnectTimeout)
	defer cancel()
	locks := holdfast.Open(s.Driver, holdfast.WithLogger(store.Logger()))
	defer store.CloseClient(locks)
	sem := locks.Semaphore(name, limit)
	before, err := sem.Inspect(ctx)
	if err == nil {
		err = sem.Resize(ctx, limit)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return s.Lacks("cannot change the limit of a semaphore")
	}
	if err != nil {
		return s.Unavailable(err)
	}
	text := fmt.Sprintf("the semaphore %q on %s has a limit of %d", name, s.Name, limit)
	if before.Limit > 0 {
		text += fmt.Sprintf(", not %d", before.Limit)
	}
	var used int64
	for _, h := range before.Holders {
		used += h.Weight
	}
	switch {
	case len(before.Holders)+len(before.Queue) == 0:
		text += "; nobody uses it: a minute after its last use it has the limit of whoever comes first"
	case used > limit:
		text += fmt.Sprintf("; %s in use: others wait until it is less", show.Plural(int(used), "permit is", "permits are"))
	}
	if _, err := fmt.Println(text); err != nil {
		return exit.With(exit.Failure, err)
	}
	return nil
}
