package drivertest

import (
	"errors"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// ownerCases are about locks that are held alone: by tokens of one owner.
var ownerCases = able([]property{
	{"OwnerEntersAgain", func(t *test) {
		a, b := t.pair(owned("A"))
		other, nobody := t.contender(t.driver(), owned("B")), t.contender(t.driver())
		lock(a, b)
		busy(other, nobody)
		a.release()
		busy(other, nobody)
		b.holds()
		b.release()
		other.lock()
		a2 := t.contender(a.d, owned("A"))
		a2.busy()
		other.release()
		a2.lock()
	}},
	{"OwnerKeepsItsFence", func(t *test) {
		t.needs(Fences)
		a, b := t.pair(owned("A"), reserving(block))
		first := a.lock()
		require.Equal(t, first.Fence, b.lock().Fence)
		require.EqualValues(t, 1, max(1, b.grant.Fences), "which they share")
		require.EqualValues(t, 1, max(1, first.Fences), "which they share")
		a.release()
		require.Equal(t, first.Fence, b.lock().Fence, "a repeat")
		b.release()
		require.Greater(t, t.contender(a.d, owned("A")).lock().Fence, first.Fence, "it is a new hold")
	}},
	{"OwnersRepeatIsNoSecondEntry", func(t *test) {
		a, b := t.pair(owned("A"))
		next := t.contender(t.driver())
		for range 3 {
			lock(a, b)
		}
		b.release()
		b.releasesNothing()
		next.busy()
		a.release()
		next.lock()
	}},
	{"OwnersTokensHaveLeasesOfTheirOwn", func(t *test) {
		a, b := t.contender(t.driver(), owned("A"), lasting(short)), t.contender(t.driver(), owned("A"))
		next := t.contender(t.driver())
		lock(a, b)
		t.outwait(short)
		a.holdsNothing()
		b.holds()
		next.busy()
		b.release()
		next.lock()
	}},
	{"OwnersLastTokenEndsTheHold", func(t *test) {
		for _, order := range []string{"long first", "short first"} {
			t.name = t.unique()
			a, b := t.contender(t.driver(), owned("A")), t.contender(t.driver(), owned("A"), lasting(2*short))
			next := t.contender(t.driver(), lasting(2*short))
			if order == "long first" {
				lock(a, b)
			} else {
				lock(b, a)
				b.holds()
			}
			a.holds() // which keeps b's lease as it is
			a.release()
			next.outlast(b) // which has crashed: nobody renews it
		}
	}},
	{"OwnerDoesNotWaitBehindThoseWhoWaitForIt", func(t *test) {
		t.needs(Queue)
		a, w := t.contender(t.driver(), owned("A")), t.contender(t.driver(), waiting)
		a.lock()
		w.queue()
		try, wait := t.contender(t.driver(), owned("A")), t.contender(t.driver(), owned("A"), waiting)
		lock(try, wait)
		for _, c := range []*contender{a, wait, try} {
			w.queue()
			c.release()
		}
		w.lock()
		t.contender(a.d, owned("A")).busy()
	}},
	{"OwnersWaitersComeInTogether", func(t *test) {
		t.queues()
		holder, w := t.contender(t.driver()), t.contender(t.driver(), waiting)
		a, b := t.pair(owned("A"), waiting)
		holder.lock()
		queue(a, w, b)
		holder.release()
		if t.push {
			a.pushed()
			select {
			case <-b.wakes: // granted, or to ask
			case <-time.After(t.patience()):
				require.Fail(t, "Wake did not tell the other token of the owner")
			}
		}
		lock(a, b)
		w.queue()
		a.release()
		w.queue()
		b.release()
		w.lock()
	}},
	{"OwnersWaiterMayCancel", func(t *test) {
		t.needs(Queue)
		a, w := t.contender(t.driver(), owned("A")), t.contender(t.driver(), owned("B"), waiting)
		a.lock()
		w.queue()
		release(w, a)
		t.contender(a.d, owned("A")).lock()
		t.contender(a.d, owned("B")).busy()
	}},
	{"OwnersTokenThatWasGivenUpDoesNotEnter", func(t *test) {
		a, b := t.pair(owned("A"))
		lock(a, b)
		require.NoError(t, b.settle())
		b.refused()
		a.release()
		t.contender(a.d).lock()
	}},
	{"ForceEndsAllOfAnOwner", func(t *test) {
		t.needs(Force)
		a, b := t.pair(owned("A"))
		lock(a, b)
		next := t.contender(t.driver())
		require.NoError(t, next.force())
		for _, c := range []*contender{a, b} {
			c.holdsNothing()
			c.refused()
		}
		next.lock()
		a.releasesNothing()
		next.holds()
	}},
	{"InspectShowsAllOfAnOwner", func(t *test) {
		t.needs(Inspect)
		const name = "wörk flow\n7"
		a, b := t.contender(t.driver(), owned(name), heldBy("a")), t.contender(t.driver(), owned(name), heldBy("b b"))
		g := a.lock()
		b.lock()
		info := t.inspect(a)
		require.Len(t, info.Holders, 2)
		for _, h := range info.Holders {
			require.Equal(t, name, h.Owner)
			require.Equal(t, g.Fence, h.Fence)
			require.Positive(t, h.TimeLeft)
			require.Equal(t, t.has(Texts), !h.Since.IsZero())
		}
		require.ElementsMatch(t, []string{t.shown(a, "a"), t.shown(b, "b b")}, []string{info.Holders[0].Holder, info.Holders[1].Holder})
		a.release()
		info = t.inspect(a)
		require.Len(t, info.Holders, 1)
		require.Equal(t, t.shown(b, "b b"), info.Holders[0].Holder)
		b.release()
		require.Empty(t, t.inspect(a).Holders)
	}},
	{"InspectShowsOwnersThatWait", func(t *test) {
		t.needs(Inspect, Queue, Texts)
		a, w := t.contender(t.driver(), owned("A")), t.contender(t.driver(), owned("B C"), heldBy("w"), waiting)
		a.lock()
		w.queue()
		want := t.waiter(w)
		want.Owner = "B C"
		require.Equal(t, []driver.Waiter{want}, t.inspect(a).Queue)
	}},
	{"OwnersOfAnyBytes", func(t *test) {
		d := t.driver()
		names := []string{"-", "=", "*", "a b", "a%20b", "a+b", " ", "\n", "\x00\xff", "ö", strings.Repeat("%", driver.MaxOwner)}
		for i, name := range names {
			t.name = t.unique()
			a, b := t.contender(d, owned(name)), t.contender(d, owned(name))
			lock(a, b)
			t.contender(d, owned(names[(i+1)%len(names)])).busy()
			a.release()
			t.contender(d).busy()
			b.release()
			t.contender(d).lock()
		}
		t.contender(d, owned(strings.Repeat("x", driver.MaxOwner+1))).denied(driver.ErrNotExecuted)
	}},
	{"AttachToATokenOfAnOwner", func(t *test) {
		t.needs(Attach)
		a, b := t.pair(owned("A B"))
		next := t.contender(t.driver())
		first := a.lock()
		b.lock()
		g := next.attach(a)
		require.Equal(t, first.Fence, g.Fence, "that of the owner")
		require.Equal(t, "A B", g.Owner)
		a.holdsNothing()
		b.release()
		t.contender(b.d).busy()
		last := t.contender(t.driver())
		g = last.attach(next)
		t.grows(first, g) // nobody else is there
		require.Equal(t, "A B", g.Owner)
		last.holds()
		kin := t.contender(b.d, owned("A B"))
		require.Equal(t, g.Fence, kin.lock().Fence)
		release(kin, last)
		t.contender(b.d).lock()
	}},
}, Owner)

// ownedWriterCases are about the owner of a write lock.
var ownedWriterCases = able([]property{
	{"OwnedWriterIsNotDowngraded", func(t *test) {
		t.needs(Downgrade)
		a, b := t.pair(owned("A"))
		for _, c := range []*contender{a, b} {
			c.lock()
			require.ErrorIs(t, c.downgradeOnce(1), errors.ErrUnsupported)
		}
		t.contender(t.driver(), reading).busy()
		release(a, b)
	}},
	{"ReadersHaveNoOwner", func(t *test) {
		a, b := t.pair(owned("A"), reading)
		w := t.contender(t.driver(), owned("A"))
		lock(a, b)
		w.busy()
		release(a, b)
		w.lock()
		t.contender(a.d, owned("A"), reading).busy()
	}},
}, Owner)

func owned(owner string) func(*driver.Request) {
	return func(r *driver.Request) { r.Owner = owner }
}
