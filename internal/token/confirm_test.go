package token_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// jury is a driver whose replicas the test speaks for.
type jury struct {
	driver.Driver
	vote func(n int, timeout time.Duration) error
}

func (j jury) Unwrap() driver.Driver { return j.Driver }

func (j jury) Confirm(ctx context.Context, l driver.Lease, want driver.Confirmation) error {
	if err := j.Renew(ctx, []driver.Lease{l})[0]; err != nil {
		return err
	}
	return j.vote(want.Replicas, want.Timeout)
}

// deaf are replicas that do not answer in time.
func deaf(_ int, timeout time.Duration) error {
	time.Sleep(timeout)
	return driver.ErrNotConfirmed
}

const (
	wanted  = 2
	replies = 800 * time.Millisecond // how long the replicas have
)

// judged returns a client, at the end of the link, that has each acquisition confirmed by
// vote.
func judged(l *lab.Lab, vote func(n int, timeout time.Duration) error, opts ...holdfast.Option) *holdfast.Client {
	l.T.Helper()
	d := redisdriver.New(l.Link.Client(l.T), redisdriver.WithPrefix(l.Server.Prefix()), redisdriver.WithRetention(l.Retention))
	c := holdfast.Open(jury{d, vote}, append([]holdfast.Option{
		holdfast.WithTTL(lab.Ages), holdfast.WithReplicas(wanted, replies),
		holdfast.WithLogger(slog.New(slog.NewTextHandler(&l.Log, nil))),
	}, opts...)...)
	l.T.Cleanup(func() { assert.NoError(l.T, c.Close()) })
	return c
}

// all are the forms of Lease, and of TryLease, for each kind of lock.
func all(c *holdfast.Client) (wait, try []lab.Leasing) {
	m, rw, s := c.Mutex("x"), c.RWMutex("x"), c.Semaphore("x", 3)
	wait = []lab.Leasing{m.Lease, rw.Lease, rw.RLease, lab.Permits(s, 2)}
	try = []lab.Leasing{m.TryLease, rw.TryLease, rw.TryRLease, func(ctx context.Context) (*holdfast.Lease, error) { return s.TryLease(ctx, 2) }}
	return wait, try
}

// inTime is inBubble for bodies that measure.
func inTime(t *testing.T, body func(*testing.T, *lab.Lab)) {
	t.Helper()
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		l := lab.New(t, s)
		l.Virtual, l.Slack, l.Retention = true, 20*time.Millisecond, 2*time.Second
		body(t, l)
	})
}

// It is free when the caller is told: a program may end with the error, or try again at once.
func TestWhatReplicasDoNotConfirmIsGivenBack(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab.Lab) {
		c, other := judged(l, deaf), l.Near()
		_, try := all(c)
		_, again := all(other)
		l.Link.Delay(20 * time.Millisecond) // of other there is none
		for i := range try {
			began := time.Now()
			lease, err := try[i](t.Context())
			require.ErrorIs(t, err, holdfast.ErrNotConfirmed)
			require.Nil(t, lease)
			assert.Less(t, time.Since(began), 2*replies, "it is tried again")
			var lockError *holdfast.LockError
			require.ErrorAs(t, err, &lockError)
			assert.Equal(t, "not_confirmed", lockError.ErrorType())
			lease, err = again[i](t.Context())
			require.NoError(t, err)
			require.NoError(t, lease.Release(t.Context()))
		}
		assert.False(t, c.Mutex("x").TryLock())
		l.Free(other, "x")
	})
}

func TestWaiterTriesUntilEnoughReplicasConfirm(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab.Lab) {
		var votes atomic.Int64
		wait, _ := all(judged(l, func(n int, timeout time.Duration) error {
			assert.Equal(t, wanted, n)
			assert.LessOrEqual(t, timeout, replies)
			if votes.Add(1)%4 == 0 {
				return nil
			}
			return deaf(n, timeout)
		}))
		for _, lease := range wait {
			began := time.Now()
			got := l.Take(lease)
			assert.GreaterOrEqual(t, time.Since(began), 3*replies)
			l.GiveBack(got)
		}
		assert.EqualValues(t, 16, votes.Load())
	})
}

