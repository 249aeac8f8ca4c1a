package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

var contextCases = []property{
	{"CancelledAcquireIsSettledByRelease", func(t *test) {
		a, b := t.pair()
		_, err := a.ask(cancelled())
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, driver.ErrNotHeld)
		a.settled()
		b.lock()
		a.refused()
	}},
	{"CancelledWaitIsSettledByRelease", func(t *test) {
		t.needs(Queue)
		a, b := t.couple()
		_, err := b.ask(cancelled())
		require.ErrorIs(t, err, context.Canceled)
		b.settled()
		a.release()
		t.contender(t.driver()).lock()
		b.refused()
	}},
	{"AcquireCutOffAnywhereIsSettledByRelease", func(t *test) {
		a, b := t.driver(), t.driver()
		for i := range 40 {
			c := t.contender(a)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*25*time.Microsecond)
			g, err := c.ask(ctx)
			cancel()
			if err == nil {
				require.Equal(t, driver.Granted, g.Status)
			}
			c.settled()
			next := t.contender(b)
			next.lock()
			c.refused()
			next.release()
		}
	}},
	{"ReleaseSettlesAnAcquireUnderWay", func(t *test) {
		// Its caller has given up and does not wait for it to return.
		a, b, queues := t.driver(), t.driver(), t.has(Queue)
		for i := range 40 {
			c, holder, next := t.contender(a), t.contender(b), t.contender(b)
			c.req.Wait = queues && i%2 == 1
			if c.req.Wait {
				holder.lock()
			}
			c.settledUnderWay(time.Duration(i/2) * 20 * time.Microsecond)
			if c.req.Wait {
				holder.release()
			}
			next.lock()
			next.release()
		}
	}},
	{"CancelledRenewDoesNotKnow", func(t *test) {
		a := t.contender(t.driver())
		a.lock()
		errs := a.d.Renew(cancelled(), []driver.Lease{a.lease(), a.lease()})
		require.Len(t, errs, 2)
		for _, err := range errs {
			require.NotErrorIs(t, err, driver.ErrNotHeld, "it holds the lock")
		}
		a.holds()
	}},
	{"CancelledReleaseDoesNotKnow", func(t *test) {
		a, b := t.pair()
		a.lock()
		err := a.d.Release(cancelled(), a.lease())
		require.NotErrorIs(t, err, driver.ErrNotHeld, "it held the lock")
		if errors.Is(err, driver.ErrNotExecuted) {
			b.busy()
		}
		a.settled()
		b.lock()
	}},
	{"CancelledRequestsDoNotHurtTheDriver", func(t *test) {
		d := t.driver()
		for range 50 {
			_, _ = t.contender(d).ask(cancelled()) // On purpose; the next line settles nothing.
		}
		a, b := t.contender(d, named(t.unique())), t.contender(d, waiting)
		b.req.Name = a.req.Name
		a.lock()
		if t.has(Queue) {
			b.queue()
			a.release()
			b.lock()
		}
	}},
}

var closeCases = []property{
	{"CloseReleasesNothing", func(t *test) {
		d := t.open(t.T)
		a, b := t.contender(d), t.contender(t.driver())
		a.lock()
		require.NoError(t, d.Close())
		b.busy()
		a.d = b.d
		a.release()
		b.lock()
	}},
	{"CloseLeavesWhatAStrangerRenewed", func(t *test) {
		d := t.open(t.T)
		a, b := t.contender(t.driver()), t.contender(t.driver())
		a.lock()
		require.NoError(t, d.Renew(t.Context(), []driver.Lease{a.lease()})[0])
		require.NoError(t, d.Close())
		b.busy()
		a.release()
		b.lock()
	}},
	{"CloseAfterWaiting", func(t *test) {
		t.needs(Queue)
		d := t.open(t.T)
		a, b := t.contender(t.driver(), waiting), t.contender(d, waiting)
		a.lock()
		b.queue()
		b.release()
		require.NoError(t, d.Close())
		c := t.contender(a.d, waiting)
		c.queue()
		a.release()
		c.lock()
	}},
	{"CloseOfAnUnusedDriver", func(t *test) {
		require.NoError(t, t.open(t.T).Close())
	}},
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// settled makes sure that the token has nothing and gets nothing.
func (c *contender) settled() {
	if err := c.settle(); !errors.Is(err, driver.ErrNotHeld) {
		require.NoError(c.t, err)
	}
}

// settledUnderWay asks, and releases the token after d, whether or not there is an
// answer by then. It returns when both are done.
func (c *contender) settledUnderWay(d time.Duration) {
	ctx, cancel := c.t.bounded()
	defer cancel()
	asking, answered := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(answered)
		close(asking)
		_, _ = c.ask(ctx) // Nobody is there to hear it.
	}()
	<-asking
	time.Sleep(d)
	c.settled()
	<-answered
}
