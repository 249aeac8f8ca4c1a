package holdfast_test

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
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// jury is a driver whose replicas the test speaks for.
type jury struct {
	driver.Driver
	vote func(n int, timeout time.Duration) error
}

func (j jury) Unwrap() driver.Driver { return j.Driver }

func (j jury) Confirm(ctx context.Context, l driver.Lease, n int, timeout time.Duration) error {
	if err := j.Renew(ctx, []driver.Lease{l})[0]; err != nil {
		return err
	}
	return j.vote(n, timeout)
}

// deaf are replicas that do not answer in time.
func deaf(_ int, timeout time.Duration) error {
	time.Sleep(timeout)
	return driver.ErrNotReplicated
}

const (
	wanted  = 2
	replies = 800 * time.Millisecond // how long the replicas have
)

// judged returns a client, at the end of the link, that has each acquisition confirmed by
// vote.
func (l *lab) judged(vote func(n int, timeout time.Duration) error, opts ...holdfast.Option) *holdfast.Client {
	l.t.Helper()
	d := redisdriver.New(l.link.Client(l.t), redisdriver.WithPrefix(l.s.Prefix()), redisdriver.WithRetention(l.retention))
	c := holdfast.Open(jury{d, vote}, append([]holdfast.Option{
		holdfast.WithTTL(ages), holdfast.WithReplicas(wanted, replies),
		holdfast.WithLogger(slog.New(slog.NewTextHandler(&l.log, nil))),
	}, opts...)...)
	l.t.Cleanup(func() { assert.NoError(l.t, c.Close()) })
	return c
}

// all are the forms of Lease, and of TryLease, for each kind of lock.
func all(c *holdfast.Client) (wait, try []leasing) {
	m, rw, s := c.Mutex("x"), c.RWMutex("x"), c.Semaphore("x", 3)
	wait = []leasing{m.Lease, rw.Lease, rw.RLease, permits(s, 2)}
	try = []leasing{m.TryLease, rw.TryLease, rw.TryRLease, func(ctx context.Context) (*holdfast.Lease, error) { return s.TryLease(ctx, 2) }}
	return wait, try
}

// inTime is inBubble for bodies that measure.
func inTime(t *testing.T, body func(*testing.T, *lab)) {
	t.Helper()
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		l := newLab(t, s)
		l.virtual, l.slack, l.retention = true, 20*time.Millisecond, 2*time.Second
		body(t, l)
	})
}

func TestWhatReplicasDoNotConfirmIsGivenBack(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab) {
		c, other := l.judged(deaf), l.near()
		_, try := all(c)
		_, again := all(other)
		for i := range try {
			began := time.Now()
			lease, err := try[i](t.Context())
			require.ErrorIs(t, err, holdfast.ErrNotReplicated)
			require.Nil(t, lease)
			assert.Equal(t, replies, time.Since(began))
			var lockError *holdfast.LockError
			require.ErrorAs(t, err, &lockError)
			assert.Equal(t, "not_replicated", lockError.ErrorType())
			l.until("it is free", func() bool {
				lease, err := again[i](t.Context())
				return err == nil && assert.NoError(t, lease.Release(t.Context()))
			})
		}
		assert.False(t, c.Mutex("x").TryLock())
		l.soonFree(other, "x")
	})
}

func TestWaiterTriesUntilEnoughReplicasConfirm(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab) {
		var votes atomic.Int64
		wait, _ := all(l.judged(func(n int, timeout time.Duration) error {
			assert.Equal(t, wanted, n)
			assert.LessOrEqual(t, timeout, replies)
			if votes.Add(1)%4 == 0 {
				return nil
			}
			return deaf(n, timeout)
		}))
		for _, lease := range wait {
			began := time.Now()
			got := l.take(lease)
			assert.GreaterOrEqual(t, time.Since(began), 3*replies)
			l.giveBack(got)
		}
		assert.EqualValues(t, 16, votes.Load())
	})
}

