package drivertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// contender is one token and what a client must remember for it. It belongs to
// one goroutine.
type contender struct {
	t     *test
	d     driver.Driver
	req   driver.Request
	wakes chan driver.Grant // every call of Wake

	place   string // among others, for what is told of it
	resizes int    // for the tokens of their own that those have

	sent  []time.Time  // when each ask was sent
	grant driver.Grant // the last one

	// The lease ends between these two, if nobody ends it: not before, because its
	// holder trusts it until then, nor after, because others wait.
	trusted time.Time
	overdue time.Time
}

// contender returns a new token that wants the lock of the test, for a long time
// and without waiting unless mods say otherwise.
func (t *test) contender(d driver.Driver, mods ...func(*driver.Request)) *contender {
	c := &contender{t: t, d: d, wakes: make(chan driver.Grant, 64)}
	c.req = driver.Request{
		Name:   t.name,
		Token:  fmt.Sprintf("drivertest-%016x%016x", rand.Uint64(), rand.Uint64()),
		TTL:    long,
		Holder: "drivertest",
		Wake: func(g driver.Grant) {
			select {
			case c.wakes <- g:
			default: // It must not block; nobody counts that many.
			}
		},
	}
	t.shape(&c.req)
	for _, mod := range mods {
		mod(&c.req)
	}
	return c
}

// pair returns two tokens that want the lock of the test from different drivers.
func (t *test) pair(mods ...func(*driver.Request)) (a, b *contender) {
	return t.contender(t.driver(), mods...), t.contender(t.driver(), mods...)
}

// couple returns a holder, and a token of another driver that waits for it.
func (t *test) couple() (holder, waiter *contender) {
	holder, waiter = t.pair(waiting)
	holder.lock()
	waiter.queue()
	return holder, waiter
}

func waiting(r *driver.Request) { r.Wait = true }

func named(name string) func(*driver.Request) {
	return func(r *driver.Request) { r.Name = name }
}

func lasting(ttl time.Duration) func(*driver.Request) {
	return func(r *driver.Request) { r.TTL = ttl }
}

func reserving(n int64) func(*driver.Request) {
	return func(r *driver.Request) { r.Fences = n }
}

func heldBy(text string) func(*driver.Request) {
	return func(r *driver.Request) { r.Holder = text }
}

// ask sends the request with the next number. An answer that makes no sense is also an
// error.
func (c *contender) ask(ctx context.Context) (driver.Grant, error) {
	return c.asking(func(r *driver.Request) (driver.Grant, error) { return c.d.Acquire(ctx, r) })
}

func (c *contender) asking(send func(*driver.Request) (driver.Grant, error)) (driver.Grant, error) {
	r := c.req // Drivers may keep the request.
	r.TTL = c.ttl()
	c.sent = append(c.sent, time.Now())
	r.Ask = uint64(len(c.sent))
	g, err := send(&r)
	if err != nil {
		return g, err
	}
	switch {
	case g.RetryAfter < 0:
		return g, fmt.Errorf("RetryAfter is negative: %+v", g)
	case g.Status == driver.Granted:
		return g, c.granted(g)
	case g.Status == driver.Queued && r.Wait, g.Status == driver.Busy, g.Status == driver.Full && r.Wait && r.MaxWaiters > 0:
		return g, nil
	}
	return g, fmt.Errorf("not an answer to a request with Wait=%v: %+v", r.Wait, g)
}

// granted takes note of a grant, from an answer or from Wake.
func (c *contender) granted(g driver.Grant) error {
	if g.Ask < 1 || g.Ask > uint64(len(c.sent)) {
		return fmt.Errorf("rests on an ask that was never sent, of %d: %+v", len(c.sent), g)
	}
	c.grant = g
	c.lasts(c.sent[g.Ask-1])
	return nil
}

// lasts takes note of a lease that a request has given, which was sent then and has just been
// answered.
func (c *contender) lasts(sent time.Time) {
	c.trusted = sent.Add(c.ttl())
	c.overdue = time.Now().Add(c.ttl() + c.t.grace())
}

