package release_test

import (
	"context"
	"fmt"
	"log/slog"
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
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// slowRouter takes its time between the grant and the care for the lease.
type slowRouter struct {
	*lab.Play
	asked, answer chan struct{}
}

func (s *slowRouter) Node(driver.Kind, string) string {
	close(s.asked)
	<-s.answer
	return ""
}

func TestGrantThatArrivesDuringCloseIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &slowRouter{Play: lab.NewPlay(), asked: make(chan struct{}), answer: make(chan struct{})}
		c := holdfast.Open(p, holdfast.WithTTL(lab.PlayTTL))
		w := lab.Wait(t.Context(), c.Mutex("x"))
		(<-p.Asks).Granted(1)
		<-p.asked
		closed := make(chan error)
		go func() { closed <- c.Close() }()
		synctest.Wait()
		close(p.answer)
		require.NoError(t, <-closed)
		<-w.Done
		require.ErrorIs(t, w.Err, holdfast.ErrClosed)
		require.Equal(t, []string{"acquire", "release", "close"}, p.Calls())
	})
}

// counting grants everything and counts what is given back.
type counting struct {
	lab.Instant
	released sync.Map
}

func (c *counting) Release(_ context.Context, l driver.Lease) error {
	c.released.Store(l.Token, true)
	return nil
}

func TestReleaseBesideCloseLeavesNothingHeld(t *testing.T) {
	const leases = 2000
	d := &counting{}
	c := holdfast.Open(d, holdfast.WithStrictFIFO()) // so that all can hold it, in a store that does not mind
	var held []*holdfast.Lease
	for range leases {
		l, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		held = append(held, l)
	}
	var wg sync.WaitGroup
	for _, l := range held {
		wg.Go(func() { _ = l.Release(context.Background()) })
	}
	require.NoError(t, c.Close())
	wg.Wait()
	n := 0
	d.released.Range(func(any, any) bool { n++; return true })
	require.Equal(t, leases, n)
}

// silent answers nothing but acquires until it is told to.
type silent struct {
	lab.Instant
	speak  chan struct{}
	closed atomic.Bool
}

func (s *silent) Release(context.Context, driver.Lease) error { <-s.speak; return nil }

func (s *silent) Close() error { s.closed.Store(true); return nil }

func TestCloseThatGaveUpStillClosesTheDriverInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &silent{speak: make(chan struct{})}
		c := holdfast.Open(d)
		_, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		began := time.Now()
		require.Error(t, c.Close())
		require.Equal(t, 10*time.Second, time.Since(began))
		require.False(t, d.closed.Load())
		close(d.speak)
		synctest.Wait()
		require.True(t, d.closed.Load())
	})
}

// breaking answers quickly until it is broken, and then fails quickly.
type breaking struct {
	lab.Instant
	broken atomic.Bool
}

func (b *breaking) Release(context.Context, driver.Lease) error {
	if b.broken.Load() {
		return driver.ErrTransient
	}
	return nil
}

func TestUnlockAfterABurstWaitsNoLongerThanASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &breaking{}
		c := holdfast.Open(d, holdfast.WithTTL(4*time.Second))
		defer c.Close()
		mu := c.Mutex("x")
		for range 1000 {
			mu.Lock()
			mu.Unlock()
		}
		mu.Lock()
		d.broken.Store(true)
		began := time.Now()
		mu.Unlock()
		require.LessOrEqual(t, time.Since(began), time.Second)
		d.broken.Store(false)
	})
}

// Each Close returns, and the driver is closed once, whatever ends beside them.
func TestClosesBesideTheLastOperationAllReturn(t *testing.T) {
	for range redistest.Rounds(3000) {
		d := &counted{Instant: lab.Instant{}}
		c := holdfast.Open(d)
		lease, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		var wg sync.WaitGroup
		wg.Go(func() { _ = lease.Release(context.Background()) })
		for range 3 {
			wg.Go(func() { assert.NoError(t, c.Close()) })
		}
		lab.Promptly(t, lab.Soon, func() error { wg.Wait(); return nil })
		require.EqualValues(t, 1, d.closes.Load())
	}
}

// counted counts how often it is closed.
type counted struct {
	lab.Instant
	closes atomic.Int32
}

func (c *counted) Close() error { c.closes.Add(1); return nil }

