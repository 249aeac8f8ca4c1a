package holdfast_test

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/leader"
)

// hushed is a store in memory that can fall silent: then calls return when their context ends, as
// those of a careful driver, or not before the silence does.
type hushed struct {
	*memdriver.Driver
	careless bool
	emptied  atomic.Bool // it has forgotten all leases

	mu   sync.Mutex
	over chan struct{} // nil while it answers
}

func (h *hushed) hush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = make(chan struct{})
}

func (h *hushed) speak() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over != nil {
		close(h.over)
		h.over = nil
	}
}

func (h *hushed) answers(ctx context.Context) error {
	h.mu.Lock()
	over := h.over
	h.mu.Unlock()
	if over == nil {
		return nil
	}
	ends := ctx.Done()
	if h.careless {
		ends = nil
	}
	select {
	case <-over:
		return nil
	case <-ends:
		return ctx.Err()
	}
}

// answered returns what f says, once the store answers.
func answered[T any](h *hushed, ctx context.Context, f func() (T, error)) (none T, err error) {
	if err := h.answers(ctx); err != nil {
		return none, err
	}
	return f()
}

func (h *hushed) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	return answered(h, ctx, func() (driver.Grant, error) { return h.Driver.Acquire(ctx, r) })
}

func (h *hushed) Steal(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	return answered(h, ctx, func() (driver.Grant, error) { return h.Driver.Steal(ctx, r) })
}

func (h *hushed) Attach(ctx context.Context, old driver.Lease, r *driver.Request) (driver.Grant, error) {
	return answered(h, ctx, func() (driver.Grant, error) { return h.Driver.Attach(ctx, old, r) })
}

func (h *hushed) Renew(ctx context.Context, leases []driver.Lease) []error {
	if err := h.answers(ctx); err != nil {
		return slices.Repeat([]error{err}, len(leases))
	}
	if h.emptied.Load() {
		return slices.Repeat([]error{driver.ErrNotHeld}, len(leases))
	}
	return h.Driver.Renew(ctx, leases)
}

// then is answered for what says no more than whether it failed.
func (h *hushed) then(ctx context.Context, f func() error) error {
	if err := h.answers(ctx); err != nil {
		return err
	}
	return f()
}

func (h *hushed) Release(ctx context.Context, l driver.Lease) error {
	return h.then(ctx, func() error { return h.Driver.Release(ctx, l) })
}

func (h *hushed) Downgrade(ctx context.Context, l driver.Lease, weight int64) error {
	return h.then(ctx, func() error { return h.Driver.Downgrade(ctx, l, weight) })
}

func (h *hushed) Resize(ctx context.Context, name, token string, limit int64) error {
	return h.then(ctx, func() error { return h.Driver.Resize(ctx, name, token, limit) })
}

func (h *hushed) ForceRelease(ctx context.Context, k driver.Kind, name string) error {
	return h.then(ctx, func() error { return h.Driver.ForceRelease(ctx, k, name) })
}

func (h *hushed) Inspect(ctx context.Context, k driver.Kind, name string) (driver.Info, error) {
	return answered(h, ctx, func() (driver.Info, error) { return h.Driver.Inspect(ctx, k, name) })
}

func (h *hushed) List(ctx context.Context, prefix string, f func(driver.Kind, string) error) error {
	return h.then(ctx, func() error { return h.Driver.List(ctx, prefix, f) })
}

// scene is what calls meet: the mutex m, the RWMutex rw and the permit of s are held by another, but for
// calls whose context is over: these could have them.
type scene struct {
	c                                          *holdfast.Client
	lease, writer, detach, released, ofAnother *holdfast.Lease
	leases                                     *holdfast.Leases
	term                                       *leader.Term
	token                                      string
}

func newScene(t *testing.T, c, other *holdfast.Client, when int) *scene {
	t.Helper()
	ctx := t.Context()
	get := func(l *holdfast.Lease, err error) *holdfast.Lease {
		require.NoError(t, err)
		return l
	}
	all, err := holdfast.All(ctx, c.Mutex("all 1"), c.Mutex("all 2"))
	require.NoError(t, err)
	if when != over {
		get(other.Mutex("m").Lease(ctx))
		get(other.RWMutex("rw").Lease(ctx))
		get(other.Semaphore("s", 1).Lease(ctx, 1))
	}
	token, err := get(other.Mutex("detached").Lease(ctx)).Detach(ctx)
	require.NoError(t, err)
	term, err := leader.New(c, "led").Campaign(ctx)
	require.NoError(t, err)
	return &scene{
		c: c, term: term, leases: all, token: token,
		lease: get(c.Mutex("lease").Lease(ctx)), detach: get(c.Mutex("detach").Lease(ctx)), released: get(c.Mutex("released").Lease(ctx)),
		writer: get(c.RWMutex("writer").Lease(ctx)), ofAnother: get(c.Mutex("of another").Lease(ctx)),
	}
}

