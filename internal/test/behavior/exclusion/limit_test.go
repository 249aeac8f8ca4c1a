package exclusion_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// acquirers are the ways to ask for permits that can return an error.
func acquirers(s *holdfast.Semaphore, n int64) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Lease":    func(ctx context.Context) error { _, err := s.Lease(ctx, n); return err },
		"TryLease": func(ctx context.Context) error { _, err := s.TryLease(ctx, n); return err },
		"Acquire":  func(ctx context.Context) error { return s.Acquire(ctx, n) },
		"Do": func(ctx context.Context) error {
			return s.Do(ctx, n, func(context.Context) error { return errors.New("called") })
		},
	}
}

// refuses checks that every way to ask for n permits fails at once.
func refuses(l *lab.Lab, s *holdfast.Semaphore, n int64, want error, kind string, words ...string) {
	l.T.Helper()
	for what, call := range acquirers(s, n) {
		err := lab.Promptly(l.T, lab.Soon, func() error { return call(context.Background()) })
		require.ErrorIs(l.T, err, want, what)
		var lockError *holdfast.LockError
		require.ErrorAs(l.T, err, &lockError, what)
		assert.Equal(l.T, "x", lockError.Name, what)
		assert.Equal(l.T, "acquire semaphore", lockError.Op, what)
		assert.Equal(l.T, kind, lockError.ErrorType(), what)
		lab.RequireNoToken(l.T, err.Error())
		for _, word := range append(words, `holdfast: acquire semaphore "x": `) {
			assert.Contains(l.T, err.Error(), word, what)
		}
	}
}

func TestMoreThanTheLimitIsRefused(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		for _, fresh := range []bool{true, false} {
			s := l.Near().Semaphore("x", 3)
			if !fresh {
				require.True(t, s.TryAcquire(2))
			}
			refuses(l, s, 4, holdfast.ErrLimitExceeded, "limit_exceeded", "more than the limit of the semaphore: 4 of 3")
			assert.False(t, l.Near().Semaphore("x", 3).TryAcquire(4), "a fresh client does not panic, either")
			assert.False(t, s.TryAcquire(driver.MaxLimit))
			if !fresh {
				s.Release(2)
			}
		}
		// Nor does one queue that has waited before.
		s, held := l.Near().Semaphore("x", 3), l.Take(lab.Permits(l.Near().Semaphore("x", 3), 2))
		waited := l.Ask(lab.Permits(s, 2))
		l.UntilWaiting(s, 1)
		l.GiveBack(held)
		l.GiveBack(waited.Granted(lab.Soon))
		refuses(l, s, 4, holdfast.ErrLimitExceeded, "limit_exceeded", "4 of 3")
		l.IsClean("semaphore", "x")
	})
}

func TestAnotherLimitIsRefusedWhileTheSemaphoreIsInUse(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a := l.Near().Semaphore("x", 3)
		require.True(t, a.TryAcquire(2))
		for _, limit := range []int64{2, 4} {
			refuses(l, l.Near().Semaphore("x", limit), 1, holdfast.ErrLimitConflict, "limit_conflict",
				fmt.Sprintf("in use with another limit: 3, not %d", limit))
			// On a client that has never been of use it does not panic, either.
			logged := len(l.Log.String())
			assert.False(t, l.Near().Semaphore("x", limit).TryAcquire(1))
			said := l.Log.String()[logged:]
			assert.Contains(t, said, "holdfast: cannot acquire")
			assert.Contains(t, said, fmt.Sprintf("another limit: 3, not %d", limit))
			assert.Contains(t, said, "lock=x")
		}
		logged := len(l.Log.String())
		assert.False(t, a.TryAcquire(2), "too few are left")
		assert.False(t, a.TryAcquire(4), "FOUL: more than the limit")
		assert.Len(t, l.Log.String(), logged, "that is no news")
		assert.Equal(t, []int64{2}, l.Weights(a))
		assert.EqualValues(t, 3, l.Look(a).Limit)

		// Waiting is use, too.
		waits := l.Ask(lab.Permits(a, 3))
		l.UntilWaiting(a, 1)
		other := l.Near().Semaphore("x", 5)
		refuses(l, other, 1, holdfast.ErrLimitConflict, "limit_conflict")
		a.Release(2)
		lease := waits.Granted(lab.Soon)
		refuses(l, other, 1, holdfast.ErrLimitConflict, "limit_conflict")
		l.GiveBack(lease)
		// Nobody uses it now.
		require.True(t, other.TryAcquire(5))
		refuses(l, a, 1, holdfast.ErrLimitConflict, "limit_conflict")
		other.Release(5)
	})
}