// A waiter that cannot have a copy must not keep the lock from those who want none.
func TestUnconfirmedGrantGoesToTheNextInTheQueue(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab.Lab) {
		held := l.Lease(l.Near(), "x")
		doubtful := l.Wait(judged(l, deaf), "x")
		l.UntilQueue("x", 1)
		next := l.Wait(l.Near(), "x")
		l.UntilQueue("x", 2)
		require.NoError(t, held.Release(t.Context()))
		lease := next.Granted(lab.Soon)
		l.UntilQueue("x", 1) // it is back, at the end
		l.Holds(lease)
		doubtful.Cancel(nil)
		require.ErrorIs(t, doubtful.Failed(lab.Soon), context.Canceled)
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestEndOfWaitingTellsThatReplicasAreMissing(t *testing.T) {
	const limit = 5*replies + replies/2
	inTime(t, func(t *testing.T, l *lab.Lab) {
		c, cause := judged(l, deaf), errors.New("the budget is used up")
		ctx, cancel := context.WithTimeoutCause(t.Context(), limit, cause)
		defer cancel()
		began := time.Now()
		_, err := c.Mutex("x").Lease(ctx)
		assert.Less(t, time.Since(began), limit+10*time.Millisecond)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, cause)
		require.ErrorIs(t, err, holdfast.ErrNotConfirmed)
		var lockError *holdfast.LockError
		require.ErrorAs(t, err, &lockError)
		assert.Equal(t, "timeout", lockError.ErrorType())
		l.SoonFree(l.Near(), "x")
	})
}

// Also if what comes last is something else.
func TestEndOfWaitingRemembersThatReplicasWereMissing(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab.Lab) {
		c := judged(l, func(int, time.Duration) error {
			l.Link.BlackHole(true)
			return driver.ErrNotConfirmed
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Mutex("x").Lease(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, holdfast.ErrNotConfirmed)
		l.Link.BlackHole(false)
		l.Link.Cut()
		l.SoonFree(l.Near(), "x")
	})
}

func TestConfirmationIsCalledOff(t *testing.T) {
	for name, end := range map[string]struct {
		by  func(*holdfast.Client, *lab.Pending) error
		err error
	}{
		"by the context": {func(_ *holdfast.Client, p *lab.Pending) error { p.Cancel(nil); return nil }, context.Canceled},
		"by Close":       {func(c *holdfast.Client, _ *lab.Pending) error { return c.Close() }, holdfast.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, l *lab.Lab) {
				voting := make(chan struct{})
				c := judged(l, func(_ int, timeout time.Duration) error {
					close(voting)
					time.Sleep(timeout)
					return nil // too late
				})
				p := l.Wait(c, "x")
				<-voting
				began := time.Now()
				require.NoError(t, end.by(c, p))
				require.ErrorIs(t, p.Failed(lab.Soon), end.err)
				assert.Less(t, p.At.Sub(began), 10*time.Millisecond)
				l.SoonFree(l.Near(), "x")
			})
		})
	}
}

func TestConfirmationThatHangsIsGivenUp(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab.Lab) {
		c := judged(l, func(int, time.Duration) error { time.Sleep(lab.Ages / 2); return nil })
		began := time.Now()
		_, err := c.Mutex("x").TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrNotConfirmed)
		assert.Less(t, time.Since(began), replies+lab.Ages/4+l.Slack)
		l.SoonFree(l.Near(), "x")
	})
}

func TestTroubleOnTheWayToTheReplicasIsTriedAgain(t *testing.T) {
	moved := fmt.Errorf("moved: %w", driver.ErrTransient)
	refused := errors.Join(errors.New("refused"), driver.ErrNotExecuted)
	unknown := errors.New("upstream failure")
	inTime(t, func(t *testing.T, l *lab.Lab) {
		for _, scene := range []struct {
			vote  func(n int64) error
			asked int64 // at least
			err   error
		}{
			{func(n int64) error { return map[bool]error{n < 4: moved}[true] }, 4, nil},
			{func(int64) error { return moved }, 5, holdfast.ErrNotConfirmed},
			{func(n int64) error { return map[bool]error{n < 4: unknown}[true] }, 4, nil},
			{func(int64) error { return unknown }, 5, unknown},
			{func(int64) error { return refused }, 1, refused},
		} {
			var votes atomic.Int64
			c := judged(l, func(int, time.Duration) error { return scene.vote(votes.Add(1)) })
			began := time.Now()
			lease, err := c.Mutex("x").TryLease(t.Context())
			require.ErrorIs(t, err, scene.err)
			assert.GreaterOrEqual(t, votes.Load(), scene.asked)
			assert.LessOrEqual(t, time.Since(began), replies)
			if err == nil {
				l.Holds(lease)
				l.GiveBack(lease)
			}
			l.SoonFree(l.Near(), "x")
		}
		_, err := judged(l, func(int, time.Duration) error { return refused }).Mutex("x").Lease(t.Context())
		require.ErrorIs(t, err, refused, "nor does one that waits wait it out")
		l.SoonFree(l.Near(), "x")
	})
}

