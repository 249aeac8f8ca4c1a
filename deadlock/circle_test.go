package deadlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/deadlock"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// pause is short beside the TTL, so that no lease ends by itself.
const pause = time.Second

// town is processes that share a store, in virtual time.
type town struct {
	*testing.T
	store   driver.Driver
	reports atomic.Int32
	log     strings.Builder
	mu      sync.Mutex
}

func bubble(t *testing.T, body func(tn *town)) {
	synctest.Test(t, func(t *testing.T) { body(&town{T: t, store: memdriver.New()}) })
}

// Write counts reports.
func (tn *town) Write(line []byte) (int, error) {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	if strings.Contains(string(line), `msg="holdfast: deadlock"`) {
		tn.reports.Add(1)
	}
	return tn.log.Write(line)
}

// said is what the log has.
func (tn *town) said() string {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	return tn.log.String()
}

// process is another client of the store.
func (tn *town) process(opts ...holdfast.Option) *holdfast.Client {
	c := holdfast.Open(tn.store, opts...)
	tn.Cleanup(func() { _ = c.Close() })
	c.AddHook(deadlock.New(c, deadlock.WithPause(pause), deadlock.WithLogger(slog.New(slog.NewTextHandler(tn, nil)))))
	return c
}

// take holds one lock and wants another.
type take func(ctx context.Context, within func(context.Context) error) error

// circle has each member hold something and want what the next one holds. It returns the error of
// each, and when it came.
func circle(tn *town, holds, wants []take, between time.Duration) (errs []error, after []time.Duration) {
	n := len(holds)
	errs, after = make([]error, n), make([]time.Duration, n)
	var held, all sync.WaitGroup
	held.Add(n)
	ctx, cancel := context.WithTimeout(tn.Context(), time.Hour) // lest a circle that is not found last for ever
	defer cancel()
	began := time.Now()
	for i := range n {
		all.Go(func() {
			errs[i] = holds[i](ctx, func(ctx context.Context) error {
				held.Done()
				held.Wait()
				time.Sleep(time.Duration(i) * between)
				return wants[i](ctx, func(context.Context) error { return nil })
			})
			after[i] = time.Since(began)
		})
	}
	all.Wait()
	return errs, after
}

func TestCircleEndsByItsYoungestMember(t *testing.T) {
	for _, n := range []int{2, 3, 5, 10} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubble(t, func(tn *town) {
				var holds, wants []take
				for i := range n {
					c := tn.process(holdfast.WithHolder(fmt.Sprint("p", i)))
					holds = append(holds, c.Mutex(fmt.Sprint("m", i)).Do)
					wants = append(wants, c.Mutex(fmt.Sprint("m", (i+1)%n)).Do)
				}
				const between = 10 * time.Millisecond
				errs, after := circle(tn, holds, wants, between)
				last := n - 1 // began to wait last
				require.ErrorIs(t, errs[last], holdfast.ErrDeadlock)
				var e *deadlock.Error
				require.ErrorAs(t, errs[last], &e)
				require.Len(t, e.Circle, n)
				assert.Equal(t, fmt.Sprint("p", last), e.Circle[0].Holder)
				for i, m := range e.Circle {
					assert.Equal(t, e.Circle[(i+1)%n].Holds, m.WaitsFor)
				}
				for i, err := range errs[:last] {
					require.NoError(t, err, i)
				}
				assert.LessOrEqual(t, after[last], 2*pause+time.Duration(last)*between)
				assert.EqualValues(t, 1, tn.reports.Load(), tn.said())
				t.Log(after[last], errs[last])
			})
		})
	}
}

func TestCircleOfReadersAndWritersEnds(t *testing.T) {
	bubble(t, func(tn *town) {
		a, b, c := tn.process(), tn.process(), tn.process()
		errs, _ := circle(tn,
			[]take{a.RWMutex("x").RDo, b.RWMutex("y").Do, c.Mutex("z").Do},
			[]take{a.RWMutex("y").RDo, b.Mutex("z").Do, c.RWMutex("x").Do}, time.Millisecond)
		assert.NoError(t, errs[0])
		assert.NoError(t, errs[1])
		assert.ErrorIs(t, errs[2], holdfast.ErrDeadlock)
		assert.EqualValues(t, 1, tn.reports.Load())
	})
}