func TestLimitOfTheDeadBindsNobody(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		const ttl = 1500 * time.Millisecond
		dead := l.Take(lab.Permits(l.Near().Semaphore("x", 3, holdfast.WithoutRenewal(), holdfast.WithTTL(ttl)), 1))
		other := l.Near().Semaphore("x", 5)
		refuses(l, other, 1, holdfast.ErrLimitConflict, "limit_conflict")
		l.Loses(dead, ttl+l.Slack)
		l.Until("the store has forgotten it", func() bool { return other.TryAcquire(5) })
		other.Release(5)
		require.ErrorIs(t, dead.Release(t.Context()), holdfast.ErrLost)
	})
}

func TestResizeLetsWaitersIn(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		l.Remember()
		a, b := l.Near().Semaphore("x", 2), l.Near().Semaphore("x", 2)
		held := l.Take(lab.Permits(a, 2))
		first := l.Ask(lab.Permits(b, 2))
		l.UntilWaiting(a, 1)
		second := l.Ask(lab.Permits(a, 1))
		l.UntilWaiting(a, 2)
		third := l.Ask(lab.Permits(b, 1))
		l.UntilWaiting(a, 3)
		require.NoError(t, b.Resize(t.Context(), 5))
		one, two := first.Granted(lab.Soon), second.Granted(lab.Soon)
		l.IsHeldBy(a, held, one, two)
		assert.Len(t, l.Look(a).Queue, 1)
		assert.EqualValues(t, 5, l.Look(a).Limit)
		require.NoError(t, a.Resize(t.Context(), 6))
		l.GiveBack(third.Granted(lab.Soon), held, one, two)

		// It wins over what handles were made with, and over later ones.
		for _, limit := range []int64{2, 6, 100} {
			s := l.Near().Semaphore("x", limit)
			require.True(t, s.TryAcquire(6))
			assert.False(t, s.TryAcquire(1))
			refuses(l, s, 7, holdfast.ErrLimitExceeded, "limit_exceeded", "7 of 6")
			s.Release(6)
		}
	})
}

func TestResizeRefusesWaitersThatAreTooLarge(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		l.Remember()
		a, b := l.Near().Semaphore("x", 5), l.Near().Semaphore("x", 5)
		held := l.Take(lab.Permits(a, 1))
		large := l.Ask(lab.Permits(b, 5))
		l.UntilWaiting(a, 1)
		acquiring := make(chan error, 1)
		go func() { acquiring <- a.Acquire(context.Background(), 4) }()
		l.UntilWaiting(a, 2)
		small := l.Ask(lab.Permits(b, 1))
		l.UntilWaiting(a, 3)

		require.NoError(t, a.Resize(t.Context(), 2))
		require.ErrorIs(t, large.Failed(lab.Soon), holdfast.ErrLimitExceeded)
		require.ErrorIs(t, lab.Promptly(t, lab.Soon, func() error { return <-acquiring }), holdfast.ErrLimitExceeded)
		l.IsHeldBy(a, held, small.Granted(lab.Soon))
		l.GiveBack(held, small.Lease)
		l.IsClean("semaphore", "x")
		require.True(t, a.TryAcquire(2))
		assert.False(t, a.TryAcquire(1))
		a.Release(2)
	})
}

// More may be held than the new limit. Nothing is taken from anybody, and who waits for
// too much hears of it when it asks the next time.
func TestResizeBelowWhatIsHeldTakesNothing(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		const ttl = 900 * time.Millisecond
		l.Remember()
		a, b := l.Near().Semaphore("x", 5), l.Near(holdfast.WithTTL(ttl)).Semaphore("x", 5)
		held := l.Take(lab.Permits(a, 3))
		large := l.Ask(lab.Permits(b, 3))
		l.UntilWaiting(a, 1)
		small := l.Ask(lab.Permits(b, 1))
		l.UntilWaiting(a, 2)
		require.NoError(t, a.Resize(t.Context(), 2))
		require.ErrorIs(t, large.Failed(ttl/3+l.Slack), holdfast.ErrLimitExceeded)
		l.IsHeldBy(a, held)
		assert.EqualValues(t, 3, l.Used(a))
		assert.Len(t, l.Look(a).Queue, 1)
		l.GiveBack(held)
		l.GiveBack(small.Granted(lab.Soon))
		l.IsClean("semaphore", "x")
	})
}

func TestResizeCanBeCancelledAndRefused(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Far()
		l.Ready(c)
		for _, name := range []string{"", strings.Repeat("n", 513)} {
			require.ErrorIs(t, c.Semaphore(name, 1).Resize(t.Context(), 1), holdfast.ErrInvalidName)
		}
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		l.Link.BlackHole(true)
		time.AfterFunc(20*time.Millisecond, func() { cancel(gone) })
		err := lab.Promptly(t, lab.Soon, func() error { return c.Semaphore("x", 1).Resize(ctx, 1) })
		require.ErrorIs(t, err, gone)
		assert.ErrorContains(t, err, `resize semaphore "x"`)
		l.Link.BlackHole(false)
		l.Link.Cut()
		require.NoError(t, c.Close())
		require.ErrorIs(t, c.Semaphore("x", 1).Resize(t.Context(), 1), holdfast.ErrClosed)
	})
}

