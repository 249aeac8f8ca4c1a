package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// store is what the processes of a bubble share.
type store interface {
	open(p *process, options []holdfast.Option) (*holdfast.Client, func())
	has(lock string, fence int64) bool        // a holder with that fence
	left(kinds map[string]driver.Kind) string // a minute after the last use
	close()
}

// process is a life of one of the plan's processes.
type process struct {
	proc
	slot    int
	locks   *holdfast.Client
	dead    atomic.Bool // it has crashed: nothing that it sends arrives
	closing atomic.Bool
	closed  func() // what its client does not close
}

// world is a bubble at work.
type world struct {
	plan    *plan
	weather *weather
	referee *witness
	store   store
	faulty  bool

	mu      sync.Mutex
	slots   []*process
	err     error
	ops     int
	doing   []string // by actor
	cancels []context.CancelFunc
	ending  sync.WaitGroup // of processes
}

// outcome is what is known of a bubble afterwards.
type outcome struct {
	err     error
	ops     int
	frames  int
	hits    int
	virtual time.Duration
}

// play runs a plan in a bubble of its own. The error is the first thing that is not as
// promised.
func play(t *testing.T, p *plan, s *strike, newStore func(*world) store) (o outcome) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w := &world{
			plan: p, weather: newWeather(p, s), referee: &witness{began: began}, faulty: p.faulty() || s != nil,
			slots: make([]*process, len(p.Procs)), doing: make([]string, len(p.Actors)), cancels: make([]context.CancelFunc, len(p.Actors)),
		}
		w.store = newStore(w)
		w.aim(s)
		for i := range w.slots {
			w.slots[i] = w.start(i)
		}
		w.run()
		w.end()
		w.store.close()
		o = outcome{err: w.err, ops: w.ops, virtual: time.Since(began)}
		o.frames, o.hits = w.weather.seen()
	})
	return o
}

// aim has a strike that cancels do so for an actor, and one that closes for a process: that
// of its frame, one after the other.
func (w *world) aim(s *strike) {
	if s == nil {
		return
	}
	switch s.Kind {
	case strikeCancel:
		s.Do = func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if cancel := w.cancels[s.Of%len(w.cancels)]; cancel != nil {
				cancel()
			}
		}
	case strikeClose:
		s.Do = func() { go w.restart(w.in(s.Of%len(w.slots)), false) }
	}
}

// start begins the life of a process.
func (w *world) start(slot int) *process {
	p := &process{proc: w.plan.Procs[slot], slot: slot}
	options := []holdfast.Option{
		holdfast.WithTTL(p.TTL), holdfast.WithLogger(slog.New(&losses{w.referee, p})),
	}
	switch {
	case p.Strict:
		options = append(options, holdfast.WithStrictFIFO())
	case p.Linger > 0:
		options = append(options, holdfast.WithLinger(p.Linger))
	}
	p.locks, p.closed = w.store.open(p, options)
	return p
}

// in returns the process that has the slot now.
func (w *world) in(slot int) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.slots[slot]
}

// restart ends a process, in good order or not, and puts another in its place.
func (w *world) restart(p *process, crash bool) {
	if p.closing.Swap(true) {
		return
	}
	p.dead.Store(crash)
	w.referee.gone(p, !crash)
	next := w.start(p.slot)
	w.mu.Lock()
	w.slots[p.slot] = next
	w.mu.Unlock()
	w.shut(p)
}

// shut closes the client of a process.
func (w *world) shut(p *process) {
	w.ending.Add(1)
	defer w.ending.Done()
	if err := p.locks.Close(); err != nil && !w.faulty && !p.dead.Load() && !w.anyForced() {
		w.fail("close: %v", err)
	}
	p.closed()
}

func (w *world) anyForced() bool {
	w.referee.mu.Lock()
	defer w.referee.mu.Unlock()
	return len(w.referee.forced) > 0
}

// run has all actors act, and returns when they have, or should have.
func (w *world) run() {
	done := make(chan struct{})
	var acting sync.WaitGroup
	for i := range w.plan.Actors {
		acting.Go(func() { w.act(i) })
	}
	go func() { acting.Wait(); close(done) }()
	bound := w.weather.healed() + w.plan.length() + 3*time.Minute
	select {
	case <-done:
	case <-time.After(bound):
		w.mu.Lock()
		stuck := strings.Join(w.doing, ", ")
		for _, cancel := range w.cancels {
			if cancel != nil {
				cancel()
			}
		}
		w.mu.Unlock()
		w.fail("not done after %v: %s; left: %s", bound, stuck, w.store.left(w.kinds()))
	}
	// All that is still under way ends with the clients.
	for slot := range w.slots {
		p := w.in(slot)
		if !p.closing.Swap(true) {
			w.referee.gone(p, true)
			w.shut(p)
		}
	}
	<-done
	w.ending.Wait()
}

