package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/urfave/cli/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/flags"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/token"
)

// TokenEnv is the environment variable with the token of a lease.
const TokenEnv = "HOLDFAST_TOKEN"

// leaseTTL is how long a lease lasts that nobody may renew.
const leaseTTL = 10 * time.Minute

const acquireHelp = `The lease ends after --ttl unless holdfast renew is called: no process is
left that renews it. So a script that is killed keeps nobody waiting longer.

Waits for the lock, prints the token of the lease, and ends. Whoever has the
token can renew the lease, and give the lock back. Where a command can be run
under the lock, holdfast run is better: it renews the lease, and ends a
command that has lost it.

   #!/usr/bin/env bash
   set -euo pipefail
   HOLDFAST_TOKEN=$(holdfast acquire deploy --ttl 10m --wait 5m)
   export HOLDFAST_TOKEN
   trap 'holdfast release' EXIT
   ./step-one.sh
   holdfast renew
   ./step-two.sh

An export of the $( ) itself would hide the exit code of holdfast, and the
steps would run without the lock.

With --json it prints one line, with the fencing token and when the lease
ends by the clock of this machine:

   {"token":"rwmutex:9a59…:deploy","name":"deploy",
   "fence":1790000000000000,"deadline":"2026-11-22T15:40:00Z"}

Which of the locks of a name it is, --shared, --limit and --kind say, as they
do for holdfast run. A program in Go takes the lease over with Client.Attach.
The name ends the token, and a shell drops what of it is white space at the
end, so a NAME that ends in white space is refused.
` + tokenHelp + `

Exit codes: 0; 128+n if signal n ended the waiting;
   64   wrong command line: the semaphore is in use with another --limit, or
        the store has no such locks, or no such leases
   69   no answer from the store, or a refusal; or the token could not be
        written, and the lock was given back
   75   the lock was not acquired: within --wait, or at once with -n;
        another code with -E`

const tokenHelp = `
A token is a secret: who knows it can end the lease. As an argument everybody
on the machine can see it while the command runs, in the list of processes.
That is not so of HOLDFAST_TOKEN in the environment, which only root and this
user can read, nor of standard input, which is read if the argument is -. Of
both white space at the end is left out.`

const tokenExit = `

Exit codes: 0;
   64   wrong command line, or no token
   69   no answer from the store, or a refusal
   76   the lease is over: it was not renewed in time, was released, or the
        lock was taken away`

// Acquire is holdfast acquire.
func Acquire() *cli.Command {
	return &cli.Command{
		Name:                   "acquire",
		Usage:                  "take a lock for a script, and print a token of it",
		UsageText:              "holdfast acquire NAME [options]",
		Description:            acquireHelp,
		HideHelpCommand:        true,
		OnUsageError:           flags.OnUsageError,
		UseShortOptionHandling: true,
		Flags:                  slices.Concat(lockFlags(leaseTTL), []cli.Flag{flags.JSON()}, store.Flags()),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() != 1 || cmd.Args().First() == "" {
				return exit.WrongUsage(fmt.Errorf("which lock? want %s", cmd.UsageText))
			}
			g := guardOf(cmd, cmd.Args().First())
			if trimmed(g.lock) != g.lock {
				return exit.WrongUsage(fmt.Errorf("the name %q ends in white space, which its token would lose on its way through a shell", g.lock))
			}
			if err := g.check(cmd); err != nil {
				return exit.WrongUsage(err)
			}
			return g.acquire(ctx, cmd.Bool("json"))
		},
	}
}

// printLease writes a lease for a script.
func printLease(w io.Writer, l *holdfast.Lease, token string, asJSON bool) error {
	if !asJSON {
		_, err := fmt.Fprintln(w, token)
		return err
	}
	return json.NewEncoder(w).Encode(struct {
		Token    string    `json:"token"`
		Name     string    `json:"name"`
		Fence    int64     `json:"fence"`
		Deadline time.Time `json:"deadline"`
	}{token, l.Name(), l.Fence(), l.Deadline().UTC().Round(time.Millisecond)})
}

