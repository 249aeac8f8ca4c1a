package drivertest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// The leases of readers end one by one, and each for itself.
var readerExpiryCases = []property{
	{"SilentWriterIsReplacedByAReader", func(t *test) {
		w, r := t.contender(t.driver(), lasting(short)), t.contender(t.driver(), reading)
		w.lock()
		r.outlast(w)
		t.contender(w.d, reading).lock()
	}},
	{"WriterOutlastsTheLastReader", func(t *test) {
		for _, ttl := range []time.Duration{short, 3 * short} { // of the first, which lasts less long than the other, or longer
			t.name = t.unique()
			last, next := t.pair(reading, lasting(ttl))
			w := t.contender(t.driver())
			last.lock()
			pass(t, short/2)
			next.req.TTL = short
			next.lock()
			if ttl == short {
				last = next
			}
			w.outlast(last)
		}
	}},
	{"DeadReaderHoldsNothingWhileOthersRenew", func(t *test) {
		a, b := t.pair(reading)
		dead := t.contender(a.d, reading, lasting(short))
		w := t.contender(t.driver())
		lock(a, dead, b)
		for range 3 {
			t.outwait(short)
			holds(a, b)
			w.busy()
		}
		a.release()
		w.busy()
		b.release()
		w.lock() // Neither did the slot of the dead one live on, nor was it given back twice.
		t.contender(a.d, reading).busy()
	}},
	{"WaitingWriterOutlastsADeadReaderThoughOthersRenew", func(t *test) {
		t.needs(Queue)
		a := t.contender(t.driver(), reading)
		dead := t.contender(a.d, reading, lasting(4*short))
		w := t.contender(t.driver(), waiting)
		lock(a, dead)
		w.queue()
		a.holds()
		a.release()
		w.outlast(dead)
	}},
	{"RenewalOfAReaderRenewsNoOther", func(t *test) {
		a, b := t.pair(reading)
		a.req.TTL = 2 * short
		lock(a, b)
		pass(t, short)
		b.holds()
		b.lock()
		t.outwait(2 * short)
		a.holdsNothing()
		b.holds()
		b.release()
		t.contender(t.driver()).lock()
	}},
	{"RenewedReaderKeepsAWriterOut", func(t *test) {
		t.needs(Queue)
		r := t.contender(t.driver(), reading, lasting(4*short))
		w := t.contender(t.driver(), waiting)
		r.lock()
		w.queue()
		for range 6 { // one and a half TTLs
			pass(t, short)
			r.holds()
			w.queue()
		}
		w.outlast(r)
	}},
	{"RenewMayLengthenTheTTLOfAReader", func(t *test) {
		r, w := t.contender(t.driver(), reading, lasting(2*short)), t.contender(t.driver())
		r.lock()
		r.req.TTL = long
		r.holds()
		for range 3 { // The requests of others shorten nothing meanwhile.
			t.outwait(2 * short)
			w.busy()
		}
	}},
	{"RepeatRevivesNoExpiredReader", func(t *test) {
		t.needs(Fences)
		a, b := t.pair(reading)
		a.req.TTL = short
		first := a.lock()
		second := b.lock()
		t.outwait(short)
		// A writer may have been there for all that the store told a. So this is a new hold.
		again := a.lock()
		require.Greater(t, again.Fence, max(first.Fence, second.Fence), foul+"a fence does not grow")
		require.Equal(t, uint64(len(a.sent)), again.Ask)
	}},
	{"RepeatOfAnExpiredReaderQueuesBehindAWriter", func(t *test) {
		t.needs(Queue)
		a, b := t.pair(reading, waiting)
		w := t.contender(t.driver(), waiting)
		a.req.TTL = 2 * short
		lock(a, b)
		w.queue()
		t.outwait(2 * short)
		a.req.TTL = long
		a.queue()
		b.release()
		w.lock()
		a.queue()
	}},
	{"LateReleaseAdmitsNoReaderBesideAWriter", func(t *test) {
		dead := t.contender(t.driver(), reading, lasting(short))
		w, r := t.contender(t.driver()), t.contender(t.driver(), reading)
		dead.lock()
		w.outlast(dead)
		dead.releasesNothing()
		require.ErrorIs(t, dead.settle(), driver.ErrNotHeld)
		r.busy()
		w.holds()
	}},
	{"LateReleaseAdmitsNoWriterBesideAReader", func(t *test) {
		d := t.driver()
		for _, seen := range []bool{false, true} {
			t.name = t.unique()
			dead, r := t.contender(d, reading, lasting(short)), t.contender(d, reading)
			w := t.contender(t.driver())
			lock(dead, r)
			t.outwait(short)
			if seen { // that the lease is over
				t.contender(d, reading).lock()
				dead.releasesNothing()
			}
			for range 3 {
				if err := dead.releaseOnce(); err != nil { // nobody new came since
					require.ErrorIs(t, err, driver.ErrNotHeld)
				}
			}
			w.busy()
			r.holds()
		}
	}},
	{"LateReleaseIsCountedOnce", func(t *test) {
		dead := t.contender(t.driver(), reading, lasting(short))
		dead.lock()
		t.outwait(short)
		a, b := t.pair(reading)
		lock(a, b)
		dead.releasesNothing()
		a.release()
		w := t.contender(t.driver())
		w.busy()
		b.release()
		w.lock()
	}},
	{"InspectShowsNoExpiredReader", func(t *test) {
		t.needs(Inspect)
		a, b := t.pair(reading)
		a.req.TTL, a.req.Holder, b.req.Holder = short, "dead", "alive"
		lock(a, b)
		t.outwait(short)
		info := t.inspect(a)
		require.Len(t, info.Holders, 1)
		require.Equal(t, t.shown(b, "alive"), info.Holders[0].Holder)
	}},
	{"ForceOfExpiredReaders", func(t *test) {
		t.needs(Force)
		a, b := t.pair(reading, lasting(short))
		lock(a, b)
		t.outwait(short)
		require.ErrorIs(t, a.force(), driver.ErrNotHeld)
		t.contender(a.d).lock()
	}},
}
