// Command holdfast uses and shows locks of the holdfast library.
//
//	holdfast demo
//
// starts a Redis of its own and four processes that contend for one lock. It shows live who
// holds the lock and who waits, and checks that no two ever held it at once. With --kind
// rwmutex or --kind semaphore it shows those locks, with --fault what happens when a holder dies.
//
//	holdfast run --lock nightly -- ./report.sh --all
//
// runs a command while it holds a lock, as flock(1) does on one machine. On any number of
// machines that share a Redis, one copy runs at a time. With --shared readers run together,
// with --limit 5 five copies at a time, with --kind mutex none while a program in Go holds the Mutex
// of that name. The command sees the fencing token as
// HOLDFAST_FENCE. If the lease is lost, the command is ended. See holdfast run --help for
// the exit codes.
//
//	token=$(holdfast acquire deploy --ttl 10m --wait 5m)
//	HOLDFAST_TOKEN=$token holdfast renew
//	HOLDFAST_TOKEN=$token holdfast release
//	holdfast wait deploy
//
// are for scripts that take a lock in one step and give it back in another. A lease that nobody
// renews ends after its TTL.
//
//	holdfast ls
//	holdfast inspect nightly --watch
//	holdfast unlock nightly --force
//
// list the locks that are held, show who holds one and who waits for it, and take it away.
// On Redis the first one needs the right +scan, which locks do not need.
//
//	holdfast resize api --limit 32
//
// sets the limit of a semaphore that is in use.
//
//	holdfast doctor
//
// judges a store: whether locks work on it, how fast, and what could make them be lost.
//
//	holdfast migrate
//
// makes the schema of locks in a PostgreSQL.
//
// All commands use the store of --store, or of the environment variable HOLDFAST_STORE or
// REDIS_URL: a Redis server, a Sentinel group, a Cluster, PostgreSQL, etcd or ZooKeeper. With setnx+, getset+
// or redisson+ before the URL of a Redis they use the mutexes of other programs there. See
// holdfast --help for the URLs.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/urfave/cli/v3"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/completion"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/demo"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/doctor"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/flags"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/locks"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
	_ "github.com/holdfast-go/holdfast/cmd/holdfast/internal/store/etcd"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store/postgres"
	_ "github.com/holdfast-go/holdfast/cmd/holdfast/internal/store/zookeeper"
)

func main() { os.Exit(execute(os.Args)) }

// execute runs the command line args and returns the exit code.
func execute(args []string) int {
	if len(args) > 1 && args[1] == completion.Verb {
		completion.Answer(os.Stdout, root(nil), args[2:])
		return 0
	}
	if len(args) > 1 && args[1] == guard.WatchVerb {
		guard.Watch(args[2:])
		return 0
	}
	args, command := guard.Split(args)
	return exit.Report(root(command).Run(context.Background(), args))
}

// root has the verbs. command is what follows the -- of holdfast run.
func root(command []string) *cli.Command {
	return flags.Program(&cli.Command{
		Name:        "holdfast",
		Usage:       "locks among processes, on Redis, PostgreSQL, etcd or ZooKeeper",
		Version:     version(),
		Description: store.Help,
		// A wrong word would otherwise be taken for a help topic.
		Action: func(_ context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return exit.WrongUsage(fmt.Errorf("no command %q; see holdfast --help", cmd.Args().First()))
			}
			return cli.ShowRootCommandHelp(cmd)
		},
		Commands: []*cli.Command{
			demo.Command(), guard.Command(command), guard.Acquire(), guard.Renew(), guard.Release(), locks.Wait(), locks.List(), locks.Inspect(), locks.Resize(), locks.Unlock(), doctor.Command(), postgres.Migrate(), completion.Command(),
		},
	})
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
