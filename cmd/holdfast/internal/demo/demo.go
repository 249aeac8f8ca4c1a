// Package demo is holdfast demo: processes that contend for a lock, and a picture of them.
package demo

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	crypto "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
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
	kind            *kind
	limit           int64 // see kind
	lock            string
	address         *store.Address // of the store, for the workers
	server          string         // the same for people, without its password
	own             bool           // the store is the embedded Redis
	duration        time.Duration
	workers         int
	unlocked, fault bool

	crew      []*member
	told      chan turn
	start     int64 // see clock
	ending    bool  // the workers were asked to end
	handovers []time.Duration
	victim    int // the worker that is killed while it has the lock
}

// member is a worker process, as its parent knows it.
type member struct {
	pid   int
	cmd   *exec.Cmd
	stdin io.WriteCloser
	said  bytes.Buffer // on its standard error. Shown at once it would tear the picture.
	turns []turn       // the last one may be under way
	ended int64        // when the process ended, unless it was asked to
}

// Command is holdfast demo, or a program of its own.
func Command() *cli.Command {
	d := &demo{}
	all := store.Flags()
	url := all[0].(*cli.StringFlag) // a demo has a store of its own unless the command line says otherwise
	url.Value, url.Sources = "", cli.ValueSourceChain{}
	url.Usage = "`URL` of a store, such as " + store.Default + " (default: an embedded Redis)"
	return &cli.Command{
		Name:            "demo",
		Usage:           "watch processes contend for a lock",
		Description:     help,
		HideHelpCommand: true,
		OnUsageError:    flags.OnUsageError,
		ArgValidator:    flags.NoArguments,
		Commands:        []*cli.Command{{Name: "worker", Hidden: true, Action: work}},
		Action:          d.run,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "kind", Value: "mutex", Usage: "`KIND` of lock: " + strings.Join(flags.Kinds, ", "), Local: true, Validator: flags.OneOf(flags.Kinds...)},
			&cli.Int64Flag{Name: "limit", Destination: &d.limit, Usage: "`NUMBER` of permits of the semaphore, 1 to 9 (default: half of the processes, and 1)", Local: true, Validator: flags.Between[int64](1, maxPermits), HideDefault: true},
			&flags.Time{Name: "duration", Destination: &d.duration, Value: 5 * time.Second, Usage: "`TIME` until it ends", Local: true, Validator: flags.Positive},
			&cli.BoolFlag{Name: "fault", Destination: &d.fault, Usage: "kill a process in the middle, while it holds the lock", Local: true},
			&cli.IntFlag{Name: "workers", Destination: &d.workers, Value: 4, Usage: "`NUMBER` of processes, 1 to 32", Local: true, Validator: flags.Between(1, maxWorkers)},
			&cli.StringFlag{Name: "name", Destination: &d.lock, Usage: "`NAME` of the lock (default: a new one)", Local: true},
			&cli.BoolFlag{Name: "no-lock", Destination: &d.unlocked, Hidden: true, Usage: "let everybody in, to see violations", Local: true},
		}, all...),
	}
}

