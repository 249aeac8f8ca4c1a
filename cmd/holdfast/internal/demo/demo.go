// Package demo is holdfast demo: processes that contend for a lock, and a picture of them.
package demo

import (
	"context"
	crypto "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/urfave/cli/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/flags"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
)

const help = `Starts processes that contend for one lock and shows who holds it and who
waits.

  mutex      One process holds it at a time, and adds 1 to a counter in a
             file in a way that needs a lock: it reads, takes its time, and
             writes.
  rwmutex    Most turns are for reading, and any number of them go together.
             They read the counter twice, with a pause. Every fifth or so is
             for writing, as above, and alone.
  semaphore  There are --limit permits. Most turns take one, some take more.

At the end stands what was measured, and the number of violations: turns that
overlap in time though they must not, or that have more permits together than
there are; fencing tokens that did not increase; increments that were lost;
readers that saw the counter change. None of that is asked of the lock
library. With any of them, the exit code is 70.

Without --store the demo has a small Redis of its own (miniredis). On a real
one its keys vanish by themselves a minute after the end.

With --fault a process is killed (by KILL) in the middle, while it holds the
lock; of an rwmutex one that writes. The others go on when its lease has run
out, after 2 s. Such a demo takes 8 s, unless --duration says otherwise.

Examples:
   holdfast demo --kind rwmutex --workers 8
   holdfast demo --fault`

// maxWorkers is how many processes a demo has at most, so that they fit a screen.
const maxWorkers = 32

// demo is one run of holdfast demo.
type demo struct {
	self     []string // the words that lead to this demo in the command line of its program
	kind     *kind
	limit    int64 // see kind
	lock     string
	address  *store.Address // of the store, for the workers
	server   string         // the same for people, without its password
	duration time.Duration
	workers  int
	unlocked bool
	fault    bool // kill a holder
	own      bool // the store is the embedded Redis
}

// Command is holdfast demo, or a program of its own.
func Command() *cli.Command {
	return &cli.Command{
		Name:            "demo",
		Usage:           "watch processes contend for a lock",
		Description:     help,
		HideHelpCommand: true,
		OnUsageError:    flags.OnUsageError,
		ArgValidator:    flags.NoArguments,
		Commands:        []*cli.Command{workerCommand()},
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "kind", Value: "mutex", Usage: "`KIND` of lock: " + strings.Join(flags.Kinds, ", "), Local: true, Validator: flags.OneOf(flags.Kinds...)},
			&cli.Int64Flag{Name: "limit", Usage: "`NUMBER` of permits of the semaphore, 1 to 9 (default: half of the processes, and 1)", Local: true, Validator: flags.Between[int64](1, maxPermits), HideDefault: true},
			&flags.Time{Name: "duration", Value: 5 * time.Second, Usage: "`TIME` until it ends", Local: true, Validator: flags.Positive},
			&cli.BoolFlag{Name: "fault", Usage: "kill a process in the middle, while it holds the lock", Local: true},
			&cli.IntFlag{Name: "workers", Value: 4, Usage: "`NUMBER` of processes, 1 to 32", Local: true, Validator: flags.Between(1, maxWorkers)},
			&cli.StringFlag{Name: "name", Usage: "`NAME` of the lock (default: a new one)", Local: true},
			&cli.BoolFlag{Name: "no-lock", Hidden: true, Usage: "let everybody in, to see violations", Local: true},
		}, storeFlags()...),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			d := &demo{
				self:     strings.Fields(cmd.FullName())[1:],
				kind:     kindNamed(cmd.String("kind")),
				limit:    cmd.Int64("limit"),
				lock:     cmd.String("name"),
				address:  store.AddressOf(cmd),
				duration: cmd.Duration("duration"),
				workers:  cmd.Int("workers"),
				unlocked: cmd.Bool("no-lock"),
				fault:    cmd.Bool("fault"),
			}
			if d.lock == "" {
				d.lock = "demo-" + strings.ToLower(crypto.Text()[:6])
			}
			if d.limit == 0 {
				d.limit = d.kind.limit(d.workers)
			} else if d.kind.name != "semaphore" {
				return exit.WrongUsage(errors.New("only a --kind semaphore has a --limit"))
			}
			if d.fault && !cmd.IsSet("duration") {
				d.duration = 4 * workerTTL
			}
			if d.fault && (d.workers < 2 || d.duration < 2*workerTTL) {
				return exit.WrongUsage(fmt.Errorf("--fault needs 2 --workers and a --duration of %v, or more", 2*workerTTL))
			}
			return d.run(ctx)
		},
	}
}

// storeFlags are those of all commands, but a demo has a store of its own unless the
// command line says otherwise.
func storeFlags() []cli.Flag {
	all := store.Flags()
	url := all[0].(*cli.StringFlag)
	url.Value, url.Sources = "", cli.ValueSourceChain{}
	url.Usage = "`URL` of a store, such as " + store.Default + " (default: an embedded Redis)"
	return all
}