// What calls meet whose context ends.
const (
	over    = 1 << iota // it has ended before the call
	waiting             // another holds the lock
	silence             // the store does not answer
)

func nothing(context.Context) error { return nil }

func second[T any](_ T, err error) error { return err }

// callsWithContext are all that take one, and where its end ends them. own are those for which the
// end of another lease says nothing of the lock in hand.
var callsWithContext = map[string]struct {
	when int
	own  bool
	call func(s *scene, ctx context.Context) error
}{
	"Mutex.Lease": {over | waiting | silence, false, func(s *scene, ctx context.Context) error { return second(s.c.Mutex("m").Lease(ctx)) }},
	"Mutex.Lease nested": {over, false, func(s *scene, ctx context.Context) error {
		return second(s.c.Mutex("lease", holdfast.WithReentrancy()).Lease(s.lease.WithContext(ctx)))
	}},
	"Mutex.TryLease":        {over | silence, false, func(s *scene, ctx context.Context) error { return second(s.c.Mutex("m").TryLease(ctx)) }},
	"Mutex.Do":              {over | waiting | silence, false, func(s *scene, ctx context.Context) error { return s.c.Mutex("m").Do(ctx, nothing) }},
	"Mutex.TryDo":           {over | silence, false, func(s *scene, ctx context.Context) error { return s.c.Mutex("m").TryDo(ctx, nothing) }},
	"Mutex.Steal":           {over | silence, false, func(s *scene, ctx context.Context) error { return second(s.c.Mutex("m").Steal(ctx)) }},
	"Mutex.Inspect":         {over | silence, true, func(s *scene, ctx context.Context) error { return second(s.c.Mutex("m").Inspect(ctx)) }},
	"Mutex.ForceUnlock":     {over | silence, true, func(s *scene, ctx context.Context) error { return s.c.Mutex("m").ForceUnlock(ctx) }},
	"RWMutex.Lease":         {over | waiting | silence, false, func(s *scene, ctx context.Context) error { return second(s.c.RWMutex("rw").Lease(ctx)) }},
	"RWMutex.TryLease":      {over | silence, false, func(s *scene, ctx context.Context) error { return second(s.c.RWMutex("rw").TryLease(ctx)) }},
	"RWMutex.RLease":        {over | waiting | silence, false, func(s *scene, ctx context.Context) error { return second(s.c.RWMutex("rw").RLease(ctx)) }},
	"RWMutex.TryRLease":     {over | silence, false, func(s *scene, ctx context.Context) error { return second(s.c.RWMutex("rw").TryRLease(ctx)) }},
	"RWMutex.Do":            {over | waiting | silence, false, func(s *scene, ctx context.Context) error { return s.c.RWMutex("rw").Do(ctx, nothing) }},
	"RWMutex.RDo":           {over | waiting | silence, false, func(s *scene, ctx context.Context) error { return s.c.RWMutex("rw").RDo(ctx, nothing) }},
	"RWMutex.TryRDo":        {over | silence, false, func(s *scene, ctx context.Context) error { return s.c.RWMutex("rw").TryRDo(ctx, nothing) }},
	"Semaphore.Lease":       {over | waiting | silence, false, func(s *scene, ctx context.Context) error { return second(s.c.Semaphore("s", 1).Lease(ctx, 1)) }},
	"Semaphore.TryLease":    {over | silence, false, func(s *scene, ctx context.Context) error { return second(s.c.Semaphore("s", 1).TryLease(ctx, 1)) }},
	"Semaphore.Do":          {over | waiting | silence, false, func(s *scene, ctx context.Context) error { return s.c.Semaphore("s", 1).Do(ctx, 1, nothing) }},
	"Semaphore.Acquire":     {over | waiting | silence, false, func(s *scene, ctx context.Context) error { return s.c.Semaphore("s", 1).Acquire(ctx, 1) }},
	"Acquire of none":       {over, false, func(s *scene, ctx context.Context) error { return s.c.Semaphore("s", 1).Acquire(ctx, 0) }},
	"RWMutex.Steal":         {over | silence, false, func(s *scene, ctx context.Context) error { return second(s.c.RWMutex("rw").Steal(ctx)) }},
	"RWMutex.Inspect":       {over | silence, true, func(s *scene, ctx context.Context) error { return second(s.c.RWMutex("rw").Inspect(ctx)) }},
	"RWMutex.ForceUnlock":   {over | silence, true, func(s *scene, ctx context.Context) error { return s.c.RWMutex("rw").ForceUnlock(ctx) }},
	"RWMutex.TryDo":         {over | silence, false, func(s *scene, ctx context.Context) error { return s.c.RWMutex("rw").TryDo(ctx, nothing) }},
	"Semaphore.TryDo":       {over | silence, false, func(s *scene, ctx context.Context) error { return s.c.Semaphore("s", 1).TryDo(ctx, 1, nothing) }},
	"Semaphore.Inspect":     {over | silence, true, func(s *scene, ctx context.Context) error { return second(s.c.Semaphore("s", 1).Inspect(ctx)) }},
	"Semaphore.ForceUnlock": {over | silence, true, func(s *scene, ctx context.Context) error { return s.c.Semaphore("s", 1).ForceUnlock(ctx) }},
	"Semaphore.Resize":      {over | silence, true, func(s *scene, ctx context.Context) error { return s.c.Semaphore("s", 1).Resize(ctx, 2) }},
	"All": {over | waiting | silence, false, func(s *scene, ctx context.Context) error {
		return second(holdfast.All(ctx, s.c.Mutex("free"), s.c.Mutex("m")))
	}},
	"All of one":        {over | waiting | silence, false, func(s *scene, ctx context.Context) error { return second(holdfast.All(ctx, s.c.Mutex("m"))) }},
	"Client.Attach":     {over | silence, true, func(s *scene, ctx context.Context) error { return second(s.c.Attach(ctx, s.token)) }},
	"Client.List":       {over | silence, true, func(s *scene, ctx context.Context) error { return second(s.c.List(ctx, "")) }},
	"Lease.Renew":       {over | silence, true, func(s *scene, ctx context.Context) error { return s.lease.Renew(ctx) }},
	"Lease.Downgrade":   {over | silence, true, func(s *scene, ctx context.Context) error { return s.writer.Downgrade(ctx) }},
	"Lease.Detach":      {over | silence, true, func(s *scene, ctx context.Context) error { return second(s.detach.Detach(ctx)) }},
	"Lease.Release":     {silence, true, func(s *scene, ctx context.Context) error { return s.released.Release(ctx) }},
	"Leases.Release":    {silence, true, func(s *scene, ctx context.Context) error { return s.leases.Release(ctx) }},
	"Election.Campaign": {over | waiting | silence, false, func(s *scene, ctx context.Context) error { return second(leader.New(s.c, "m").Campaign(ctx)) }},
	"Election.Run":      {over | waiting | silence, false, func(s *scene, ctx context.Context) error { return leader.New(s.c, "m").Run(ctx, nothing) }},
	"Term.Resign":       {silence, true, func(s *scene, ctx context.Context) error { return s.term.Resign(ctx) }},
	"Election.Leader":   {over | silence, true, func(s *scene, ctx context.Context) error { return second(leader.New(s.c, "m").Leader(ctx)) }},
}