func TestLimitsThatMakeNoSensePanic(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Near()
		s := c.Semaphore("x", 1)
		for _, limit := range []int64{0, -1, driver.MaxLimit + 1} {
			for _, f := range []func(){
				func() { c.Semaphore("x", limit) },
				func() { _ = s.Resize(t.Context(), limit) },
			} {
				assert.Contains(t, lab.Panics(t, f), fmt.Sprintf("semaphore with a limit of %d, must be 1 to 9007199254740991", limit))
			}
		}
		assert.Empty(t, l.Server.Keys(t, l.Server.Prefix()))
		most := c.Semaphore("most", driver.MaxLimit)
		require.True(t, most.TryAcquire(driver.MaxLimit-1))
		require.True(t, most.TryAcquire(1))
		assert.False(t, most.TryAcquire(1))
		most.Release(driver.MaxLimit)
		l.IsClean("semaphore", "most")
	})
}

// The guide for operators, "Another limit for a semaphore", step by step. Only who leaves the first step
// out, or whom a minute's rest has made forget it, meets ErrLimitConflict.
func TestLimitIsChangedWhileProgramsAreReplacedOneByOne(t *testing.T) {
	const before, after = 4, 6
	for _, of := range []struct{ resized, rests bool }{{true, false}, {true, true}, {false, false}} {
		t.Run(fmt.Sprintf("resized first %v, rests %v", of.resized, of.rests), func(t *testing.T) {
			lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
				l.Retention = time.Minute
				var mu sync.Mutex
				held, most, refused := 0, 0, 0
				// program works until the returned function is called. When it is refused it pauses, as if
				// the semaphore were busy.
				program := func(limit int64) (end func()) {
					s := l.Near(holdfast.WithTTL(10*time.Second)).Semaphore("api", limit)
					ctx, cancel := context.WithCancel(t.Context())
					var all sync.WaitGroup
					for range 3 {
						all.Go(func() {
							for ctx.Err() == nil {
								err := s.Do(ctx, 1, func(context.Context) error {
									mu.Lock()
									held++
									most = max(most, held)
									mu.Unlock()
									time.Sleep(400 * time.Millisecond)
									mu.Lock()
									held--
									mu.Unlock()
									return nil
								})
								if errors.Is(err, holdfast.ErrLimitConflict) {
									mu.Lock()
									refused++
									mu.Unlock()
									time.Sleep(time.Second)
								} else if ctx.Err() == nil {
									assert.NoError(t, err)
								}
							}
						})
					}
					return func() { cancel(); all.Wait() }
				}
				refusals := func() (n int) {
					mu.Lock()
					defer mu.Unlock()
					n, refused = refused, 0
					return n
				}
				peak := func() int {
					mu.Lock()
					defer mu.Unlock()
					return most
				}
				operator := l.Near().Semaphore("api", after)
				resize := func() { require.NoError(t, operator.Resize(t.Context(), after)) }
				start := func(limit int64) []func() {
					return []func(){program(limit), program(limit), program(limit)}
				}

				olds, news := start(before), []func(){}
				time.Sleep(3 * time.Second)
				require.EqualValues(t, before, l.Look(operator).Limit)
				require.Equal(t, before, peak(), "FOUL: more are held than the limit, or fewer though many wait")
				if of.resized {
					resize()
				}
				if of.rests {
					for _, end := range olds {
						end()
					}
					time.Sleep(90 * time.Second)
					olds = start(before) // come first
					time.Sleep(time.Second)
					require.EqualValues(t, before, l.Look(operator).Limit)
				}
				for _, end := range olds {
					news = append(news, program(after))
					time.Sleep(3 * time.Second)
					if of.resized && !of.rests {
						require.Zero(t, refusals())
						require.EqualValues(t, after, l.Look(operator).Limit)
					} else {
						require.Positive(t, refusals(), "programs that disagree cannot both have it")
					}
					if of.rests {
						resize() // again: this need not wait for the last
						time.Sleep(3 * time.Second)
						refusals()
						of.rests = false
					}
					end()
				}
				time.Sleep(3 * time.Second)
				refusals()
				resize() // the last step
				time.Sleep(3 * time.Second)
				assert.Zero(t, refusals())
				assert.EqualValues(t, after, l.Look(operator).Limit)
				assert.Equal(t, after, peak(), "FOUL: more are held than the limit, or fewer though many wait")
				for _, end := range news {
					end()
				}
			})
		})
	}
}
