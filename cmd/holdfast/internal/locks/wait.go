package locks

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/flags"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
)

const waitHelp = `Returns when nobody holds the lock. It takes no part in the queue, and the
lock may be taken again before the next command runs: to have it, use
holdfast run or acquire. It looks four times a second.

Without --kind it waits until no lock of that name is held, of any kind.

Examples:
   holdfast wait deploy && ./report.sh
   holdfast wait deploy --timeout 5m || echo 'still deploying'

Exit codes: 0 if nobody holds the lock; 128+n if signal n ended the waiting;
   64   wrong command line, or the store has no such locks
   69   no answer from the store, or a refusal
   75   somebody still holds it after --timeout`

// lookEvery is the pause between two looks at a lock that is waited for.
const lookEvery = 250 * time.Millisecond

// Wait is holdfast wait.
func Wait() *cli.Command {
	return &cli.Command{
		Name:            "wait",
		Usage:           "wait until nobody holds a lock",
		UsageText:       "holdfast wait NAME [options]",
		Description:     waitHelp,
		HideHelpCommand: true,
		OnUsageError:    flags.OnUsageError,
		Flags: append([]cli.Flag{
			kindFlag(),
			base64Flag(),
			&flags.Time{Name: "timeout", Aliases: []string{"w"}, Usage: "longest `TIME` to wait, such as 5 (seconds) or 2m; 0 waits for ever", Local: true, Validator: flags.NotNegative},
		}, store.Flags()...),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			name, err := oneName(cmd)
			if err != nil {
				return err
			}
			endOnQuit()
			s, err := store.AddressOf(cmd).Open(ctx)
			if err != nil {
				return err
			}
			defer s.Close()
			if d := cmd.Duration("timeout"); d > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, d)
				defer cancel()
			}
			return untilFree(ctx, s, cmd.String("kind"), name)
		},
	}
}

// endOnQuit has SIGQUIT end the process as other signals do. Go would write all stacks, and exit with 2.
func endOnQuit() {
	if signal.Ignored(syscall.SIGQUIT) { // to ask for it would end that
		return
	}
	quit := make(chan os.Signal, 1)
	signal.Notify(quit, syscall.SIGQUIT)
	go func() {
		<-quit
		os.Exit(exit.Signal + int(syscall.SIGQUIT))
	}()
}

// untilFree returns when nobody holds a lock of that name. A signal ends the process.
func untilFree(ctx context.Context, s *store.Store, kind, name string) error {
	for {
		looking, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.ConnectTimeout)
		locks, err := inspect(looking, s, kind, name)
		cancel()
		held := false
		for _, l := range locks {
			held = held || len(l.Holders) > 0
		}
		switch {
		case err != nil:
			return err
		case !held:
			return nil
		case ctx.Err() != nil:
			return exit.With(exit.NotAcquired, fmt.Errorf("somebody still holds %q", name))
		}
		clock.Pause(ctx, lookEvery)
	}
}
