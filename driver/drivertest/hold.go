package drivertest

import (
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// call is something that is done with what a token holds.
type call struct {
	name  string
	needs []Ability
	do    func(*contender) error
}

// A call without a hold is answered with ErrNotHeld, and changes nothing.
var (
	renewing  = call{"Renew", nil, (*contender).renew}
	releasing = call{"Release", nil, (*contender).releaseOnce}
	noticing  = call{"Notice", []Ability{Notice}, func(c *contender) error {
		_, err := c.notice()
		return err
	}}
	raising = call{"Raise", []Ability{Raise}, func(c *contender) error {
		_, err := c.raise(c.grant.Fence+block, 1)
		return err
	}}
	attaching = call{"Attach", []Ability{Attach}, func(c *contender) error {
		next := c.t.contender(c.d)
		_, err := next.attachOnce(c)
		next.holdsNothing()
		return err
	}}
	downgrading        = call{"Downgrade", []Ability{Downgrade}, func(c *contender) error { return c.downgradeOnce(1) }}
	downgradingPermits = call{"DowngradeOfPermits", []Ability{Downgrade}, downgrading.do}

	holdCases = append(releasing.needsAHold(), needing(renewing, noticing, raising, attaching)...)
)

// needing are the cases of calls that only who holds the lock may make.
func needing(calls ...call) (cases []property) {
	for _, k := range calls {
		cases = append(cases, k.needsAHold()...)
		cases = append(cases, able([]property{{k.name + "OfAWaiter", func(t *test) {
			t.needs(Queue)
			a, b := t.couple()
			k.isNotHeld(b)
			a.holds()
			t.contender(a.d).busy()
			a.release()
			b.lock() // It kept its place.
		}}, {k.name + "RevivesNoExpiredLease", func(t *test) {
			a, b := t.contender(t.driver(), lasting(short)), t.contender(t.driver())
			a.lock()
			t.outwait(short)
			k.isNotHeld(a)
			a.holdsNothing()
			b.lock()
			k.isNotHeld(a)
			t.contender(a.d).busy()
			b.holds()
		}}}, k.needs...)...)
	}
	return cases
}

func (k call) needsAHold() []property {
	return able([]property{{k.name + "NeedsAHold", func(t *test) {
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
	}}}, k.needs...)
}

func (k call) isNotHeld(c *contender) {
	require.ErrorIs(c.t, k.do(c), driver.ErrNotHeld, "%s by a token that does not hold the lock", k.name)
}