// ttl is how long a lease of the token lasts. In req it is a time of the suite.
func (c *contender) ttl() time.Duration { return c.t.real(c.req.TTL) }

// askOnce asks and has the answer, whatever it is.
func (c *contender) askOnce() driver.Grant {
	ctx, cancel := c.t.bounded()
	defer cancel()
	g, err := c.ask(ctx)
	require.NoError(c.t, err, "Acquire")
	return g
}

// gets asks and must be answered so.
func (c *contender) gets(want driver.Status, why string) driver.Grant {
	g := c.askOnce()
	require.Equal(c.t, want, g.Status, "%s%s", why, c.place)
	return g
}

// lock asks and must be granted the lock.
func (c *contender) lock() driver.Grant {
	return c.gets(driver.Granted, "the lock should be granted to this token")
}

// busy asks and must be refused.
func (c *contender) busy() driver.Grant {
	return c.gets(driver.Busy, "another should hold the lock")
}

// full asks and must be turned away.
func (c *contender) full() {
	c.gets(driver.Full, "as many wait as may")
}

// queue asks and must be in the queue after it.
func (c *contender) queue() driver.Grant {
	require.True(c.t, c.req.Wait, "the test is wrong: this token does not wait")
	return c.gets(driver.Queued, "the token should wait in the queue")
}

// each has tokens do something one after the other. A failure says which it was.
func each(all []*contender, do func(*contender)) {
	for i, c := range all {
		c.place = fmt.Sprintf(" (%d of %d)", i+1, len(all))
		do(c)
	}
}

// The same for several tokens.
func lock(all ...*contender)    { each(all, func(c *contender) { c.lock() }) }
func busy(all ...*contender)    { each(all, func(c *contender) { c.busy() }) }
func queue(all ...*contender)   { each(all, func(c *contender) { c.queue() }) }
func release(all ...*contender) { each(all, (*contender).release) }
func unwoken(all ...*contender) { each(all, (*contender).unwoken) }
func holds(all ...*contender)   { each(all, (*contender).holds) }
func pushed(all ...*contender)  { each(all, func(c *contender) { c.pushed() }) }

// enqueue has tokens wait.
func enqueue(all ...*contender) {
	each(all, func(c *contender) {
		c.req.Wait = true
		c.queue()
	})
}

// remain requires that tokens wait as before, and were told nothing.
func remain(all ...*contender) {
	each(all, func(c *contender) {
		c.unwoken()
		c.queue()
	})
}

// served requires that tokens that waited have the lock, and were told so where the driver tells.
func served(all ...*contender) {
	each(all, func(c *contender) {
		if c.t.push {
			c.pushed()
		}
		c.lock()
	})
}

// refused asks, and must be told that the token has been released.
func (c *contender) refused() {
	ctx, cancel := c.t.bounded()
	defer cancel()
	g, err := c.ask(ctx)
	require.ErrorIs(c.t, err, driver.ErrNotHeld, "a released token acquired again: %+v", g)
}

// pushed waits for the news that the store granted the lock.
func (c *contender) pushed() driver.Grant {
	g := c.hears(driver.Granted, "of the grant")
	require.NoError(c.t, c.granted(g), "Wake")
	return g
}

// hears waits for news of that status.
func (c *contender) hears(s driver.Status, what string) driver.Grant {
	g, ok := c.woken(s, c.t.patience())
	require.True(c.t, ok, "Wake did not tell within %v %s%s", c.t.patience(), what, c.place)
	return g
}

// loses waits for the news that the token has lost the lock.
func (c *contender) loses() driver.Grant {
	return c.hears(driver.Lost, "of the loss")
}

// unwoken requires that Wake has told of no grant and no loss until now.
func (c *contender) unwoken() {
	for {
		select {
		case g := <-c.wakes:
			// Queued only asks for one more ask, which is never wrong.
			require.Equal(c.t, driver.Queued, g.Status, "unexpected news: %+v", g)
		default:
			return
		}
	}
}

