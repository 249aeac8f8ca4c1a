package drivertest

import (
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// call is something that is done with what a token holds.
type call struct {
	name  string
	needs Ability
	do    func(*contender) error
}

// A call without a hold is answered with ErrNotHeld, and changes nothing.
var (
	renewing  = call{"Renew", "", (*contender).renew}
	releasing = call{"Release", "", (*contender).releaseOnce}
	extending = call{"Extend", Extend, func(c *contender) error {
		_, err := c.extend(1)
		return err
	}}
	noticing = call{"Notice", Notice, func(c *contender) error {
		_, err := c.notice()
		return err
	}}
	raising = call{"Raise", Raise, func(c *contender) error {
		_, err := c.raise(c.grant.Fence+block, 1)
		return err
	}}
	attaching = call{"Attach", Attach, func(c *contender) error {
		next := c.t.contender(c.d)
		_, err := next.attachOnce(c)
		next.holdsNothing()
		return err
	}}
	downgrading        = call{"Downgrade", Downgrade, func(c *contender) error { return c.downgradeOnce(1) }}
	downgradingPermits = call{"DowngradeOfPermits", Downgrade, downgrading.do}

	holdCases = append(releasing.needsAHold(), needing(renewing, extending, noticing, raising, attaching)...)
)

// needing are the cases of calls that only who holds the lock may make.
func needing(calls ...call) (cases []property) {
	for _, k := range calls {
		cases = append(cases, k.needsAHold()...)
		cases = append(cases, property{k.name + "OfAWaiter", func(t *test) {
			t.needs(Queue)
			k.able(t)
			a, b := t.couple()
			k.isNotHeld(b)
			a.holds()
			t.contender(a.d).busy()
			a.release()
			b.lock() // It kept its place.
		}}, property{k.name + "RevivesNoExpiredLease", func(t *test) {
			k.able(t)
			a, b := t.contender(t.driver(), lasting(short)), t.contender(t.driver())
			a.lock()
			t.outwait(short)
			k.isNotHeld(a)
			a.holdsNothing()
			b.lock()
			k.isNotHeld(a)
			t.contender(a.d).busy()
			b.holds()
		}})
	}
	return cases
}

func (k call) needsAHold() []property {
	return []property{{k.name + "NeedsAHold", func(t *test) {
		k.able(t)
		a, b := t.pair()
		k.isNotHeld(a) // a token that was never seen
		a.lock()
		k.isNotHeld(b)
		a.holds()
		a.release()
		for range 2 {
			k.isNotHeld(a)
		}
		b.lock()
		k.isNotHeld(a)
		t.contender(a.d).busy()
		b.holds()
	}}}
}

func (k call) able(t *test) {
	if k.needs != "" {
		t.needs(k.needs)
	}
}

func (k call) isNotHeld(c *contender) {
	require.ErrorIs(c.t, k.do(c), driver.ErrNotHeld, "%s by a token that does not hold the lock", k.name)
}