var errBudget = errors.New("the budget is used up")

// endings make contexts that end after some time, or are over.
var endings = map[string]func(s *scene, after time.Duration) (context.Context, context.CancelFunc){
	"deadline": func(_ *scene, after time.Duration) (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), after)
	},
	"canceled": canceledWith(nil),
	"deadline with a cause": func(_ *scene, after time.Duration) (context.Context, context.CancelFunc) {
		return context.WithTimeoutCause(context.Background(), after, errBudget)
	},
	"canceled with a cause": canceledWith(errBudget),
	"within one that is canceled with a cause": func(s *scene, after time.Duration) (context.Context, context.CancelFunc) {
		outer, end := canceledWith(errBudget)(s, after)
		ctx, cancel := context.WithTimeout(outer, time.Hour)
		return ctx, func() { cancel(); end() }
	},
	"canceled, as another found a lock held":   canceledWith(&holdfast.LockError{Op: "acquire mutex", Name: "y", Err: holdfast.ErrLocked}),
	"canceled, as another lock was lost":       canceledWith(&holdfast.LockError{Op: "release mutex", Name: "y", Err: holdfast.ErrLost}),
	"canceled, as another lock was released":   canceledWith(&holdfast.LockError{Op: "release mutex", Name: "y", Err: holdfast.ErrNotHeld}),
	"canceled, as a store did not know a lock": canceledWith(driver.ErrNotHeld),
	"of another lease": func(s *scene, after time.Duration) (context.Context, context.CancelFunc) {
		outer, end := canceledWith(errBudget)(s, after)
		return s.ofAnother.WithContext(outer), end
	},
}

func canceledWith(cause error) func(*scene, time.Duration) (context.Context, context.CancelFunc) {
	return func(_ *scene, after time.Duration) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(context.Background())
		if after == 0 {
			cancel(cause)
			return ctx, func() {}
		}
		t := time.AfterFunc(after, func() { cancel(cause) })
		return ctx, func() { t.Stop(); cancel(cause) }
	}
}