// unwanted requires that Wake has told of nobody that waits until now. Other news may be doubled
// or late.
func (c *contender) unwanted() {
	for {
		select {
		case g := <-c.wakes:
			require.NotEqual(c.t, driver.Wanted, g.Status, "unexpected news: %+v", g)
		default:
			return
		}
	}
}

func (c *contender) lease() driver.Lease {
	return driver.Lease{Kind: c.req.Kind, Name: c.req.Name, Token: c.req.Token, TTL: c.ttl(), Owner: c.req.Owner}
}

// say renews the lease with a tag.
func (c *contender) say(tag string) {
	ctx, cancel := c.t.bounded()
	defer cancel()
	l := c.lease()
	l.HolderTag = tag
	require.NoError(c.t, c.d.Renew(ctx, []driver.Lease{l})[0])
}

// releaseOnce gives up what the token has.
func (c *contender) releaseOnce() error {
	ctx, cancel := c.t.bounded()
	defer cancel()
	return c.d.Release(ctx, c.lease())
}

// release gives up what the token must have.
func (c *contender) release() {
	require.NoError(c.t, c.releaseOnce(), "Release")
}

// settle gives up what the token may have, and may yet get.
func (c *contender) settle() error {
	ctx, cancel := c.t.bounded()
	defer cancel()
	l := c.lease()
	l.Unsettled = true
	return c.d.Release(ctx, l)
}

// renew renews the lease alone.
func (c *contender) renew() error {
	ctx, cancel := c.t.bounded()
	defer cancel()
	sent := time.Now()
	errs := c.d.Renew(ctx, []driver.Lease{c.lease()})
	require.Len(c.t, errs, 1, "Renew returns one error per lease")
	if errs[0] == nil {
		c.lasts(sent)
	}
	return errs[0]
}

// look is how often to look whether a lease has ended.
const look = 10 * time.Millisecond

// holds requires that the token holds the lock, whose lease it renews.
func (c *contender) holds() {
	require.NoError(c.t, c.renew(), "Renew of what the token holds%s", c.place)
}

// holdsNothing requires that there is nothing to renew.
func (c *contender) holdsNothing() {
	require.ErrorIs(c.t, c.renew(), driver.ErrNotHeld, "Renew of what the token does not hold%s", c.place)
}

// releasesNothing requires that there is nothing to release.
func (c *contender) releasesNothing() {
	require.ErrorIs(c.t, c.releaseOnce(), driver.ErrNotHeld, "Release of what the token does not have%s", c.place)
}

// repeats asks again, as one whose answers were lost, and must be told of the same grant.
func (c *contender) repeats() {
	for first := c.grant.Fence; len(c.sent) < 4; {
		require.Equal(c.t, first, c.lock().Fence, "a repeat of a holder is the same grant")
	}
}

// outlast asks until the lease of another has come to its end by itself, and
// checks that this end lies where both sides may expect it.
func (c *contender) outlast(other *contender) driver.Grant {
	for {
		g := c.askOnce()
		if g.Status == driver.Granted {
			require.False(c.t, time.Now().Before(other.trusted),
				foul+"granted while another holder may still trust its lease")
			return g
		}
		require.False(c.t, c.sent[len(c.sent)-1].After(other.overdue),
			"%v after its TTL a silent holder still has the lock", c.t.grace())
		// What has ended too early stays ended, so a look shortly before the end is as good as many before it.
		c.t.sleep(max(c.t.real(look), time.Until(other.trusted)-2*c.t.real(look)))
	}
}

// outwait returns when leases of that TTL, taken before this call and neither renewed
// nor ended by their holders, have come to their end. It does not touch their locks,
// where a request may be what makes the store notice; another lock tells the time.
func (t *test) outwait(ttl time.Duration) {
	d, name := t.driver(), t.unique()
	last, next := t.contender(d, named(name), lasting(ttl)), t.contender(d, named(name))
	last.lock()
	next.outlast(last)
}
