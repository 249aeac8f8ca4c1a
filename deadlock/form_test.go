package deadlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/deadlock"
)

// leasing is a way to hold something.
type leasing func(context.Context) (*holdfast.Lease, error)

// do is Do with a lease.
func do(lease leasing) take {
	return func(ctx context.Context, within func(context.Context) error) error {
		l, err := lease(ctx)
		if err != nil {
			return err
		}
		return errors.Join(within(l.WithContext(ctx)), l.Release(context.WithoutCancel(ctx)))
	}
}

// Two processes, or two goroutines of one, wait for each other, through all ways to hold and to want a lock.
func TestCircleEndsHoweverItsLocksAreHeld(t *testing.T) {
	owner := holdfast.WithOwner("transfer")
	all := func(locks ...holdfast.Part) take {
		return func(ctx context.Context, within func(context.Context) error) error {
			l, err := holdfast.All(ctx, locks...)
			if err != nil {
				return err
			}
			return errors.Join(within(l.Context()), l.Release(context.WithoutCancel(ctx)))
		}
	}
	for name, how := range map[string]func(a, b *holdfast.Client) (holds, wants take){
		"mutexes": func(a, b *holdfast.Client) (take, take) { return a.Mutex("a").Do, a.Mutex("b").Do },
		"owner": func(a, b *holdfast.Client) (take, take) {
			return a.Mutex("a", owner).Do, a.Mutex("b", owner).Do
		},
		"attached": func(a, b *holdfast.Client) (take, take) {
			return do(func(ctx context.Context) (*holdfast.Lease, error) {
				l, err := b.Mutex("a").Lease(ctx)
				if err != nil {
					return nil, err
				}
				token, err := l.Detach(ctx)
				if err != nil {
					return nil, err
				}
				return a.Attach(ctx, token)
			}), a.Mutex("b").Do
		},
		"all":      func(a, b *holdfast.Client) (take, take) { return all(a.Mutex("a"), a.Mutex("x")), a.Mutex("b").Do },
		"all want": func(a, b *holdfast.Client) (take, take) { return a.Mutex("a").Do, all(a.Mutex("b"), a.Mutex("x")) },
		"reentrant": func(a, b *holdfast.Client) (take, take) {
			again := a.Mutex("a", holdfast.WithReentrancy())
			return func(ctx context.Context, within func(context.Context) error) error {
				return again.Do(ctx, func(ctx context.Context) error { return again.Do(ctx, within) })
			}, a.Mutex("b").Do
		},
		"nested": func(a, b *holdfast.Client) (take, take) {
			return func(ctx context.Context, within func(context.Context) error) error {
				return a.Mutex("a").Do(ctx, func(ctx context.Context) error { return a.Mutex("inner").Do(ctx, within) })
			}, a.Mutex("b").Do
		},
		"strict": func(a, b *holdfast.Client) (take, take) {
			return a.Mutex("a", holdfast.WithStrictFIFO()).Do, a.Mutex("b", holdfast.WithStrictFIFO()).Do
		},
		"linger": func(a, b *holdfast.Client) (take, take) {
			m := a.Mutex("a", holdfast.WithLinger(time.Minute))
			return func(ctx context.Context, within func(context.Context) error) error {
				for range 3 { // from the second on it has lingered
					if err := m.Do(ctx, func(context.Context) error { return nil }); err != nil {
						return err
					}
				}
				return m.Do(ctx, within)
			}, a.Mutex("b").Do
		},
		"stolen": func(a, b *holdfast.Client) (take, take) {
			return do(func(ctx context.Context) (*holdfast.Lease, error) {
				if _, err := b.Mutex("a").Lease(ctx); err != nil {
					return nil, err
				}
				return a.Mutex("a").Steal(ctx)
			}), a.Mutex("b").Do
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(tn *town) {
				a, b := tn.process(), tn.process()
				if name == "mutexes" { // they wait in the queue of their process
					b = a
				}
				holds, wants := how(a, b)
				errs, after := circle(tn, []take{holds, b.Mutex("b").Do}, []take{wants, b.Mutex("a").Do}, time.Millisecond)
				assert.NoError(t, errs[0])
				assert.ErrorIs(t, errs[1], holdfast.ErrDeadlock)
				assert.LessOrEqual(t, after[1], 2*pause+10*time.Millisecond)
				assert.EqualValues(t, 1, tn.reports.Load(), tn.said())
			})
		})
	}
}