// Close ends what runs under a lease. That says why, in its context and in its error.
func TestDoTellsThatTheClientWasClosed(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		for what, returned := range map[string]func(context.Context) error{
			"the cause": context.Cause,
			"the end":   func(ctx context.Context) error { return ctx.Err() },
			"nothing":   func(context.Context) error { return nil },
		} {
			c := l.Near()
			err := c.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
				require.NoError(t, c.Close())
				<-ctx.Done()
				require.Equal(t, context.Canceled, ctx.Err())
				require.Equal(t, holdfast.ErrClosed, context.Cause(ctx))
				return returned(ctx)
			})
			require.ErrorIs(t, err, holdfast.ErrClosed, what)
			require.NotErrorIs(t, err, holdfast.ErrLost, what)
			require.Equal(t, 1, strings.Count(err.Error(), "client closed"), err)
		}
	})
}

// The lease of another client says nothing about this one.
func TestClientIsNotClosedWithTheContextOfAnother(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Near(), l.Near()
		outer, held := l.Lease(a, "x"), l.Lease(b, "y")
		require.NoError(t, a.Close())
		err := held.Renew(outer.Context())
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, holdfast.ErrClosed)
		require.NoError(t, held.Release(outer.Context()))
	})
}

// A lease that Close has released is over, for whatever guards the writes under it.
func TestNothingIsWrittenUnderALeaseThatCloseHasReleased(t *testing.T) {
	c := lab.WithPuppet(t, lab.Puppet{})
	lease, err := c.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	ctx := context.WithoutCancel(lease.Context())
	guarded := holdfast.GuardHook().ProcessHook(func(context.Context, redis.Cmder) error { return nil })
	write := func() error { return guarded(ctx, redis.NewStatusCmd(ctx, "set", "k", "v")) }
	require.NoError(t, write())
	require.NoError(t, c.Close())
	require.ErrorIs(t, write(), holdfast.ErrLost)
	_, err = fence.Of(ctx)
	require.ErrorIs(t, err, holdfast.ErrLost)
}

// A lease that was held for too long is lost, but not over: the store still keeps it.
func TestCloseReleasesALeaseThatWasHeldForTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var up atomic.Bool
		c := holdfast.Open(lab.Puppet{OnRelease: func(driver.Lease) error {
			if up.Load() {
				return nil
			}
			return driver.ErrTransient
		}}, holdfast.WithMaxHold(time.Second), holdfast.WithTTL(lab.Ages))
		lease, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		<-lease.Done()
		require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrHeldTooLong)
		time.AfterFunc(5*time.Second, func() { up.Store(true) })
		began := time.Now()
		require.NoError(t, c.Close())
		require.GreaterOrEqual(t, time.Since(began), 5*time.Second)
	})
}

// hanging renews nothing, and its releases return only when their context ends.
type hanging struct{ lab.Instant }

func (hanging) Renew(_ context.Context, leases []driver.Lease) []error {
	return slices.Repeat([]error{driver.ErrTransient}, len(leases))
}

func (hanging) Release(ctx context.Context, _ driver.Lease) error {
	<-ctx.Done()
	return driver.ErrTransient
}

func TestCloseCallsOffTheReleaseOfALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := holdfast.Open(hanging{}, holdfast.WithLogger(slog.New(slog.DiscardHandler)))
		lease, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		<-lease.Done()
		require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrLost)
		synctest.Wait()
		began := time.Now()
		require.NoError(t, c.Close())
		require.Zero(t, time.Since(began))
	})
}

// calls counts the scripts that are sent.
type calls struct{ n atomic.Int64 }

func (*calls) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *calls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *calls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// spanning has commands be sent one by one, as each is to have a span of its own.
type spanning struct{ holdfast.HookBase }

func (spanning) MakesSpans() {}

// At some distance one trip for each would take longer than Close waits.
func TestCloseReleasesThousandsOfLeasesInFewCalls(t *testing.T) {
	for _, spans := range []bool{false, true} {
		t.Run(fmt.Sprint("spans ", spans), func(t *testing.T) {
			lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
				const leases = 2000
				counted := new(calls)
				rdb := l.Server.Client(t)
				rdb.AddHook(counted)
				c := l.Open(rdb, holdfast.WithTTL(time.Minute))
				if spans {
					c.AddHook(spanning{})
				}
				var taking sync.WaitGroup
				for i := range leases {
					taking.Go(func() {
						_, err := c.Mutex(fmt.Sprint("many", i)).Lease(t.Context())
						assert.NoError(t, err)
					})
				}
				taking.Wait()
				before := counted.n.Load()
				require.NoError(t, c.Close())
				require.Less(t, counted.n.Load()-before, int64(leases/10))
				left, err := l.Near().List(t.Context(), "many")
				require.NoError(t, err)
				require.Empty(t, left)
			})
		})
	}
}
