package local_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/local"
	"github.com/holdfast-go/holdfast/internal/session"
)

// troubled is a store with which much goes wrong, as a seed says.
type troubled struct {
	*memdriver.Driver
	slow   bool // answers take their time
	lossy  bool // some commands or their answers are lost
	forced bool // some locks are taken away just as they are granted
	deaf   bool // renewals fail for longer than a lease lasts, now and then

	mu  sync.Mutex
	rng *rand.Rand
}

// one reports whether one of n comes true.
func (s *troubled) one(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n) == 0
}

func (s *troubled) travel() {
	s.mu.Lock()
	d := time.Duration(s.rng.IntN(4)) * time.Millisecond
	s.mu.Unlock()
	if s.slow {
		time.Sleep(d)
	}
}

func (s *troubled) lost() bool { return s.lossy && s.one(16) }

func (s *troubled) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	s.travel()
	if s.lost() {
		return driver.Grant{}, driver.ErrTransient
	}
	own := *r
	own.Wake = func(g driver.Grant) {
		r.Wake(g)
		if g.Status == driver.Granted && s.forced && s.one(4) {
			r.Wake(driver.Grant{Status: driver.Lost}) // it was taken away at once
		}
	}
	g, err := s.Driver.Acquire(ctx, &own)
	if err == nil && g.Status == driver.Granted && s.forced && s.one(16) {
		_ = s.ForceRelease(ctx, r.Kind, r.Name)
	}
	s.travel()
	if s.lost() {
		return driver.Grant{}, driver.ErrTransient
	}
	return g, err
}

func (s *troubled) Renew(ctx context.Context, leases []driver.Lease) []error {
	if s.deaf && time.Now().UnixMilli()/100%3 == 0 {
		return slices.Repeat([]error{driver.ErrTransient}, len(leases))
	}
	return s.Driver.Renew(ctx, leases)
}

func (s *troubled) Release(ctx context.Context, l driver.Lease) error {
	s.travel()
	if s.lost() {
		return driver.ErrTransient
	}
	err := s.Driver.Release(ctx, l)
	s.travel()
	if s.lost() {
		return driver.ErrTransient
	}
	return err
}

// visit is the stay of a goroutine inside of a lock.
type visit struct {
	hold         *local.Hold
	shared, sync bool
	owner        string // whose holds do not keep each other out
	process      *process
}

// gate sees who is inside. Of those whose leases are not lost one writer or some readers are. Those of one
// process that return no lease keep each other out also if their leases are lost.
type gate struct {
	t       *testing.T
	mu      sync.Mutex
	inside  []*visit
	entries int
	lost    int
}

func (g *gate) enter(v *visit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.entries++
	good := v.hold.Err() == nil
	if !good {
		g.lost++
	}
	for _, o := range g.inside {
		if v.shared && o.shared || v.owner != "" && v.owner == o.owner {
			continue
		}
		if good && o.hold.Err() == nil {
			g.t.Errorf("FOUL: both have the lock: %+v beside %+v", v, o)
		}
		if v.sync && o.sync && v.owner+o.owner == "" && v.process == o.process {
			g.t.Errorf("one comes in before Unlock of the other: %+v beside %+v", v, o)
		}
	}
	g.inside = append(g.inside, v)
}

func (g *gate) leave(v *visit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside = slices.DeleteFunc(g.inside, func(o *visit) bool { return o == v })
}

var troubledID = local.ID{Kind: driver.RWMutex, Name: "x"}

