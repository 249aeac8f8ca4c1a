// Package guard is holdfast run, which runs a command under a lock, and acquire, renew and release,
// for scripts that hold a lease on their own.
package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/flags"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
	"github.com/holdfast-go/holdfast/driver"
)

const help = `Waits for the lock, runs the command, and gives the lock back when the
command has ended. Several holdfast run with one lock name, on any machines
that share the Redis, run one at a time, in the order in which they came.

While it waits, it says on a terminal who holds the lock: after a second, and
when that changes.

With --shared the command runs together with others that are --shared, but
alone otherwise, as with flock -s. A command that waits to run alone holds up
all that come after it.

With --limit the lock is a semaphore: that many commands run at a time, or
fewer if some take several --permits. All must give the same limit.

A name stands for three locks that do not meet. The default is the one that
is a holdfast.RWMutex in Go, and with --limit the holdfast.Semaphore. For the
holdfast.Mutex say --kind mutex. On setnx+redis:// and the like that is the
default, as most have no others. Beside --shared on redisson+redis:// say
--kind rwmutex.

The command gets HOLDFAST_LOCK, the name, and HOLDFAST_FENCE, the fencing
token. The token is a number that is larger for each holder than for all
before it. Have the resource that you write to refuse a smaller number than
it has seen. That stops even a command that was paused, or cut off, for
longer than its lease. On setnx+redis:// and the like, whose locks have no
fence, HOLDFAST_FENCE is empty.

While the command runs, the lease is renewed. The lease can still be lost:
the store was away for longer than --ttl, or somebody forced the lock. Then
another may get the lock, so the command gets TERM, and after --grace KILL.
With --on-lost kill it gets KILL at once. With --on-lost ignore it goes on,
which is right for a command that has its fence checked by what it writes to.

If holdfast itself is killed, nobody renews the lease. Then a process that
watches over it sends TERM, and KILL after --grace, but after half of --ttl
at the latest; or what --on-lost says.

The command runs in a process group of its own; TERM and KILL go to all of
it, but not to a process that has left the group, as setsid and daemons do:
it lives on without the lock, and only its fence can stop it. INT, TERM, HUP,
QUIT, USR1 and USR2 are passed on to the group. While holdfast still waits
for the lock, the first four end the waiting. The lock is given back when the
command itself has ended. A background process that the command left behind
no longer has the lock. As pid 1 of a container holdfast reaps orphans, so it
needs no init around it.

On a terminal the command is in the foreground: Ctrl-C and Ctrl-Z reach it as
usual. If input and output are the terminal, that is so from the start,
otherwise from when the command first asks for it. Ctrl-Z also stops
holdfast. A command that is stopped for longer than --ttl loses the lock, and
gets TERM when it is continued.

Examples:
   holdfast run --lock nightly -w 60 -- ./nightly.sh --all
   holdfast run --lock orders:42 --kind mutex --holder 'repair by eve' -- sh
   holdfast run --lock nightly -n -E 0 -c './nightly.sh > log'

Exit codes: that of the command; 128+n if signal n ended it or the waiting;
   64   wrong command line: the semaphore is in use with another --limit, or
        the store has no such locks
   69   no answer from the store, or a refusal
   75   the lock was not acquired: within --timeout, or at once with -n;
        another code with -E
   76   the lease was lost while the command ran
   126  the command cannot be executed
   127  there is no such command`

// OnLostWays are the values of --on-lost.
var OnLostWays = []string{"term", "kill", "ignore"}

// guard is one run of holdfast run.
type guard struct {
	lock    string
	kind    string // empty for the one that the other flags ask for
	holder  string // what others see of us; empty for the default of the library
	shared  bool
	limit   int64 // of the semaphore; 0 if it is none
	permits int64
	leaves  bool // the lease goes on when this process ends
	address *store.Address
	ttl     time.Duration
	timeout time.Duration // of the waiting; 0 waits for ever
	noWait  bool
	steal   bool          // from whoever has it
	busy    int           // the exit code if the lock was not acquired
	verbose bool          // say whom it waits for, terminal or not
	onLost  string        // term, kill or ignore
	grace   time.Duration // between TERM and KILL
	command []string
}

// Command is holdfast run, for that command.
func Command(command []string) *cli.Command {
	return &cli.Command{
		Name:            "run",
		Usage:           "run a command under a lock",
		UsageText:       "holdfast run --lock NAME [options] -- COMMAND [ARGUMENT...]\nholdfast run --lock NAME [options] -c 'SHELL COMMAND'",
		Description:     help,
		HideHelpCommand: true,
		OnUsageError:    flags.OnUsageError,
		// -sn, as with flock.
		UseShortOptionHandling: true,
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "lock", Usage: "`NAME` of the lock", Required: true, Local: true},
		}, lockFlags(10*time.Second), []cli.Flag{
			&cli.BoolFlag{Name: "steal", Usage: "take the lock from whoever has it, who may go on until it hears of that: as holdfast unlock does, but with nobody in between", Local: true},
			&cli.StringFlag{Name: "command", Aliases: []string{"c"}, Usage: "run `COMMAND` by sh -c, instead of one after --", Local: true},
			&cli.BoolFlag{Name: "verbose", Usage: "say whom it waits for even if standard error is no terminal", Local: true},
			&cli.StringFlag{Name: "on-lost", Value: "term", Usage: "`WHAT` a command gets whose lease was lost: term, kill or ignore", Local: true, Validator: flags.OneOf(OnLostWays...)},
			&flags.Time{Name: "grace", Value: 5 * time.Second, Usage: "`TIME` between TERM and KILL when the lease is lost", Local: true, Validator: flags.NotNegative},
		}, store.Flags()),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			g := guardOf(cmd, cmd.String("lock"))
			g.steal = cmd.Bool("steal")
			g.verbose, g.onLost, g.grace, g.command = cmd.Bool("verbose"), cmd.String("on-lost"), cmd.Duration("grace"), command
			switch line := cmd.String("command"); {
			case line != "" && command != nil:
				return exit.WrongUsage(errors.New("-c and a command after -- exclude each other"))
			case line != "":
				g.command = []string{"sh", "-c", line}
			}
			if cmd.Args().Present() || len(g.command) == 0 {
				return exit.WrongUsage(errors.New(`put the command after "--": holdfast run --lock NAME -- COMMAND`))
			}
			if err := g.check(cmd); err != nil {
				return exit.WrongUsage(err)
			}
			return g.run(ctx)
		},
	}
}