// A reader who waits behind a writer waits for the readers before that.
func TestReaderBehindAWriterIsPartOfACircle(t *testing.T) {
	bubble(t, func(tn *town) {
		a, b, w := tn.process(), tn.process(), tn.process()
		go func() {
			time.Sleep(pause / 10)
			_ = w.RWMutex("x").Do(tn.Context(), func(context.Context) error { return nil })
		}()
		errs, _ := circle(tn, []take{a.RWMutex("x").RDo, b.Mutex("y").Do}, []take{a.Mutex("y").Do, b.RWMutex("x").RDo}, pause/2)
		assert.NoError(t, errs[0])
		assert.ErrorIs(t, errs[1], holdfast.ErrDeadlock)
	})
}

// Of two that hold each other's lock, one gives up and works on with what it holds: the note of
// its wait has outlived the wait.
func TestWaitThatIsOverIsNoPartOfACircle(t *testing.T) {
	bubble(t, func(tn *town) {
		a, b := tn.process(), tn.process()
		errs, _ := circle(tn,
			[]take{a.Mutex("a").Do, b.Mutex("b").Do},
			[]take{
				func(ctx context.Context, within func(context.Context) error) error {
					impatient, cancel := context.WithTimeout(ctx, pause+pause/100)
					defer cancel()
					err := a.Mutex("b").Do(impatient, within)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					time.Sleep(10 * pause) // works
					return nil
				},
				b.Mutex("a").Do,
			}, pause/200)
		assert.NoError(t, errors.Join(errs...))
		assert.Zero(t, tn.reports.Load(), tn.said())
	})
}

// A process that is killed renews nothing: the circle dissolves when its lease ends.
func TestKilledMemberIsNoPartOfACircle(t *testing.T) {
	bubble(t, func(tn *town) {
		dead := &severed{Driver: tn.store}
		a := holdfast.Open(dead, holdfast.WithTTL(10*time.Second))
		a.AddHook(deadlock.New(a, deadlock.WithPause(pause), deadlock.WithLogger(slog.New(slog.NewTextHandler(tn, nil)))))
		b := tn.process()
		ctx, kill := context.WithCancel(tn.Context())
		time.AfterFunc(pause+pause/10, func() { dead.cut.Store(true) })
		errs, after := circle(tn,
			[]take{func(_ context.Context, within func(context.Context) error) error { return a.Mutex("a").Do(ctx, within) }, b.Mutex("b").Do},
			[]take{a.Mutex("b").Do, func(ctx context.Context, within func(context.Context) error) error {
				err := b.Mutex("a").Do(ctx, within)
				kill()
				return err
			}}, pause/200)
		assert.Error(t, errs[0])
		assert.NoError(t, errs[1])
		assert.Greater(t, after[1], 5*time.Second)
		assert.NotErrorIs(t, errs[0], holdfast.ErrDeadlock)
		_ = a.Close()
	})
}

// severed is a store that nobody reaches any more.
type severed struct {
	driver.Driver
	cut atomic.Bool
}

func (s *severed) Unwrap() driver.Driver { return s.Driver }

var errCut = fmt.Errorf("cut: %w", driver.ErrTransient)

func (s *severed) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if s.cut.Load() {
		return driver.Grant{}, errCut
	}
	return s.Driver.Acquire(ctx, r)
}

func (s *severed) Renew(ctx context.Context, leases []driver.Lease) []error {
	if !s.cut.Load() {
		return s.Driver.Renew(ctx, leases)
	}
	errs := make([]error, len(leases))
	for i := range errs {
		errs[i] = errCut
	}
	return errs
}

func (s *severed) Release(ctx context.Context, l driver.Lease) error {
	if s.cut.Load() {
		return errCut
	}
	return s.Driver.Release(ctx, l)
}

// look returns the only holder of a lock, as the store shows it.
func (tn *town) look(name string) driver.Holder {
	tn.Helper()
	info, err := tn.store.(driver.Inspector).Inspect(tn.Context(), driver.Mutex, name)
	require.NoError(tn, err)
	require.Len(tn, info.Holders, 1)
	return info.Holders[0]
}

