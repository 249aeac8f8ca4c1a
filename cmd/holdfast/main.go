// Command holdfast uses and shows locks of the holdfast library.
//
//	holdfast demo
//
// starts a Redis of its own and four processes that contend for one lock. It shows live who
// holds the lock and who waits, and checks that no two ever held it at once. With --kind
// rwmutex or --kind semaphore it shows those locks.
//
//	holdfast run --lock nightly -- ./report.sh --all
//
// runs a command while it holds a lock, as flock(1) does on one machine. On any number of
// machines that share a Redis, one copy runs at a time. With --shared readers run together,
// with --limit 5 five copies at a time. The command sees the fencing token as
// HOLDFAST_FENCE. If the lease is lost, the command is ended. See holdfast run --help for
// the exit codes.
//
//	holdfast ls
//	holdfast inspect nightly --watch
//	holdfast unlock nightly --force
//
// list the locks that are held, show who holds one and who waits for it, and take it away.
// On Redis the first one needs the right +scan, which locks do not need.
//
//	holdfast doctor
//
// judges a store: whether locks work on it, how fast, and what could make them be lost.
//
// All commands use the store of --store, or of the environment variable HOLDFAST_STORE or
// REDIS_URL: a Redis server, a Sentinel group, a Cluster, PostgreSQL or etcd. With setnx+, getset+
// or redisson+ before the URL of a Redis they use the mutexes of other programs there. See
// holdfast --help for the URLs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"
)

func main() { os.Exit(execute(os.Args)) }

// execute runs the command line args and returns the exit code.
func execute(args []string) int {
	if len(args) > 1 && args[1] == completeCommand {
		complete(os.Stdout, args[2:])
		return 0
	}
	if len(args) > 1 && args[1] == watchCommand {
		watch(args[2:])
		return 0
	}
	args, command := split(args)
	return report(root(command).Run(context.Background(), args))
}

// split parts a command line of holdfast run at its first "--". The rest belongs to another
// program and must reach it byte for byte. So package cli does not get to see the rest: it
// would take away a second "--".
func split(args []string) (own, command []string) {
	if i := slices.Index(args, "--"); i > 1 && args[1] == "run" {
		return args[:i], args[i+1:]
	}
	return args, nil
}

func root(command []string) *cli.Command {
	return &cli.Command{
		Name:        "holdfast",
		Usage:       "locks among processes, on Redis, PostgreSQL or etcd",
		Version:     version(),
		Description: storesHelp,
		// A wrong word would otherwise be taken for a help topic.
		Action: func(_ context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return usage(fmt.Errorf("no command %q; see holdfast --help", cmd.Args().First()))
			}
			return cli.ShowRootCommandHelp(cmd)
		},
		OnUsageError: onUsageError,
		// Package cli would end the process, with a code of its own.
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
		Commands: []*cli.Command{
			demoCommand(), runCommand(command), listCommand(), inspectCommand(), unlockCommand(), doctorCommand(), completionCommand(),
		},
	}
}

// Package cli writes all flags with one dash in some errors, and tells which function of Go
// found that a number is none.
var (
	oneDash   = regexp.MustCompile(`(for flag |not defined: )-([^-][^: ]+)`)
	parsing   = regexp.MustCompile(`strconv\.\w+: parsing ".*": `)
	onlyShort = regexp.MustCompile(`argument: (\w)$`)
)

func onUsageError(_ context.Context, cmd *cli.Command, err error, _ bool) error {
	text := oneDash.ReplaceAllString(err.Error(), "$1--$2")
	text = parsing.ReplaceAllString(text, "")
	text = onlyShort.ReplaceAllString(text, "argument: -$1")
	return usage(fmt.Errorf("%s; see %s --help", text, cmd.FullName()))
}

// noArguments refuses words that a command has no use for. Most often they are flags
// without dashes.
func noArguments(_ context.Context, cmd *cli.Command) error {
	if cmd.Args().Present() {
		return usage(fmt.Errorf("unexpected argument %q; see %s --help", cmd.Args().First(), cmd.FullName()))
	}
	return nil
}

func usage(err error) error { return &failure{exitUsage, err} }

// report prints err, if it has something to say, and returns its exit code.
func report(err error) int {
	if err == nil {
		return 0
	}
	f, ok := errors.AsType[*failure](err)
	if !ok {
		// All our own errors carry a code; what is left was found by package cli
		// while it read flags and environment.
		f = &failure{exitUsage, err}
	}
	if f.err != nil {
		say(f.err)
	}
	return f.code
}

// say prints err after the name of the program, with which the library's errors begin
// already. It is one line, whatever of the command line it repeats.
func say(err error) {
	fmt.Fprintln(os.Stderr, "holdfast:", visible(strings.TrimPrefix(err.Error(), "holdfast: ")))
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
