package drivertest

import (
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// reading asks for a shared hold of an RWMutex.
func reading(r *driver.Request) { r.Shared = true }

var readerCases = []property{
	{"ReadersHoldTogether", func(t *test) {
		readers := append(t.several(10, reading), t.contender(t.driver(), reading, waiting))
		lock(readers...)
		holds(readers...)
	}},
	{"ReadersAndWritersKeepEachOtherOut", func(t *test) {
		r, w := t.contender(t.driver(), reading), t.contender(t.driver())
		for _, c := range [][]*contender{{r, w}, {w, t.contender(r.d, reading)}} {
			in, out := c[0], c[1]
			in.lock()
			out.busy()
			out.releasesNothing()
			in.holds()
			in.release()
		}
	}},
	{"ReleaseOfAReaderLeavesTheOthers", func(t *test) {
		a, b := t.pair(reading)
		w := t.contender(t.driver())
		lock(a, b)
		a.release()
		w.busy()
		a.releasesNothing()
		a.holdsNothing()
		w.busy()
		b.holds()
		b.release()
		w.lock()
	}},
	{"RepeatOfAReaderIsTheSameGrant", func(t *test) {
		a, b := t.pair(reading)
		lock(a, b)
		a.repeats()
		a.release() // One release ends it, however often it was granted.
		b.release()
		t.contender(a.d).lock()
	}},
	{"StragglerOfAReaderAcquiresNothing", func(t *test) {
		a, b := t.pair(reading)
		lock(a, b)
		require.NoError(t, a.settle())
		a.refused()
		b.holds()
		b.release()
		t.contender(b.d).lock()
		a.refused()
	}},
	{"EveryReaderHasFencesOfItsOwn", func(t *test) {
		t.needs(Fences)
		var last int64
		for _, r := range t.several(6, reading, reserving(block)) {
			g := r.lock()
			require.Greater(t, g.Fence, last, foul+"a fence does not grow")
			last = lastFence(t, g, block)
			require.Equal(t, g.Fence, r.lock().Fence)
			require.Equal(t, last, lastFence(t, r.grant, block))
		}
	}},
	{"InspectShowsReadersInOrder", func(t *test) {
		t.needs(Inspect, Queue)
		d := t.driver()
		var fences []int64
		names := []string{"c", "a", "d", "b"}
		for _, name := range names {
			fences = append(fences, t.contender(d, reading, heldBy(name)).lock().Fence)
		}
		t.contender(d, waiting, heldBy("writer")).queue()
		t.contender(d, waiting, reading, heldBy("reader")).queue()
		info := t.inspect(t.contender(d))
		require.Len(t, info.Holders, len(names))
		for i, h := range info.Holders {
			require.Equal(t, names[i], h.Holder)
			require.Equal(t, fences[i], h.Fence)
			require.True(t, h.Shared)
			require.Zero(t, h.Weight)
			require.Positive(t, h.TimeLeft)
		}
		require.Equal(t, []driver.Waiter{{Holder: "writer"}, {Holder: "reader", Shared: true}}, info.Queue)
		require.Zero(t, info.Limit)
	}},
	{"ReaderTurnedAwayByAWaitingWriterIsNotToldOfAReader", func(t *test) {
		t.needs(Whose, Queue)
		t.name = t.unique() // for the lock that shows the ability stays held
		d := t.driver()
		r, w := t.contender(d, reading, heldBy("reader")), t.contender(d, waiting)
		r.lock()
		w.queue()
		for _, c := range []*contender{t.contender(d, reading), t.contender(d, reading, waiting)} {
			g := c.askOnce()
			require.True(t, g.Behind)
			require.Empty(t, g.Holder)
			require.Zero(t, g.HeldFor)
		}
		g := t.contender(d).askOnce()
		require.False(t, g.Behind, "a writer waits for the reader, too")
		require.Equal(t, "reader", g.Holder)
	}},
	{"InspectShowsAWriterAsExclusive", func(t *test) {
		t.needs(Inspect)
		w := t.contender(t.driver())
		w.lock()
		info := t.inspect(w)
		require.Len(t, info.Holders, 1)
		require.False(t, info.Holders[0].Shared)
	}},
	{"ForceEndsAllReaders", func(t *test) {
		t.needs(Force)
		t.push = t.has(Push)
		readers := t.several(5, reading)
		lock(readers...)
		w := t.contender(t.driver())
		require.NoError(t, w.force())
		for _, r := range readers {
			if t.push {
				r.loses()
			}
			r.holdsNothing()
			r.refused()
		}
		w.lock()
		for _, r := range readers {
			r.releasesNothing()
			r.refused()
		}
		w.holds()
	}},
	{"ForceLetsTheWriterBehindReadersIn", func(t *test) {
		t.needs(Force)
		t.queues()
		readers, w := t.several(3, reading), t.contender(t.driver(), waiting)
		late := t.contender(w.d, waiting, reading)
		lock(readers...)
		queue(w, late)
		require.NoError(t, late.force())
		served(w)
		late.queue()
	}},
	{"AttachToAReader", func(t *test) {
		t.needs(Attach)
		a, b := t.pair(reading)
		w, next := t.contender(t.driver()), t.contender(t.driver())
		lock(a, b)
		require.True(t, next.attach(a).Shared)
		w.busy()
		b.release()
		t.contender(b.d, reading).lock()
		next.holds()
	}},
	{"ReadersAreNotRaisedToOneFence", func(t *test) {
		t.needs(Raise)
		readers := t.several(3, reading)
		given := map[int64]bool{}
		most := int64(0)
		for _, r := range readers {
			r.lock()
			most = max(most, r.grant.Fence+block)
		}
		for _, r := range readers {
			fence := r.raised(most, 1)
			require.GreaterOrEqual(t, fence, most)
			require.False(t, given[fence], foul+"fence %d was given twice", fence)
			given[fence] = true
			require.Equal(t, fence, r.lock().Fence)
		}
		release(readers...)
		last := t.contender(t.driver())
		last.lock()
		require.NotContains(t, given, last.grant.Fence)
		require.Greater(t, last.grant.Fence, most, foul+"a fence does not grow")
	}},
}

// several returns n tokens of three drivers.
func (t *test) several(n int, mods ...func(*driver.Request)) []*contender {
	drivers := []driver.Driver{t.driver(), t.driver(), t.driver()}
	var all []*contender
	for i := range n {
		all = append(all, t.contender(drivers[i%len(drivers)], mods...))
	}
	return all
}