// Renew is holdfast renew.
func Renew() *cli.Command {
	return withToken("renew", "let a lease of holdfast acquire last its whole time again",
		`The lease then ends after --ttl unless it is renewed again. Token and fence
stay the same. Give it the --ttl that holdfast acquire got; without one both
take 10m.

   holdfast renew --ttl 30m
`, []cli.Flag{&flags.Time{Name: "ttl", Value: leaseTTL, Usage: "`TIME` after which the lease ends", Local: true, Validator: isTTL}},
		func(ctx context.Context, d driver.Driver, l driver.Lease) error {
			return d.Renew(ctx, []driver.Lease{l})[0]
		})
}

// Release is holdfast release.
func Release() *cli.Command {
	maybe := false // an attempt was perhaps carried out, so ErrNotHeld may be of our own making
	return withToken("release", "give back a lock of holdfast acquire",
		`The first waiter gets the lock. It touches nobody else's lease: the token is
that of one lease.

   HOLDFAST_TOKEN=$token holdfast release
`, nil, func(ctx context.Context, d driver.Driver, l driver.Lease) error {
			err := d.Release(ctx, l)
			if errors.Is(err, driver.ErrNotHeld) && maybe {
				return nil
			}
			maybe = maybe || err != nil && !errors.Is(err, driver.ErrNotExecuted)
			return err
		})
}

// withToken is a command that does something with a lease by its token.
func withToken(name, usage, help string, own []cli.Flag, do func(context.Context, driver.Driver, driver.Lease) error) *cli.Command {
	return &cli.Command{
		Name:            name,
		Usage:           usage,
		UsageText:       fmt.Sprintf("%s=... holdfast %s [options]\nholdfast %s - [options] <FILE\nholdfast %s TOKEN [options]", TokenEnv, name, name, name),
		Description:     help + tokenHelp + tokenExit,
		HideHelpCommand: true,
		OnUsageError:    flags.OnUsageError,
		Flags:           slices.Concat(own, store.Flags()),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			lease, err := tokenOf(cmd)
			if err != nil {
				return exit.WrongUsage(err)
			}
			lease.TTL = max(cmd.Duration("ttl"), driver.MinTTL)
			s, err := store.AddressOf(cmd).Open(ctx)
			if err != nil {
				return err
			}
			defer s.Close()
			defer s.Driver.Close()
			ctx, cancel := context.WithTimeout(ctx, store.ConnectTimeout)
			defer cancel()
			switch err := persist(ctx, func() error { return do(ctx, s.Driver, lease) }); {
			case errors.Is(err, driver.ErrNotHeld):
				return exit.With(exit.Lost, fmt.Errorf("the lease on %q is over", lease.Name))
			case err != nil:
				return s.Unavailable(err)
			}
			return nil
		},
	}
}

// persist repeats what is idempotent while the store is in trouble.
func persist(ctx context.Context, do func() error) error {
	for {
		err := do()
		if !errors.Is(err, driver.ErrTransient) || ctx.Err() != nil {
			return err
		}
		clock.Pause(ctx, 100*time.Millisecond)
	}
}

// tokenOf returns the lease whose token the command line, the environment or standard input has.
func tokenOf(cmd *cli.Command) (driver.Lease, error) {
	text := cmd.Args().First()
	switch {
	case cmd.NArg() > 1:
		return driver.Lease{}, fmt.Errorf("unexpected argument %q; see %s --help", cmd.Args().Get(1), cmd.FullName())
	case cmd.NArg() == 0:
		text = trimmed(os.Getenv(TokenEnv))
	case text == "-":
		b, err := io.ReadAll(io.LimitReader(os.Stdin, 4096))
		if err != nil {
			return driver.Lease{}, err
		}
		text = trimmed(string(b))
	}
	if text == "" {
		return driver.Lease{}, fmt.Errorf("where is the token? Put it into %s; see %s --help", TokenEnv, cmd.FullName())
	}
	return token.Parse(text)
}

// trimmed returns a token without what files and shells put after it, or take away.
func trimmed(s string) string { return strings.TrimRightFunc(s, unicode.IsSpace) }