// Who cannot have a copy must not keep the lock from those who want none.
func TestUnconfirmedGrantGoesToTheNextInTheQueue(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab) {
		held := l.lease(l.near(), "x")
		doubtful := l.wait(l.judged(deaf), "x")
		l.untilQueue("x", 1)
		next := l.wait(l.near(), "x")
		l.untilQueue("x", 2)
		require.NoError(t, held.Release(t.Context()))
		lease := next.granted(soon)
		l.untilQueue("x", 1) // it is back, at the end
		l.holds(lease)
		doubtful.cancel(nil)
		require.ErrorIs(t, doubtful.failed(soon), context.Canceled)
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestEndOfWaitingTellsThatReplicasAreMissing(t *testing.T) {
	const limit = 5*replies + replies/2
	inTime(t, func(t *testing.T, l *lab) {
		c := l.judged(deaf)
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		began := time.Now()
		_, err := c.Mutex("x").Lease(ctx)
		assert.Less(t, time.Since(began), limit+10*time.Millisecond)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, holdfast.ErrNotReplicated)
		var lockError *holdfast.LockError
		require.ErrorAs(t, err, &lockError)
		assert.Equal(t, "timeout", lockError.ErrorType())
		l.soonFree(l.near(), "x")
	})
}

// Also if what comes last is something else.
func TestEndOfWaitingRemembersThatReplicasWereMissing(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab) {
		c := l.judged(func(int, time.Duration) error {
			l.link.BlackHole(true)
			return driver.ErrNotReplicated
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Mutex("x").Lease(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, holdfast.ErrNotReplicated)
		l.link.BlackHole(false)
		l.link.Cut()
		l.soonFree(l.near(), "x")
	})
}

func TestConfirmationIsCalledOff(t *testing.T) {
	for name, end := range map[string]struct {
		by  func(*holdfast.Client, *pending) error
		err error
	}{
		"by the context": {func(_ *holdfast.Client, p *pending) error { p.cancel(nil); return nil }, context.Canceled},
		"by Close":       {func(c *holdfast.Client, _ *pending) error { return c.Close() }, holdfast.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, l *lab) {
				voting := make(chan struct{})
				c := l.judged(func(_ int, timeout time.Duration) error {
					close(voting)
					time.Sleep(timeout)
					return nil // too late
				})
				p := l.wait(c, "x")
				<-voting
				began := time.Now()
				require.NoError(t, end.by(c, p))
				require.ErrorIs(t, p.failed(soon), end.err)
				assert.Less(t, p.at.Sub(began), 10*time.Millisecond)
				l.soonFree(l.near(), "x")
			})
		})
	}
}

func TestConfirmationThatHangsIsGivenUp(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab) {
		c := l.judged(func(int, time.Duration) error { time.Sleep(ages / 2); return nil })
		began := time.Now()
		_, err := c.Mutex("x").TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrNotReplicated)
		assert.Less(t, time.Since(began), replies+ages/4+l.slack)
		l.soonFree(l.near(), "x")
	})
}

func TestTroubleOnTheWayToTheReplicasIsTriedAgain(t *testing.T) {
	moved := fmt.Errorf("moved: %w", driver.ErrTransient)
	refused := errors.New("refused")
	inTime(t, func(t *testing.T, l *lab) {
		for _, scene := range []struct {
			vote  func(n int64) error
			asked int64 // at least
			err   error
		}{
			{func(n int64) error { return map[bool]error{n < 4: moved}[true] }, 4, nil},
			{func(int64) error { return moved }, 5, holdfast.ErrNotReplicated},
			{func(int64) error { return refused }, 1, refused},
		} {
			var votes atomic.Int64
			c := l.judged(func(int, time.Duration) error { return scene.vote(votes.Add(1)) })
			began := time.Now()
			lease, err := c.Mutex("x").TryLease(t.Context())
			require.ErrorIs(t, err, scene.err)
			assert.GreaterOrEqual(t, votes.Load(), scene.asked)
			assert.LessOrEqual(t, time.Since(began), replies)
			if err == nil {
				l.holds(lease)
				l.giveBack(lease)
			}
			l.soonFree(l.near(), "x")
		}
	})
}