func (d *demo) run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends us at once

	closeStore, err := d.openStore(ctx)
	if err != nil {
		return err
	}
	defer closeStore()
	dir, err := os.MkdirTemp("", "holdfast-demo-")
	if err != nil {
		return exit.With(exit.Failure, err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	counter := filepath.Join(dir, "counter")
	if err := os.WriteFile(counter, make([]byte, 8), 0o600); err != nil {
		return exit.With(exit.Failure, err)
	}

	commands, err := d.commands(counter)
	if err != nil {
		return exit.With(exit.Failure, err)
	}
	c, err := hire(commands)
	if err != nil {
		return exit.With(exit.Failure, err)
	}
	l, took := d.watch(ctx, c)
	count, err := readCounter(counter)
	if err != nil {
		return exit.With(exit.Failure, err)
	}
	s := newSummary(d, l, count)
	s.took, s.cut = took, ctx.Err() != nil
	fmt.Print(s)
	c.printNotes(os.Stderr, l.fault)
	err = s.failure()
	if err == nil {
		fmt.Print(d.next())
	}
	return err
}

// openStore starts the embedded Redis, or asks the given store whether it is there.
func (d *demo) openStore(ctx context.Context) (closeStore func(), err error) {
	if d.address.URL == "" {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		if err := m.Start(); err != nil {
			return nil, exit.With(exit.Failure, fmt.Errorf("embedded Redis: %w", err))
		}
		d.address = &store.Address{URL: "redis://" + m.Addr(), Prefix: d.address.Prefix}
		d.server, d.own = "embedded Redis, "+m.Addr(), true
		if err := d.practise(ctx); err != nil {
			m.Close()
			return nil, exit.With(exit.Failure, fmt.Errorf("embedded Redis: %w", err))
		}
		return m.Close, nil
	}
	s, err := d.address.Open(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.CanLock(); err != nil {
		s.Close()
		return nil, err
	}
	d.server = s.Name
	// The workers have connections of their own; this one has served its purpose.
	s.Close()
	return func() {}, nil
}

// practise uses another lock once, as the embedded Redis compiles a script when it first sees it. That
// takes 20 ms of a processor, so a second where many share it, and keeps everybody waiting. Nobody
// shall have to wait for it while the demo measures.
func (d *demo) practise(ctx context.Context) error {
	s, err := d.address.Open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	locks := holdfast.Open(s.Driver)
	defer func() { _ = locks.Close() }()
	lease, err := d.kind.open(locks, d.lock+":practice", d.limit)(ctx, 1)
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}

// watch follows the workers until the time is over or ctx ends, and then until
// they have finished. It returns what happened and how long it took.
func (d *demo) watch(ctx context.Context, c *crew) (l *ledger, took time.Duration) {
	l = newLedger(d.workers, d.limit)
	for i, cmd := range c.cmds {
		l.members[i].pid = cmd.Process.Pid
	}
	c.assemble(ctx, l)
	start := clock.Now()
	c.begin()
	v := newView(d, start)
	defer v.close()
	tick := time.NewTicker(v.every())
	defer tick.Stop()
	over := time.NewTimer(d.duration)
	defer over.Stop()

	var strike <-chan time.Time
	if d.fault {
		strike = time.After(d.duration / 3)
	}

	finish, interrupted, draw := over.C, ctx.Done(), tick.C
	dismiss := func() {
		finish, interrupted, draw, strike = nil, nil, nil, nil
		took = time.Duration(clock.Now() - start)
		v.close() // a second Ctrl-C would leave no time for it
		c.dismiss()
	}
	for {
		select {
		case e, ok := <-c.events:
			if !ok {
				if took == 0 { // they all ended by themselves
					took = time.Duration(clock.Now() - start)
				}
				v.show(l, clock.Now())
				return l, took
			}
			if e.What == gone && finish == nil {
				e.What = left
			}
			l.apply(e)
			if e.What == doomed {
				c.kill(e.Worker)
			}
		case <-strike:
			c.doom(1 + rand.N(d.workers))
		case <-draw:
			v.show(l, clock.Now())
		case <-finish:
			dismiss()
		case <-interrupted:
			dismiss()
		}
	}
}

// next says what else there is to see.
func (d *demo) next() string {
	var b strings.Builder
	before := " next:"
	try := func(flag, what string) {
		fmt.Fprintf(&b, "%-7s %-33s %s\n", before, flag, what)
		before = ""
	}
	if !d.fault {
		try("--fault", "kill a process that holds the lock")
	}
	for _, k := range kinds {
		if k != d.kind {
			try("--kind "+k.name, k.next)
		}
	}
	if d.own {
		try("--store "+store.Default, "the same on a Redis of yours")
	}
	return b.String()
}

func readCounter(name string) (int, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	return int(binary.BigEndian.Uint64(b)), nil
}