func TestHolderTellsWhatItWaitsForAsLongAsItWaits(t *testing.T) {
	bubble(t, func(tn *town) {
		a, b := tn.process(), tn.process()
		lease, err := b.Mutex("b \u00e9\xff").Lease(tn.Context())
		require.NoError(t, err)
		began := time.Now()
		go func() {
			time.Sleep(3 * pause)
			_ = lease.Release(context.Background())
		}()
		go func() {
			time.Sleep(pause - pause/100)
			assert.Empty(t, deadlock.Waits(tn.look("a")), "before the pause")
			time.Sleep(pause / 50)
			waits := deadlock.Waits(tn.look("a"))
			require.Len(t, waits, 1)
			assert.Equal(t, deadlock.Lock{Kind: driver.Mutex, Name: "b \u00e9\xff"}, waits[0].For)
			assert.WithinDuration(t, began, waits[0].Since, time.Millisecond)
		}()
		require.NoError(t, a.Mutex("a").Do(tn.Context(), func(ctx context.Context) error {
			return a.Mutex("b \u00e9\xff").Do(ctx, func(context.Context) error {
				time.Sleep(pause / 4)
				assert.Empty(t, deadlock.Waits(tn.look("a")), "it has what it waited for")
				return nil
			})
		}))
	})
}

// A goroutine waits with the context of a lease that another one releases. The lock passes on in
// their process, and the next holder waits for nothing.
func TestNoteEndsWithItsHold(t *testing.T) {
	bubble(t, func(tn *town) {
		a, b := tn.process(), tn.process()
		other, err := b.Mutex("b").Lease(tn.Context())
		require.NoError(t, err)
		first, err := a.Mutex("a").Lease(tn.Context())
		require.NoError(t, err)
		waits := make(chan error)
		go func() {
			l, err := a.Mutex("b").Lease(context.WithoutCancel(first.Context()))
			waits <- errors.Join(err, l.Release(context.Background()))
		}()
		next := make(chan *holdfast.Lease)
		go func() {
			l, _ := a.Mutex("a").Lease(tn.Context())
			next <- l
		}()
		time.Sleep(pause + pause/10)
		assert.Len(t, deadlock.Waits(tn.look("a")), 1)
		require.NoError(t, first.Release(tn.Context()))
		lease := <-next
		time.Sleep(pause / 4)
		assert.Empty(t, deadlock.Waits(tn.look("a")))
		require.NoError(t, lease.Release(tn.Context()))
		require.NoError(t, other.Release(tn.Context()))
		require.NoError(t, <-waits)
	})
}

// tagless is a store that keeps no tags.
type tagless struct{ *memdriver.Driver }

func (t tagless) Renew(ctx context.Context, leases []driver.Lease) []error {
	for i := range leases {
		leases[i].HolderTag = ""
	}
	return t.Driver.Renew(ctx, leases)
}

func TestStoreWithoutTagsIsNamedOnce(t *testing.T) {
	bubble(t, func(tn *town) {
		tn.store = tagless{memdriver.New()}
		c := tn.process()
		for range 3 {
			errs, _ := circle(tn, []take{c.Mutex("a").Do}, []take{func(ctx context.Context, _ func(context.Context) error) error {
				other, err := c.Mutex("b").Lease(tn.Context())
				require.NoError(t, err)
				short, cancel := context.WithTimeout(ctx, 3*pause)
				defer cancel()
				_, err = c.Mutex("b").Lease(short)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				return other.Release(ctx)
			}}, 0)
			require.NoError(t, errs[0])
		}
		assert.Equal(t, 1, strings.Count(tn.said(), "deadlocks are not found"), tn.said())
	})
}

// forgetful is a store that does not keep the first tags, such as an etcd without space for writes.
type forgetful struct {
	*memdriver.Driver
	forgets *atomic.Int32
}

func (f forgetful) Renew(ctx context.Context, leases []driver.Lease) []error {
	for i := range leases {
		if leases[i].HolderTag != "" && f.forgets.Add(-1) >= 0 {
			leases[i].HolderTag = ""
		}
	}
	return f.Driver.Renew(ctx, leases)
}

func TestCircleIsFoundThoughTheFirstNotesWereNotKept(t *testing.T) {
	bubble(t, func(tn *town) {
		var forgets atomic.Int32
		forgets.Store(2)
		tn.store = forgetful{memdriver.New(), &forgets}
		a, b := tn.process(), tn.process()
		within := func(c *holdfast.Client, name string) take {
			return func(ctx context.Context, f func(context.Context) error) error {
				ctx, cancel := context.WithTimeout(ctx, 10*pause)
				defer cancel()
				return c.Mutex(name).Do(ctx, f)
			}
		}
		errs, _ := circle(tn, []take{a.Mutex("x").Do, b.Mutex("y").Do}, []take{within(a, "y"), within(b, "x")}, 10*time.Millisecond)
		require.ErrorIs(t, errs[1], holdfast.ErrDeadlock)
		require.NoError(t, errs[0])
		require.NotContains(t, tn.said(), "deadlocks are not found")
	})
}