func TestRefusalToConfirmIsNotWaitedOut(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab) {
		refused := errors.New("refused")
		_, err := l.judged(func(int, time.Duration) error { return refused }).Mutex("x").Lease(t.Context())
		require.ErrorIs(t, err, refused)
		l.soonFree(l.near(), "x")
	})
}

// It was granted, and taken away by a failover before it was confirmed.
func TestGrantThatIsGoneWhenItIsConfirmedIsAskedForAgain(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab) {
		var votes atomic.Int64
		c := l.judged(func(int, time.Duration) error {
			return map[int64]error{1: driver.ErrNotHeld}[votes.Add(1)]
		})
		lease := l.lease(c, "x")
		assert.EqualValues(t, 2, votes.Load())
		l.holds(lease)
		require.NoError(t, lease.Release(t.Context()))
	})
}

// It is not renewed by anybody else until it is given out.
func TestConfirmationLeavesHalfOfTheLease(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab) {
		const ttl = replies
		c := l.judged(func(_ int, timeout time.Duration) error {
			assert.LessOrEqual(t, timeout, ttl/2)
			time.Sleep(timeout - 1)
			return nil
		}, holdfast.WithTTL(ttl))
		lease := l.lease(c, "x")
		assert.Greater(t, time.Until(lease.Deadline()), ttl/3)
		l.keeps(lease, 2*ttl)
		require.NoError(t, lease.Release(t.Context()))
	})
}

// What was pushed long after its ask is as good as new when it has been confirmed.
func TestTrustCountsFromTheConfirmation(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab) {
		held := l.lease(l.near(), "x")
		p := l.wait(l.judged(func(int, time.Duration) error { return nil }), "x")
		l.untilQueue("x", 1)
		time.Sleep(ages / 4)
		require.NoError(t, held.Release(t.Context()))
		lease := p.granted(soon)
		assert.Greater(t, time.Until(lease.Deadline()), ages-ages/50)
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestLockWaitsForReplicasAndSaysSoOnce(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab) {
		var votes atomic.Int64
		m := l.judged(func(n int, timeout time.Duration) error {
			if votes.Add(1) == 5 {
				return nil
			}
			return deaf(n, timeout)
		}).Mutex("x")
		m.Lock()
		assert.EqualValues(t, 5, votes.Load())
		assert.Equal(t, 1, strings.Count(l.log.String(), "still waiting for the store"), l.log.String())
		m.Unlock()
	})
}

// What was granted can be taken away by force while the replicas are asked.
func TestGrantThatIsTakenAwayBeforeItIsConfirmedIsLost(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab) {
		force := l.near().Mutex("x")
		forced := 0
		c := l.judged(func(n int, timeout time.Duration) error {
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
		l.giveBack(l.wait(c, "x").granted(soon)) // a waiter begins again
		require.Equal(t, 3, forced)
	})
}

func TestStoreThatKnowsOfNoReplicasRefuses(t *testing.T) {
	inTime(t, func(t *testing.T, l *lab) {
		d := redisdriver.New(l.s.Client(t), redisdriver.WithPrefix(l.s.Prefix()), redisdriver.WithRetention(l.retention))
		c := holdfast.Open(bare{d}, holdfast.WithTTL(ages))
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
			l.free(c, "x")
		}
	})
}

func TestWithReplicasRefusesNonsense(t *testing.T) {
	for _, f := range []func(){
		func() { holdfast.WithReplicas(0, time.Second) },
		func() { holdfast.WithReplicas(1, 9*time.Millisecond) },
	} {
		assert.Panics(t, f)
	}
}