// Whatever the cause of a context is, a call that it has ended says both why and that it is over.
func TestErrorMatchesTheEndOfTheContextAndItsCauseInVirtualTime(t *testing.T) {
	const ttl = time.Hour
	for name, careless := range map[string]bool{"a careful driver": false, "a careless driver": true} {
		t.Run(name, func(t *testing.T) {
			everyEnding(t, slices.Collect(maps.Keys(endings)), func(t *testing.T, play func(t *testing.T, c, other *holdfast.Client, hush func())) {
				synctest.Test(t, func(t *testing.T) {
					store := &hushed{Driver: memdriver.New(), careless: careless}
					c, other := holdfast.Open(store, holdfast.WithTTL(ttl)), holdfast.Open(store, holdfast.WithTTL(ttl))
					play(t, c, other, store.hush)
					store.speak()
					require.NoError(t, c.Close())
					require.NoError(t, other.Close())
				})
			})
		})
	}
	t.Run("redis", func(t *testing.T) {
		everyEnding(t, []string{"deadline with a cause", "canceled with a cause"}, func(t *testing.T, play func(t *testing.T, c, other *holdfast.Client, hush func())) {
			lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
				// Nobody waits for a pool: go-redis cannot do that in more than one bubble.
				room := func(o *redis.Options) { o.PoolSize = 100 }
				c, other := l.Open(l.Link.Client(t, room), holdfast.WithTTL(ttl)), l.Near(holdfast.WithTTL(ttl))
				l.Ready(c)
				play(t, c, other, func() { l.Link.BlackHole(true) })
				l.Heal()
				_ = other.Mutex("detached").ForceUnlock(t.Context()) // unless it was attached
			})
		})
	})
}

// A method that takes a context is in the table.
func TestAllCallsWithContextAreTried(t *testing.T) {
	others := []string{"Lease.WithContext", "Election.Observe"} // these return no error of a call
	for _, v := range []any{
		&holdfast.Mutex{}, &holdfast.RWMutex{}, &holdfast.Semaphore{}, &holdfast.Client{}, &holdfast.Lease{}, &holdfast.Leases{},
		&leader.Election{}, &leader.Term{},
	} {
		for m := range reflect.TypeOf(v).Methods() {
			name := reflect.TypeOf(v).Elem().Name() + "." + m.Name
			if m.Type.NumIn() < 2 || m.Type.In(1) != reflect.TypeFor[context.Context]() || slices.Contains(others, name) {
				continue
			}
			assert.Contains(t, callsWithContext, name)
		}
	}
}

func everyEnding(t *testing.T, names []string, in func(t *testing.T, play func(t *testing.T, c, other *holdfast.Client, hush func()))) {
	for _, ending := range names {
		end := endings[ending]
		for when, what := range map[int]string{over: "before the call", waiting: "while another holds the lock", silence: "while the store is silent"} {
			t.Run(ending+" "+what, func(t *testing.T) {
				in(t, func(t *testing.T, c, other *holdfast.Client, hush func()) {
					s := newScene(t, c, other, when)
					if when == silence {
						hush()
					}
					for name, call := range callsWithContext {
						if call.when&when == 0 {
							continue
						}
						after := 300 * time.Millisecond
						if when == over {
							after = 0
						}
						ctx, cancel := end(s, after)
						err := call.call(s, ctx)
						cause := context.Cause(ctx)
						if assert.Error(t, err, "FOUL: %s", name) {
							say := "FOUL: " + name + " says " + err.Error()
							hidden := call.own && (errors.Is(cause, holdfast.ErrLost) || errors.Is(cause, driver.ErrNotHeld))
							assert.Equal(t, !hidden, errors.Is(err, cause), say)
							assert.ErrorIs(t, err, ctx.Err(), say)
							assert.LessOrEqual(t, strings.Count(err.Error(), cause.Error()), max(1, strings.Count(name, "Leases")*2), say)
							assert.Equal(t, when != over && when != waiting, errors.Is(err, holdfast.ErrUnavailable), say)
							typed(t, err, ctx.Err(), cause, when, call.own, say)
						}
						cancel()
					}
				})
			})
		}
	}
}

// typed checks the word of an error for telemetry.
func typed(t *testing.T, err, end, cause error, when int, own bool, say string) {
	t.Helper()
	var known *holdfast.LockError
	if !errors.As(err, &known) || known.Name == "y" {
		return // Acquire of no permits knows of no lock
	}
	want := "canceled"
	switch {
	case end == context.DeadlineExceeded && when == silence:
		want = "unavailable"
	case end == context.DeadlineExceeded:
		want = "timeout"
	case !own && errors.Is(cause, holdfast.ErrLost):
		want = "lock_lost"
	case !own && errors.Is(cause, holdfast.ErrNotHeld):
		want = "not_held"
	}
	assert.Equal(t, want, known.ErrorType(), say)
}