// visits makes calls of all forms until it has made so many, or the process has ended.
func visits(rng *rand.Rand, p *process, in *gate, options []*local.Options, calls int) {
	var cached local.Cached
	for range calls {
		v := &visit{shared: rng.IntN(2) == 0, sync: rng.IntN(4) > 0, process: p}
		w := local.Want{Shared: v.shared, Wait: rng.IntN(4) > 0, Sync: v.sync, Options: options[rng.IntN(len(options))]}
		ctx, cancel := context.WithCancel(context.Background())
		if !w.Wait || rng.IntN(6) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(80))*time.Millisecond)
		}
		stay, pause := time.Duration(rng.IntN(4))*time.Millisecond, time.Duration(rng.IntN(6))*time.Millisecond
		if rng.IntN(6) == 0 {
			stay = time.Duration(rng.IntN(150)) * time.Millisecond
		}
		id := troubledID
		id.Owner = w.Options.Owner
		if v.shared {
			id.Owner = ""
		}
		if !w.Sync && rng.IntN(4) == 0 {
			w.MaxWaiters = 1
		}
		h, err := p.Acquire(ctx, id, &cached, &w)
		if err == nil {
			v.hold, v.owner = h, id.Owner
			in.enter(v)
			time.Sleep(stay)
			in.leave(v)
			if !w.Sync {
				err := h.Release(context.Background())
				if err != nil && !errors.Is(err, local.ErrLost) && !errors.Is(err, session.ErrClosed) {
					in.t.Errorf("a release: %v", err)
				}
			} else {
				parts, ok := p.TakeBack(id, &cached, v.shared, 1, nil)
				assert.True(in.t, ok, "there must be something to undo")
				if rng.IntN(3) == 0 {
					time.Sleep(time.Millisecond) // others come in between
				}
				for _, last := range parts {
					_ = last.Hold.ReleaseBriefly(context.Background())
				}
			}
		}
		cancel()
		if errors.Is(err, session.ErrClosed) {
			return
		}
		time.Sleep(pause)
	}
}

// However much goes wrong with the store, and if locks are taken away or clients closed in the middle of it: one
// writer or some readers are in at a time, a lost lease of Lock keeps others of its client out, nobody waits
// for ever, and nothing is left.
func TestEveryScheduleWithTroubles(t *testing.T) {
	quiet, entries := slog.New(slog.DiscardHandler), 0
	for seed := range *schedules {
		ok := t.Run("", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(uint64(seed), 3))
				some := func() bool { return rng.IntN(2) == 0 }
				store := &troubled{Driver: memdriver.New(), slow: some(), lossy: some(), forced: some(), deaf: some()}
				store.rng = rand.New(rand.NewPCG(uint64(seed), 4))
				linger := time.Duration(rng.IntN(2)*rng.IntN(20)) * time.Millisecond
				options := []*local.Options{
					{TTL: 60 * time.Millisecond, Logger: quiet, Linger: linger},
					{TTL: 60 * time.Millisecond, Logger: quiet, Linger: linger},
					{TTL: 120 * time.Millisecond, Logger: quiet},
					{TTL: 60 * time.Millisecond, Logger: quiet, Strict: true},
					{TTL: 60 * time.Millisecond, Logger: quiet, MaxHold: 20 * time.Millisecond},
					{TTL: 60 * time.Millisecond, Logger: quiet, MinHold: 5 * time.Millisecond},
					{TTL: 60 * time.Millisecond, Logger: quiet, Owner: "somebody"},
				}[:4+rng.IntN(4)]
				in := &gate{t: t}
				var processes []*process
				var wg sync.WaitGroup
				forcing, closing := some(), some()
				for range 1 + rng.IntN(3) {
					p := newProcess(t, store)
					processes = append(processes, p)
					for range 1 + rng.IntN(8) {
						own := rand.New(rand.NewPCG(rng.Uint64(), 5))
						wg.Go(func() { visits(own, p, in, options, 12) })
					}
				}
				at := time.Duration(rng.IntN(300)) * time.Millisecond
				if closing {
					wg.Go(func() { time.Sleep(at); processes[0].Close() })
				}
				done := make(chan struct{})
				if forcing {
					own := rand.New(rand.NewPCG(rng.Uint64(), 6))
					go func() {
						for {
							select {
							case <-done:
								return
							case <-time.After(time.Duration(1+own.IntN(60)) * time.Millisecond):
							}
							for range 1 + own.IntN(3) {
								_ = store.ForceRelease(context.Background(), driver.RWMutex, "x")
							}
						}
					}()
				}
				go func() { wg.Wait(); close(done) }()
				select {
				case <-done:
				case <-time.After(time.Minute):
					require.Fail(t, "somebody waits for ever")
				}
				for _, p := range processes {
					p.Close()
					p.TellLosses()
					assert.Zero(t, p.InUse(), "locks that somebody uses")
				}
				time.Sleep(time.Second) // for what was lost on the way to the store
				info, err := store.Inspect(context.Background(), driver.RWMutex, "x")
				require.NoError(t, err)
				require.Empty(t, info.Holders)
				require.Empty(t, info.Queue)
				entries += in.entries
			})
		})
		require.True(t, ok, "seed %d", seed)
	}
	assert.Positive(t, entries)
}
