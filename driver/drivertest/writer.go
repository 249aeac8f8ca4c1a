package drivertest

import (
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// Writers wait in the queue among readers.
var writerCases = []property{
	{"WaitingWriterHoldsUpLaterReaders", func(t *test) {
		t.needs(Queue)
		first, second := t.pair(reading)
		w := t.contender(t.driver(), waiting)
		hasty, late := t.contender(t.driver(), reading), t.contender(first.d, reading, waiting)
		lock(first, second)
		w.queue()
		hasty.busy()
		late.queue()
		first.lock() // Nobody holds a holder up.
		second.holds()
		first.release()
		hasty.busy()
		queue(late, w)
		second.release()
		hasty.busy()
		late.queue()
		w.lock()
		late.queue()
		hasty.busy()
		w.release()
		lock(late, hasty)
	}},
	{"LastReaderLetsTheWriterIn", func(t *test) {
		t.needs(Push)
		readers, w := t.several(4, reading), t.contender(t.driver(), waiting)
		lock(readers...)
		w.queue()
		for _, r := range readers {
			remain(w)
			r.release()
		}
		w.pushed()
		t.contender(w.d, reading).busy()
	}},
	{"ReadersBehindAWriterGoInTogether", func(t *test) {
		t.queues()
		w, readers, next, late := t.procession()
		w.release()
		served(readers...)
		remain(next, late)
		for _, r := range readers {
			remain(next)
			r.release()
		}
		remain(late)
		served(next)
		remain(late)
		next.release()
		served(late)
	}},
	{"FencesIncreaseOverReadersGrantedTogether", func(t *test) {
		t.needs(Fences)
		t.queues()
		w, readers, next, _ := t.procession(reserving(block))
		last := lastFence(t, w.grant, block)
		w.release()
		for _, r := range append(readers, next) {
			if r == next {
				release(readers...)
			}
			served(r)
			require.Greater(t, r.grant.Fence, last, foul+"a fence does not grow")
			last = lastFence(t, r.grant, block)
		}
	}},
	{"CancelledWriterLetsTheReadersBehindItIn", func(t *test) {
		t.queues()
		r := t.contender(t.driver(), reading)
		w, middle, next := t.contender(t.driver(), waiting), t.contender(r.d, waiting), t.contender(t.driver(), waiting)
		readers, late := t.several(3, reading, waiting), t.contender(r.d, reading, waiting)
		r.lock()
		queue(w, middle)
		queue(readers...)
		queue(next, late)
		middle.release()
		remain(readers...)
		w.release()
		served(readers...)
		remain(next)
		remain(late)
		t.contender(w.d, reading).busy()
	}},
	{"WriterReleasedAsItIsGrantedLetsReadersIn", func(t *test) {
		t.needs(Push)
		a, b := t.pair(reading)
		w := t.contender(t.driver(), waiting)
		c := t.contender(b.d, reading, waiting)
		a.lock()
		queue(w, c)
		release(a, w) // It does not know yet that it was granted the lock.
		c.pushed()
		b.lock()
	}},
	{"SilentWaitingWriterIsSkipped", func(t *test) {
		t.queues()
		a, b := t.pair(reading)
		gone := t.contender(t.driver(), waiting, lasting(4*short))
		c, e := t.contender(b.d, reading, waiting), t.contender(a.d, reading, waiting)
		a.lock()
		gone.queue()
		b.busy()
		queue(c, e)
		t.silence(4 * short)
		c.lock()
		if t.push {
			e.pushed()
		}
		lock(e, b)
		release(a, b, c, e)
		gone.unwoken()
		t.contender(t.driver()).lock()
		gone.queue() // It comes back by asking.
	}},
	{"SilentWaitingWriterHoldsUpNoReaderThatTries", func(t *test) {
		t.needs(Queue)
		a, b := t.pair(reading)
		gone := t.contender(t.driver(), waiting, lasting(short))
		a.lock()
		gone.queue()
		t.silence(short)
		b.lock()
		release(a, b)
		gone.unwoken()
		t.contender(t.driver()).lock()
	}},
	{"SilentWaitingWriterIsSkippedByARelease", func(t *test) {
		t.needs(Push)
		a := t.contender(t.driver())
		gone := t.contender(t.driver(), waiting, lasting(short))
		readers := t.several(3, reading, waiting)
		a.lock()
		gone.queue()
		queue(readers...)
		t.silence(short)
		a.release()
		pushed(readers...)
		gone.unwoken()
	}},
	{"WriterThatKeepsAskingIsNotOvertaken", func(t *test) {
		t.needs(Queue)
		const ttl = 12 * short
		r, w := t.contender(t.driver(), reading), t.contender(t.driver(), waiting, lasting(ttl))
		hasty, late := t.contender(r.d, reading), t.contender(t.driver(), reading, waiting)
		r.lock()
		queue(w, late)
		for range 3 {
			pass(t, ttl/4) // In all it is longer than a silence may be.
			hasty.busy()   // The store has a look at the queue.
			queue(w, late)
			r.holds()
		}
		r.release()
		hasty.busy()
		w.lock()
	}},
	{"ReadersGoInTogetherWhenADeadWriterExpires", func(t *test) {
		t.needs(Push)
		dead := t.contender(t.driver(), lasting(3*short))
		readers, w := t.several(3, reading, waiting), t.contender(t.driver(), waiting)
		dead.lock()
		queue(readers...)
		w.queue()
		readers[0].outlast(dead)
		pushed(readers[1], readers[2])
		w.unwoken()
	}},
	{"RetryAfterLeadsAWriterPastTheReaders", func(t *test) {
		t.needs(Hint)
		t.queues()
		a, b := t.pair(reading, lasting(short))
		b.req.TTL = 3 * short
		lock(a, b)
		t.contender(t.driver(), waiting).isLedPast(b, 6)
	}},
}

// procession returns a writer that holds the lock, and behind it in the queue several
// readers, a writer, and a reader that came too late to go with the others.
func (t *test) procession(mods ...func(*driver.Request)) (holder *contender, readers []*contender, next, late *contender) {
	mods = append(mods, waiting)
	holder, next = t.pair(mods...)
	mods = append(mods, reading)
	readers, late = t.several(4, mods...), t.contender(holder.d, mods...)
	holder.lock()
	queue(readers...)
	queue(next, late)
	return holder, readers, next, late
}
