package demo

import (
	"bufio"
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
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

const (
	minHold   = 5 * time.Millisecond // of the lock
	maxHold   = 40 * time.Millisecond
	maxRest   = 30 * time.Millisecond // between turns
	workerTTL = 2 * time.Second       // short so that the others soon go on after a worker was killed
)

// job is the first line on the standard input of a worker. In a command line ps would show
// the address to everybody.
type job struct {
	ID            int // from 1 on
	Kind          string
	Limit         int64
	Lock, Counter string // the name of the lock, and of the file
	Unlocked      bool
	Address       *store.Address
}

type worker struct {
	job
	kind    *kind
	doomed  atomic.Bool
	enter   func(ctx context.Context, weight int64) (*holdfast.Lease, error)
	counter *os.File
}

func work(ctx context.Context, _ *cli.Command) error {
	// Ctrl-C reaches all processes of the terminal; the parent decides what it means.
	signal.Ignore(os.Interrupt)
	stdin := bufio.NewReader(os.Stdin)
	line, err := stdin.ReadBytes('\n')
	if err != nil {
		return err
	}
	w := &worker{}
	if err := json.Unmarshal(line, &w.job); err != nil {
		return err
	}
	s, err := w.Address.Open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if w.Unlocked {
		s.Driver = memdriver.New() // of this process alone, so the lock keeps nobody out
	}
	locks := holdfast.Open(s.Driver, holdfast.WithTTL(workerTTL), holdfast.WithLogger(store.Logger()))
	defer func() { _ = locks.Close() }()
	if w.counter, err = os.OpenFile(w.Counter, os.O_RDWR, 0); err != nil {
		return err
	}
	defer func() { _ = w.counter.Close() }()
	w.kind = kindNamed(w.Kind)
	w.enter = w.kind.open(locks, w.Lock, w.Limit)
	return w.run(ctx, stdin)
}

// run takes turns from the next byte on standard input until its end. So the
// workers also end if the parent is killed. A second byte dooms it.
func (w *worker) run(ctx context.Context, stdin *bufio.Reader) error {
	w.tell(turn{Worker: w.ID})
	if _, err := stdin.ReadByte(); err != nil {
		return nil // the demo was over before it began
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		if _, err := stdin.ReadByte(); err == nil {
			w.doomed.Store(true)
			_, _ = io.Copy(io.Discard, stdin)
		}
	}()
	for {
		clock.Pause(ctx, rand.N(maxRest))
		if ctx.Err() != nil {
			return nil
		}
		if err := w.turn(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

func (w *worker) turn(ctx context.Context) error {
	t := turn{Worker: w.ID, Weight: w.kind.pick(w.Limit)}
	last := w.doomed.Load()
	if last && w.kind != semaphore {
		t.Weight = w.Limit // others shall wait for it
	}
	t.Asked = clock.Now()
	w.tell(t)
	lease, err := w.enter(ctx, t.Weight)
	if err != nil {
		return err
	}
	t.Held, t.Fence = clock.Now(), lease.Fence()
	if last {
		t.End = doomed
	}
	w.tell(t)
	if last {
		clock.Pause(ctx, time.Hour) // until the end of us, or of the demo
	}
	if t.End, err = w.use(lease, w.kind.role(t.Weight).writes); err != nil {
		return err
	}
	t.Done = clock.Now()
	w.tell(t)
	// A turn under way is finished when the demo ends: its release, too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), workerTTL)
	defer cancel()
	if err := lease.Release(ctx); err != nil && t.End != lost {
		fmt.Fprintln(os.Stderr, "release:", err)
	}
	return nil
}

// use reads the counter twice, with a pause between. A turn that writes then writes 1 more than
// it has read. If the lease is lost meanwhile, what was read says nothing, and nothing is written.
func (w *worker) use(lease *holdfast.Lease, writes bool) (end, error) {
	before, err := readCounter(w.counter)
	if err != nil {
		return "", err
	}
	clock.Pause(lease.Context(), minHold+rand.N(maxHold-minHold))
	after, err := readCounter(w.counter)
	switch {
	case err != nil:
		return "", err
	case lease.Err() != nil:
		return lost, nil
	case writes:
		_, err = w.counter.WriteAt(binary.BigEndian.AppendUint64(nil, before+1), 0)
	case before != after:
		return torn, nil
	}
	return released, err
}

func readCounter(f *os.File) (uint64, error) {
	var buf [8]byte
	_, err := f.ReadAt(buf[:], 0)
	return binary.BigEndian.Uint64(buf[:]), err
}

// tell writes a turn as it is now. If nobody reads any more, that ends this process.
func (w *worker) tell(t turn) { _ = json.NewEncoder(os.Stdout).Encode(t) }