// lockFlags say which lock to take, and how long to wait for it.
func lockFlags(ttl time.Duration) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "kind", Usage: "`KIND` of lock: " + strings.Join(flags.Kinds, ", ") + " (default: rwmutex, or semaphore with --limit)", Local: true, HideDefault: true, Validator: flags.OneOf(flags.Kinds...)},
		&cli.BoolFlag{Name: "shared", Aliases: []string{"s"}, Usage: "have it together with others that are --shared", Local: true},
		&cli.BoolFlag{Name: "exclusive", Aliases: []string{"x", "e"}, Usage: "have it alone, which is the default", Local: true},
		&cli.Int64Flag{Name: "limit", Usage: "at most `NUMBER` at a time: the permits of a semaphore", Local: true, HideDefault: true, Validator: flags.Between[int64](1, driver.MaxLimit)},
		&cli.Int64Flag{Name: "permits", Value: 1, Usage: "`NUMBER` of permits to take, with --limit", Local: true, Validator: flags.Between[int64](1, driver.MaxLimit)},
		&flags.Time{Name: "ttl", Value: ttl, Usage: "`TIME` after which the lock of a dead holder is free", Local: true, Validator: isTTL},
		&flags.Time{Name: "timeout", Aliases: []string{"w", "wait"}, Usage: "longest `TIME` to wait for the lock, such as 5 (seconds) or 2m; 0 waits for ever; the end takes a few seconds more if the store does not answer", Local: true, Validator: flags.NotNegative},
		&cli.BoolFlag{Name: "no-wait", Aliases: []string{"n"}, Usage: "fail at once instead of waiting", Local: true},
		&cli.IntFlag{Name: "conflict-exit-code", Aliases: []string{"E"}, Value: exit.NotAcquired, Usage: "exit `CODE` if the lock was not acquired", Local: true, Validator: flags.Between(0, 255)},
		&cli.StringFlag{Name: "holder", Usage: "`TEXT` that others see while this one holds or waits (default: host and process)", Local: true, HideDefault: true, Validator: isHolder},
	}
}

// guardOf returns what the flags of cmd say of the lock of that name.
func guardOf(cmd *cli.Command, lock string) *guard {
	return &guard{
		lock:    lock,
		kind:    cmd.String("kind"),
		holder:  cmd.String("holder"),
		shared:  cmd.Bool("shared"),
		limit:   cmd.Int64("limit"),
		permits: cmd.Int64("permits"),
		address: store.AddressOf(cmd),
		ttl:     cmd.Duration("ttl"),
		timeout: cmd.Duration("timeout"),
		noWait:  cmd.Bool("no-wait"),
		busy:    cmd.Int("conflict-exit-code"),
	}
}

// Split parts a command line of holdfast run at its first "--". The rest belongs to another
// program and must reach it byte for byte. So package cli does not get to see the rest: it
// would take away a second "--".
func Split(args []string) (own, command []string) {
	if i := slices.Index(args, "--"); i > 1 && args[1] == "run" {
		return args[:i], args[i+1:]
	}
	return args, nil
}

// check looks for flags that do not go together.
func (g *guard) check(cmd *cli.Command) error {
	switch {
	case g.noWait && g.timeout > 0:
		return errors.New("--no-wait and --timeout exclude each other")
	case g.steal && (g.shared || g.limit > 0):
		return errors.New("--steal takes the whole lock, so it has neither --shared nor --limit")
	case g.shared && cmd.Bool("exclusive"):
		return errors.New("--shared and --exclusive exclude each other")
	case g.kind == "mutex" && g.shared:
		return errors.New("a --kind mutex cannot be --shared, an rwmutex can")
	case g.kind != "" && g.kind != "semaphore" && g.limit > 0:
		return fmt.Errorf("a --kind %s has no --limit, a semaphore has", g.kind)
	case g.kind == "semaphore" && g.limit == 0:
		return errors.New("a --kind semaphore needs a --limit")
	case g.limit > 0 && (g.shared || cmd.Bool("exclusive")):
		return errors.New("with --limit the permits decide how many run")
	case g.limit == 0 && cmd.IsSet("permits"):
		return errors.New("--permits needs a --limit")
	case g.limit > 0 && g.permits > g.limit:
		return fmt.Errorf("--permits %d is more than --limit %d", g.permits, g.limit)
	}
	return nil
}

// isHolder says what is wrong with the text about a holder, which the library refuses with a panic.
func isHolder(s string) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = errors.New(strings.TrimPrefix(fmt.Sprint(reason), "holdfast: "))
		}
	}()
	holdfast.WithHolder(s)
	return nil
}

func isTTL(d time.Duration) error {
	if d < driver.MinTTL || d > driver.MaxTTL {
		return fmt.Errorf("must be %v to %v", driver.MinTTL, driver.MaxTTL)
	}
	return nil
}
