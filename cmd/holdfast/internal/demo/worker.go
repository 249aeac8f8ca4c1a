package demo

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
)

// How long a worker holds the lock, and how long it does something else.
const (
	minHold = 5 * time.Millisecond
	maxHold = 40 * time.Millisecond
	maxRest = 30 * time.Millisecond
)

// workerTTL is short so that the others soon go on after a worker was killed.
const workerTTL = 2 * time.Second

// worker is one of the processes that contend for the lock of a demo.
type worker struct {
	id      int
	kind    *kind
	limit   int64
	weight  int64 // of the turn under way
	doomed  atomic.Bool
	enter   func(context.Context) (permit, error)
	counter *os.File
	out     *json.Encoder
}

// permit is what a worker needs of a lease.
type permit interface {
	Context() context.Context
	Err() error
	Fence() int64
	Release(context.Context) error
}

func workerCommand() *cli.Command {
	return &cli.Command{
		Name:   "worker",
		Hidden: true,
		Flags: append([]cli.Flag{
			&cli.IntFlag{Name: "id"},
			&cli.StringFlag{Name: "kind"},
			&cli.Int64Flag{Name: "limit"},
			&cli.StringFlag{Name: "name"},
			&cli.StringFlag{Name: "counter"},
			&cli.BoolFlag{Name: "no-lock"},
		}, store.Flags()...), // which come from the environment
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := work(ctx, cmd); err != nil {
				return exit.With(exit.Failure, err)
			}
			return nil
		},
	}
}

func work(ctx context.Context, cmd *cli.Command) error {
	// Ctrl-C reaches all processes of the terminal; the parent decides what it means.
	signal.Ignore(os.Interrupt)
	s, err := store.AddressOf(cmd).Open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	locks := holdfast.Open(s.Driver, holdfast.WithTTL(workerTTL), holdfast.WithLogger(store.Logger()))
	defer func() { _ = locks.Close() }()

	counter, err := os.OpenFile(cmd.String("counter"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = counter.Close() }()

	w := &worker{
		id:      cmd.Int("id"),
		kind:    kindNamed(cmd.String("kind")),
		limit:   cmd.Int64("limit"),
		counter: counter,
		out:     json.NewEncoder(os.Stdout),
	}
	enter := w.kind.open(locks, cmd.String("name"), w.limit)
	w.enter = func(ctx context.Context) (permit, error) { return enter(ctx, w.weight) }
	if cmd.Bool("no-lock") {
		w.enter = func(ctx context.Context) (permit, error) { return noLock{ctx}, nil }
	}
	return w.run(ctx, os.Stdin)
}

// run takes turns from the first byte on standard input until its end. So the
// workers also end if the parent is killed. A second byte dooms it.
func (w *worker) run(ctx context.Context, stdin io.Reader) error {
	if err := w.tell(ready, 0); err != nil {
		return err
	}
	if _, err := stdin.Read(make([]byte, 1)); err != nil {
		return nil // the demo was over before it began
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		if _, err := stdin.Read(make([]byte, 1)); err != nil {
			return
		}
		w.doomed.Store(true)
		_, _ = io.Copy(io.Discard, stdin)
	}()
	for {
		clock.Pause(ctx, rand.N(maxRest))
		if ctx.Err() != nil {
			return nil
		}
		if err := w.turn(ctx); err != nil {
			return err
		}
	}
}

func (w *worker) turn(ctx context.Context) error {
	last := w.doomed.Load()
	w.weight = w.kind.pick(w.limit)
	for last && !w.kind.exclusive(w.weight) {
		w.weight = w.kind.pick(w.limit)
	}
	if err := w.tell(requested, 0); err != nil {
		return err
	}
	p, err := w.enter(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if err := w.tell(acquired, p.Fence()); err != nil {
		return err
	}
	if last {
		if err := w.tell(doomed, 0); err != nil {
			return err
		}
		clock.Pause(ctx, time.Hour) // until the end of us, or of the demo
	}
	outcome, err := w.use(p)
	if err != nil {
		return err
	}
	if err := w.tell(outcome, p.Fence()); err != nil {
		return err
	}
	// A turn under way is finished when the demo ends: its release, too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), workerTTL)
	defer cancel()
	if err := p.Release(ctx); err != nil && outcome != lost {
		fmt.Fprintln(os.Stderr, "release:", err)
	}
	return nil
}

// use does with the counter what needs a lock. A reader reads it twice, with a pause
// between. A writer writes 1 more than it has read. If the lease is lost meanwhile, use
// leaves the counter alone, and what it has read says nothing.
func (w *worker) use(p permit) (what, error) {
	before, err := w.read()
	if err != nil {
		return "", err
	}
	clock.Pause(p.Context(), minHold+rand.N(maxHold-minHold))
	after, err := w.read()
	if err != nil {
		return "", err
	}
	access := w.kind.role(w.weight).access
	switch {
	case p.Err() != nil:
		return lost, nil
	case access == reads && before != after:
		return torn, nil
	case access == writes:
		_, err = w.counter.WriteAt(binary.BigEndian.AppendUint64(nil, before+1), 0)
	}
	return released, err
}

func (w *worker) read() (uint64, error) {
	var buf [8]byte
	_, err := w.counter.ReadAt(buf[:], 0)
	return binary.BigEndian.Uint64(buf[:]), err
}

func (w *worker) tell(what what, fence int64) error {
	return w.out.Encode(event{Worker: w.id, What: what, At: clock.Now(), Fence: fence, Weight: w.weight})
}

// noLock lets everybody in, so that one can see the demo find violations.
type noLock struct{ ctx context.Context }

func (n noLock) Context() context.Context    { return context.WithoutCancel(n.ctx) }
func (noLock) Err() error                    { return nil }
func (noLock) Fence() int64                  { return 0 }
func (noLock) Release(context.Context) error { return nil }