// It is not renewed by anybody else until it is given out.
func TestConfirmationLeavesHalfOfTheLease(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab.Lab) {
		const ttl = replies
		c := judged(l, func(_ int, timeout time.Duration) error {
			assert.LessOrEqual(t, timeout, ttl/2)
			time.Sleep(timeout - 1)
			return nil
		}, holdfast.WithTTL(ttl))
		lease := l.Lease(c, "x")
		assert.Greater(t, time.Until(lease.Deadline()), ttl/3)
		l.Keeps(lease, 2*ttl)
		require.NoError(t, lease.Release(t.Context()))
	})
}

// A grant that was pushed long after its ask is as good as new once it has been confirmed.
func TestTrustCountsFromTheConfirmation(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab.Lab) {
		held := l.Lease(l.Near(), "x")
		p := l.Wait(judged(l, func(int, time.Duration) error { return nil }), "x")
		l.UntilQueue("x", 1)
		time.Sleep(lab.Ages / 4)
		require.NoError(t, held.Release(t.Context()))
		lease := p.Granted(lab.Soon)
		assert.Greater(t, time.Until(lease.Deadline()), lab.Ages-lab.Ages/50)
		require.NoError(t, lease.Release(t.Context()))
	})
}

// The confirmation renews the lease, and may have done so as soon as it was sent.
func TestConfirmationIsTrustedFromWhenItWasAskedFor(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab.Lab) {
		const slow = lab.Ages / 60
		began := time.Now()
		lease := l.Lease(judged(l, func(int, time.Duration) error { time.Sleep(slow); return nil }), "x")
		require.GreaterOrEqual(t, time.Since(began), slow)
		assert.Less(t, lease.Deadline().Sub(began), lab.Ages)
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestLockWaitsForReplicasAndSaysSoOnce(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab.Lab) {
		var votes atomic.Int64
		m := judged(l, func(n int, timeout time.Duration) error {
			if votes.Add(1) == 7 {
				return nil
			}
			return deaf(n, timeout)
		}).Mutex("x")
		m.Lock()
		assert.EqualValues(t, 7, votes.Load())
		time.Sleep(time.Second) // a line waits for others to share it
		assert.Equal(t, 1, strings.Count(l.Log.String(), "still waiting for the store"), l.Log.String())
		m.Unlock()
	})
}

// A grant can be taken away by force while the replicas are asked.
func TestGrantThatIsTakenAwayBeforeItIsConfirmedIsLost(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab.Lab) {
		force := l.Near().Mutex("x")
		forced := 0
		c := judged(l, func(n int, timeout time.Duration) error {
			if forced++; forced > 2 {
				return nil
			}
			assert.NoError(t, force.ForceUnlock(t.Context()))
			return driver.ErrNotHeld
		})
		_, err := c.Mutex("x").TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLost)
		var lockError *holdfast.LockError
		require.ErrorAs(t, err, &lockError)
		require.Equal(t, "lock_lost", lockError.ErrorType())
		l.GiveBack(l.Wait(c, "x").Granted(lab.Soon)) // a waiter begins again
		require.Equal(t, 3, forced)
	})
}

func TestStoreThatKnowsOfNoReplicasRefuses(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab.Lab) {
		d := redisdriver.New(l.Server.Client(t), redisdriver.WithPrefix(l.Server.Prefix()), redisdriver.WithRetention(l.Retention))
		c := holdfast.Open(lab.Bare{Driver: d}, holdfast.WithTTL(lab.Ages))
		defer func() { assert.NoError(t, c.Close()) }()
		want := holdfast.WithReplicas(1, time.Second)
		for range 2 { // the store has carried out a command since
			m := c.Mutex("x", want)
			_, err := m.Lease(t.Context())
			require.ErrorIs(t, err, errors.ErrUnsupported)
			_, err = m.TryLease(t.Context())
			require.ErrorIs(t, err, errors.ErrUnsupported)
			assert.Panics(t, m.Lock)
			assert.Panics(t, func() { m.TryLock() })
			l.Free(c, "x")
		}
	})
}