func (d *demo) run(ctx context.Context, cmd *cli.Command) error {
	d.kind, d.address = kindNamed(cmd.String("kind")), store.AddressOf(cmd)
	if d.limit != 0 && d.kind != semaphore {
		return exit.WrongUsage(errors.New("only a --kind semaphore has a --limit"))
	}
	d.limit = cmp.Or(d.limit, map[*kind]int64{mutex: 1, rwmutex: alone, semaphore: min(int64(d.workers)/2+1, maxPermits)}[d.kind])
	d.lock = cmp.Or(d.lock, "demo-"+strings.ToLower(crypto.Text()[:6]))
	if d.fault && !cmd.IsSet("duration") {
		d.duration = 4 * workerTTL
	}
	if d.fault && (d.workers < 2 || d.duration < 2*workerTTL) {
		return exit.WrongUsage(fmt.Errorf("--fault needs 2 --workers and a --duration of %v, or more", 2*workerTTL))
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends us at once
	closeStore, err := d.openStore(ctx)
	if err != nil {
		return err
	}
	defer closeStore()
	counter, err := os.CreateTemp("", "holdfast-demo-")
	if err != nil {
		return exit.With(exit.Failure, err)
	}
	defer func() { _, _ = counter.Close(), os.Remove(counter.Name()) }()
	program, err := os.Executable()
	cmds := make([]*exec.Cmd, d.workers)
	for i := range cmds {
		cmds[i] = exec.Command(program, append(strings.Fields(cmd.FullName())[1:], "worker")...)
	}
	if err := errors.Join(err, counter.Truncate(8)); err != nil {
		return exit.With(exit.Failure, err)
	}
	if err := d.hire(cmds); err != nil {
		return exit.With(exit.Failure, err)
	}
	for i, m := range d.crew { // one that is gone does not hear it, and need not
		_ = json.NewEncoder(m.stdin).Encode(job{i + 1, d.kind.name, d.limit, d.lock, counter.Name(), d.unlocked, d.address})
	}
	v := newView(d)
	took := d.watch(ctx, v)
	count, err := readCounter(counter)
	if err != nil {
		return exit.With(exit.Failure, err)
	}
	err = v.end(took, int(count), ctx.Err() != nil)
	for i, m := range d.crew {
		if said := m.said.Bytes(); d.victim != i+1 { // that one ended as it was meant to
			for line := range strings.Lines(string(said[:min(len(said), 2000)])) {
				fmt.Fprintf(os.Stderr, "process %d: %s\n", i+1, strings.TrimSuffix(line, "\n"))
			}
		}
	}
	if err == nil {
		fmt.Print(d.next())
	}
	return err
}

// openStore starts the embedded Redis, or asks the given store whether it is there. The workers
// have connections of their own.
func (d *demo) openStore(ctx context.Context) (closeStore func(), err error) {
	closeStore = func() {}
	if d.own = d.address.URL == ""; d.own {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		if err := m.Start(); err != nil {
			return nil, exit.With(exit.Failure, fmt.Errorf("embedded Redis: %w", err))
		}
		d.address = &store.Address{URL: "redis://" + m.Addr(), Prefix: d.address.Prefix}
		closeStore = m.Close
	}
	s, err := d.address.Open(ctx)
	if err == nil {
		defer s.Close()
		d.server, err = s.Name, s.CanLock()
	}
	if d.own && err == nil {
		// It compiles a script when it first sees it. That takes 20 ms of a processor, so a second where
		// many share it, and nobody shall wait for it while the demo measures. So another lock is used once.
		d.server = "embedded Redis, " + strings.TrimPrefix(d.address.URL, "redis://")
		locks := holdfast.Open(s.Driver)
		defer func() { _ = locks.Close() }()
		var lease *holdfast.Lease
		if lease, err = d.kind.open(locks, d.lock+":practice", d.limit)(ctx, 1); err == nil {
			err = lease.Release(ctx)
		}
		if err != nil {
			err = exit.With(exit.Failure, fmt.Errorf("embedded Redis: %w", err))
		}
	}
	if err != nil {
		closeStore()
	}
	return closeStore, err
}

// hire starts the workers. When all of them have ended and all is told, it closes d.told.
func (d *demo) hire(cmds []*exec.Cmd) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	d.told = make(chan turn, 64)
	var running sync.WaitGroup
	for i, cmd := range cmds {
		m := &member{cmd: cmd}
		cmd.Stdout, cmd.Stderr = w, &m.said
		if m.stdin, err = cmd.StdinPipe(); err == nil {
			err = cmd.Start()
		}
		if err != nil {
			break
		}
		m.pid = cmd.Process.Pid
		d.crew = append(d.crew, m)
		running.Go(func() {
			if err := cmd.Wait(); err != nil {
				fmt.Fprintln(&m.said, err)
			}
			// By the pipe, so that it comes after all that the worker has told. The parent may see the
			// end of a process before the last lines of it. The first byte ends half a line.
			line, _ := json.Marshal(turn{Worker: i + 1, End: gone, Done: clock.Now()})
			_, _ = fmt.Fprintf(w, "\n%s\n", line)
		})
	}
	go func() {
		running.Wait()
		_ = w.Close() // and with it r ends
	}()
	go func() {
		defer close(d.told)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			var t turn
			// A worker that panics may write half a line; it is missed elsewhere.
			if json.Unmarshal(lines.Bytes(), &t) == nil && t.Worker >= 1 && t.Worker <= len(cmds) {
				d.told <- t
			}
		}
		_ = r.Close()
		running.Wait() // so what they said may be read
	}()
	if err != nil {
		d.killAll()
		for range d.told {
		}
		return fmt.Errorf("cannot start a worker: %w", err)
	}
	return nil
}

func (d *demo) killAll() {
	for _, m := range d.crew {
		_ = m.cmd.Process.Kill()
	}
}

// watch follows the workers until the time is over or ctx ends, and then until
// they have finished. It returns how long it took.
func (d *demo) watch(ctx context.Context, v *view) (took time.Duration) {
	for range d.crew { // until all of them are ready, or gone, so that none has a start
		select {
		case t := <-d.told:
			d.hear(t)
		case <-ctx.Done():
		}
	}
	ctx, cancel := context.WithTimeout(ctx, d.duration)
	defer cancel()
	d.start = clock.Now()
	for _, m := range d.crew {
		_, _ = m.stdin.Write([]byte("\n"))
	}
	v.begin()
	tick := time.NewTicker(v.every())
	defer tick.Stop()
	var strike <-chan time.Time
	if d.fault {
		strike = time.After(d.duration / 3)
	}
	over, draw := ctx.Done(), tick.C
	for {
		select {
		case t, ok := <-d.told:
			if !ok {
				return cmp.Or(took, time.Duration(clock.Now()-d.start)) // they may have ended by themselves
			}
			d.hear(t)
			if t.End == doomed {
				_ = d.crew[t.Worker-1].cmd.Process.Kill()
			}
		case <-strike:
			_, _ = d.crew[rand.N(d.workers)].stdin.Write([]byte("\n"))
		case <-draw:
			v.show(clock.Now())
		case <-over:
			over, draw, strike, d.ending = nil, nil, nil, true
			took = time.Duration(clock.Now() - d.start)
			v.close() // a second Ctrl-C would leave no time for it
			for _, m := range d.crew {
				_ = m.stdin.Close()
			}
			defer time.AfterFunc(workerTTL+3*time.Second, d.killAll).Stop() // those that have not finished
		}
	}
}

// next says what else there is to see.
func (d *demo) next() (text string) {
	try := func(flag, what string) {
		text += fmt.Sprintf("%-7s %-33s %s\n", map[bool]string{true: " next:"}[text == ""], flag, what)
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
	return text
}