// All holds some of its locks while it waits for the others.
func TestCircleThroughAllThatWaitsEnds(t *testing.T) {
	bubble(t, func(tn *town) {
		a, b := tn.process(), tn.process()
		began := time.Now()
		done := make(chan error)
		require.NoError(t, b.Mutex("b").Do(tn.Context(), func(ctx context.Context) error {
			go func() {
				l, err := holdfast.All(tn.Context(), a.Mutex("b"), a.Mutex("a"))
				done <- errors.Join(err, l.Release(tn.Context()))
			}()
			time.Sleep(pause / 2)
			err := b.Mutex("a").Do(ctx, func(context.Context) error { return nil })
			assert.ErrorIs(t, err, holdfast.ErrDeadlock)
			return nil
		}))
		require.NoError(t, <-done)
		assert.Less(t, time.Since(began), 3*pause)
		assert.EqualValues(t, 1, tn.reports.Load())
	})
}

// A goroutine that waits behind others of its process is part of a circle, too.
func TestCircleThroughAQueueWithinAProcessEnds(t *testing.T) {
	bubble(t, func(tn *town) {
		a, b := tn.process(), tn.process()
		for range 5 { // they hold nothing, and wait before it
			go func() {
				time.Sleep(pause / 10)
				_ = a.Mutex("b").Do(tn.Context(), func(context.Context) error { return nil })
			}()
		}
		errs, _ := circle(tn, []take{b.Mutex("b").Do, a.Mutex("a").Do}, []take{b.Mutex("a").Do, a.Mutex("b").Do}, pause/2)
		assert.NoError(t, errs[0])
		assert.ErrorIs(t, errs[1], holdfast.ErrDeadlock)
		assert.EqualValues(t, 1, tn.reports.Load())
	})
}

// A lock that lingers is held by nobody: it goes to whoever wants it.
func TestLockThatLingersIsNoPartOfACircle(t *testing.T) {
	bubble(t, func(tn *town) {
		a, b := tn.process(), tn.process()
		linger := holdfast.WithLinger(time.Hour)
		require.NoError(t, a.Mutex("a", linger).Do(tn.Context(), func(context.Context) error { return nil }))
		errs, after := circle(tn, []take{a.Mutex("c").Do, b.Mutex("b").Do}, []take{
			func(ctx context.Context, within func(context.Context) error) error {
				short, cancel := context.WithTimeout(ctx, 5*pause)
				defer cancel()
				if err := a.Mutex("b").Do(short, within); err == nil {
					return errors.New("b is held")
				}
				return nil
			},
			func(ctx context.Context, within func(context.Context) error) error {
				return b.Mutex("a").Do(ctx, func(context.Context) error { time.Sleep(10 * pause); return nil })
			},
		}, time.Millisecond)
		assert.NoError(t, errors.Join(errs...))
		assert.Less(t, after[1], 11*pause)
		assert.Zero(t, tn.reports.Load(), tn.said())
	})
}

// What a process has said of a lease it hands on says nothing of the next one.
func TestNoteOfALeaseThatIsHandedOnIsNoPartOfACircle(t *testing.T) {
	bubble(t, func(tn *town) {
		a, b, next := tn.process(), tn.process(), tn.process()
		l, err := a.Mutex("a").Lease(tn.Context())
		require.NoError(t, err)
		held, err := b.Mutex("b").Lease(tn.Context())
		require.NoError(t, err)
		given, giveUp := context.WithCancel(context.WithoutCancel(l.Context()))
		waited := make(chan error)
		go func() { _, err := a.Mutex("b").Lease(given); waited <- err }()
		time.Sleep(2 * pause)
		require.Len(t, deadlock.Waits(tn.look("a")), 1)
		token, err := l.Detach(tn.Context())
		require.NoError(t, err)
		l, err = next.Attach(tn.Context(), token)
		require.NoError(t, err)
		short, cancel := context.WithTimeout(held.WithContext(tn.Context()), 20*pause)
		defer cancel()
		_, err = b.Mutex("a").Lease(short) // its holder works on, and waits for nothing
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, holdfast.ErrDeadlock)
		assert.Empty(t, deadlock.Waits(tn.look("a")))
		giveUp()
		require.Error(t, <-waited)
		require.NoError(t, l.Release(tn.Context()))
		require.NoError(t, held.Release(tn.Context()))
		assert.Zero(t, tn.reports.Load())
	})
}