// end judges, and looks at what is left a minute after the last use.
func (w *world) end() {
	if err := w.referee.judge(w.faulty, w.calm()); err != nil {
		w.fail("%v", err)
	}
	longest := time.Duration(0)
	for _, p := range w.plan.Procs {
		longest = max(longest, p.TTL)
	}
	time.Sleep(latest + time.Minute + 2*longest + 2*time.Second)
	if left := w.store.left(w.kinds()); left != "" {
		w.fail("left in the store: %s", left)
	}
}

// calm is when the last trouble is over, of the network and of the plan.
func (w *world) calm() time.Duration {
	for _, a := range w.plan.Actors {
		for _, s := range a.Steps {
			if slices.Contains([]act{doClose, doCrash, doForce, doMove}, s.Do) {
				return open
			}
		}
	}
	switch {
	case !w.faulty:
		return 0
	case w.weather.strike == nil:
		return open
	}
	return w.weather.struck + latest + 5*time.Second
}

// kinds are those of the locks in use.
func (w *world) kinds() map[string]driver.Kind {
	kinds := map[string]driver.Kind{}
	for i := range w.plan.Locks {
		kinds[lockName(w.plan, i)] = w.plan.Locks[i]
	}
	for i := range groupOf {
		kinds[groupName(i)] = driver.Mutex
	}
	return kinds
}

// fail notes the first thing that is wrong.
func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = fmt.Errorf("FOUL: after %v: %w", w.referee.now(), fmt.Errorf(format, args...))
	}
}

// caught is deferred where a call may panic. A client that is closed may do that.
func (w *world) caught(p *process, what string) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); ok && errors.Is(err, holdfast.ErrClosed) && p.closing.Load() {
		return
	}
	if text, ok := v.(string); ok && strings.Contains(text, "nlock of unlocked") && p.closing.Load() {
		return
	}
	w.fail("%s panics: %v\n%s", what, v, debug.Stack())
}

// losses is a log that tells the referee of lost locks.
type losses struct {
	referee *witness
	process *process
}

func (l *losses) Enabled(context.Context, slog.Level) bool { return true }
func (l *losses) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *losses) WithGroup(string) slog.Handler            { return l }

func (l *losses) Handle(_ context.Context, r slog.Record) error {
	if strings.HasSuffix(r.Message, "Lock never returns") {
		panic(holdfast.ErrClosed) // in the goroutine that would stay in the bubble
	}
	if r.Message == "holdfast: lock lost" {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "lock" {
				l.referee.lost(l.process, a.Value.String(), r.Time)
			}
			return true
		})
	}
	return nil
}

// redisStore is miniredis behind links.
type redisStore struct {
	mini    *miniredis.Miniredis
	weather *weather
}

func newRedisStore(w *world) store {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if conn, err := m.Dial(); err != nil { // which starts it
		panic(err)
	} else {
		_ = conn.Close()
	}
	return &redisStore{m, w.weather}
}

func (s *redisStore) open(p *process, options []holdfast.Option) (*holdfast.Client, func()) {
	protocol := 3
	if p.RESP2 {
		protocol = 2
	}
	server := s.mini.Server() // not when it is dialed, for then it may be closing
	rdb := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:6379", // a name would be looked up, which outlives the bubble
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx, s.weather, p.slot, &p.dead, func(c net.Conn) { server.ServeConn(c) })
		},
		Protocol: protocol, DisableIdentity: true,
		DialTimeout: p.Timeout, ReadTimeout: p.Timeout, WriteTimeout: p.Timeout,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	return holdfast.New(rdb, append(options, holdfast.WithPrefix("sim"))...), func() { _ = rdb.Close() }
}

func (s *redisStore) left(map[string]driver.Kind) string {
	if len(s.mini.Keys()) == 0 {
		return ""
	}
	return s.mini.Dump()
}

// has is left to memoryStore, which can be looked at without a command.
func (s *redisStore) has(string, int64) bool { return false }

func (s *redisStore) close() { s.mini.Close() }

// memoryStore is memdriver, with the same faults between it and its clients.
type memoryStore struct {
	world   *world
	driver  *memdriver.Driver
	weather *weather
}

func newMemoryStore(w *world) store { return &memoryStore{w, memdriver.New(), w.weather} }

func (s *memoryStore) open(p *process, options []holdfast.Option) (*holdfast.Client, func()) {
	return holdfast.Open(&distant{
		Driver: s.driver, process: p, weather: s.weather, fail: s.world.fail, released: map[string]bool{},
	}, options...), func() {}
}

func (s *memoryStore) left(kinds map[string]driver.Kind) string {
	for name, kind := range kinds {
		info, err := s.driver.Inspect(context.Background(), kind, name)
		if err != nil || len(info.Holders)+len(info.Queue) > 0 {
			return fmt.Sprintf("%+v %v", info, err)
		}
	}
	return ""
}

func (s *memoryStore) has(lock string, fence int64) bool {
	info, _ := s.driver.Inspect(context.Background(), kindOf(lock), lock)
	return slices.ContainsFunc(info.Holders, func(h driver.Holder) bool { return h.Fence == fence })
}

func (s *memoryStore) close() {}
