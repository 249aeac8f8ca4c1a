package drivertest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

var renewCases = []property{
	{"RenewedLeaseOutlivesItsTTL", func(t *test) {
		const ttl = 4 * short
		a := t.contender(t.driver(), lasting(ttl))
		b := t.contender(t.driver())
		start := time.Now()
		a.lock()
		for time.Since(start) < 5*ttl/2 {
			pass(t, ttl/8)
			a.holds()
			b.busy()
		}
		a.release()
		b.lock()
	}},
	{"RenewLastsTheTTLOfTheLeaseFromNowOn", func(t *test) {
		a := t.contender(t.driver(), lasting(2*short))
		b := t.contender(t.driver())
		a.lock()
		pass(t, short/2)
		a.holds()
		b.outlast(a)
	}},
	{"RenewOfAForeignToken", func(t *test) {
		a := t.contender(t.driver(), lasting(short))
		b, c := t.pair()
		a.lock()
		b.holdsNothing()
		c.outlast(a) // It lengthened nothing either.
	}},
	{"RenewOfAGrantedWaiter", func(t *test) {
		t.needs(Queue)
		a := t.contender(t.driver())
		b := t.contender(t.driver(), waiting, lasting(3*short))
		a.lock()
		b.queue()
		a.release()
		b.lock()
		b.holds()
		t.contender(t.driver()).outlast(b)
	}},
	{"RenewRevivesNoExpiredLeaseBeforeAWaiter", func(t *test) {
		t.needs(Queue)
		a := t.contender(t.driver(), lasting(short))
		b := t.contender(t.driver(), waiting)
		a.lock()
		b.queue()
		t.outwait(short)
		a.holdsNothing()
		b.lock()
	}},
	{"RenewAnswersEachLeaseInOrder", func(t *test) {
		d := t.driver()
		var leases []driver.Lease
		var held []bool
		for i := range 60 {
			c := t.contender(d, named(t.unique()))
			switch i % 4 {
			case 0, 1: // held
				c.lock()
			case 2: // unknown
			case 3: // released, and held by another
				c.lock()
				c.release()
				t.contender(d, named(c.req.Name)).lock()
			}
			leases, held = append(leases, c.lease()), append(held, i%4 < 2)
		}
		ctx, cancel := t.bounded()
		defer cancel()
		errs := d.Renew(ctx, leases)
		require.Len(t, errs, len(leases))
		for i, err := range errs {
			if held[i] {
				require.NoError(t, err, "lease %d of %d", i, len(leases))
			} else {
				require.ErrorIs(t, err, driver.ErrNotHeld, "lease %d of %d", i, len(leases))
			}
		}
	}},
	{"RenewExtendsEachLeaseOfABatch", func(t *test) {
		d, other := t.driver(), t.driver()
		var leases []driver.Lease
		for range 10 {
			c := t.contender(d, named(t.unique()), lasting(4*short))
			c.lock()
			c.req.TTL = long
			leases = append(leases, c.lease())
		}
		ctx, cancel := t.bounded()
		defer cancel()
		for _, err := range d.Renew(ctx, leases) {
			require.NoError(t, err)
		}
		t.outwait(4 * short)
		for _, l := range leases {
			t.contender(other, named(l.Name)).busy()
		}
	}},
	{"RenewOfNothing", func(t *test) {
		d := t.driver()
		ctx, cancel := t.bounded()
		defer cancel()
		require.Empty(t, d.Renew(ctx, nil))
		require.Empty(t, d.Renew(ctx, []driver.Lease{}))
	}},
}
