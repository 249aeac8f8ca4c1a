package drivertest

import (
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/stamp"
)

// rounding is for stores that keep whole milliseconds.
const rounding = 2 * time.Millisecond

var inspectCases = []property{
	{"InspectShowsAFreeLock", func(t *test) {
		t.needs(Inspect)
		a := t.contender(t.driver())
		never := t.inspect(a)
		require.Empty(t, never.Holders)
		require.Empty(t, never.Queue)
		a.lock()
		a.release()
		released := t.inspect(a)
		require.Empty(t, released.Holders)
		require.Empty(t, released.Queue)
	}},
	{"InspectShowsTheHolder", func(t *test) {
		t.needs(Inspect)
		for _, text := range []string{"web-3:4711", "two words, and — “more”", "line\nbreak", `{"json": true}`, ""} {
			t.name = t.unique()
			a := t.contender(t.driver(), heldBy(text))
			g := a.lock()
			info := t.inspect(t.contender(t.driver()))
			require.NotEmpty(t, info.Holders)
			require.Equal(t, t.shown(a, text), info.Holders[0].Holder)
			require.Equal(t, g.Fence, info.Holders[0].Fence)
			require.Positive(t, info.Holders[0].TimeLeft)
			require.LessOrEqual(t, info.Holders[0].TimeLeft, t.real(long)+t.grace()+rounding)
			require.Equal(t, t.has(Texts), !info.Holders[0].Since.IsZero())
			require.Empty(t, info.Queue)
		}
	}},
	{"AnswersSayWhoHoldsTheLockAndForHowLong", func(t *test) {
		t.needs(Whose)
		for _, text := range []string{"web-3:4711", "two words, and — “more”", "line\nbreak", "7 8"} {
			t.name = t.unique()
			a, now, later := t.contender(t.driver(), heldBy(text)), t.contender(t.driver()), t.contender(t.driver(), waiting)
			began := time.Now()
			fence := a.lock().Fence
			granted := time.Now()
			require.Equal(t, t.shown(a, text), now.askOnce().Holder)
			pass(t, short)
			least := time.Since(granted)
			g := later.askOnce()
			require.Equal(t, t.shown(a, text), g.Holder)
			require.Contains(t, []int64{0, fence}, g.HolderFence)
			if !t.has(Texts) || !t.has(Hint) {
				require.Zero(t, g.HeldFor, "the store has no times")
				continue
			}
			require.GreaterOrEqual(t, g.HeldFor, least-rounding)
			require.LessOrEqual(t, g.HeldFor, time.Since(began)+rounding)
		}
	}},
	{"InspectShowsTheQueueInOrder", func(t *test) {
		t.needs(Inspect, Queue)
		d := t.driver()
		t.contender(d, heldBy("holder")).lock()
		var want []driver.Waiter
		for i := range 12 { // More than nine, in case somebody sorts numbers as texts.
			text := []string{"two words", "line\nbreak", "", "web-3"}[i%4] + strings.Repeat("!", i/4)
			w := t.contender(d, heldBy(text), waiting)
			w.queue()
			want = append(want, t.waiter(w))
		}
		require.Equal(t, want, t.inspect(t.contender(d)).Queue)
	}},
	{"InspectShowsWhoWasServed", func(t *test) {
		t.needs(Inspect, Queue)
		pushes := t.has(Push) // to find out may take longer than a waiter may be silent
		a, b := t.contender(t.driver()), t.contender(t.driver(), heldBy("b"), waiting)
		c, e := t.contender(a.d, heldBy("c"), waiting), t.contender(a.d, heldBy("e"), waiting)
		a.lock()
		queue(b, c, e)
		release(c, a)
		if !pushes { // Nobody grants but to who asks.
			b.lock()
		}
		info := t.inspect(a)
		require.NotEmpty(t, info.Holders)
		require.Equal(t, t.shown(b, "b"), info.Holders[0].Holder)
		require.Equal(t, []driver.Waiter{t.waiter(e)}, info.Queue)
	}},
	{"InspectShowsSinceWhenAWaiterWaits", func(t *test) {
		t.needs(Inspect, Queue)
		a, b := t.contender(t.driver()), t.contender(t.driver(), waiting)
		a.lock()
		b.req.Token = string(stamp.Append([]byte(b.req.Token)))
		began := time.Now()
		b.queue()
		t.sleep(t.real(short))
		b.queue()
		info := t.inspect(a)
		require.Len(t, info.Queue, 1)
		require.WithinDuration(t, began, info.Queue[0].Since, t.real(50*time.Millisecond), "when the token was made")
	}},
	{"InspectShowsTheTagThatWasToldLast", func(t *test) {
		t.needs(Tags)
		a := t.contender(t.driver())
		a.lock()
		require.Empty(t, t.inspect(a).Holders[0].Tag)
		for _, tag := range []string{"one", "~~a-b_c.d", strings.Repeat("x", driver.MaxHolderTag), "~~"} {
			a.say(tag)
			require.Equal(t, tag, t.inspect(a).Holders[0].Tag)
			a.say("") // which says nothing new
			require.Equal(t, tag, t.inspect(a).Holders[0].Tag)
		}
		a.release()
		b := t.contender(a.d)
		b.lock()
		require.Empty(t, t.inspect(b).Holders[0].Tag, "it was that of another holder")
	}},
	{"InspectFollowsARenewal", func(t *test) {
		t.needs(Inspect)
		a := t.contender(t.driver(), lasting(4*short))
		a.lock()
		t.sleep(t.real(short))
		before := t.inspect(a)
		a.req.TTL = long
		a.holds()
		after := t.inspect(a)
		require.NotEmpty(t, before.Holders)
		require.NotEmpty(t, after.Holders)
		require.Greater(t, after.Holders[0].TimeLeft, t.real(4*short)+t.grace())
		// A store of several nodes may hear of those that granted it first, or not.
		moved := after.Holders[0].Since.Sub(before.Holders[0].Since)
		require.Less(t, moved.Abs(), t.real(short)/2, "a renewal is no new hold")
	}},
	{"InspectShowsNoExpiredHolder", func(t *test) {
		t.needs(Inspect)
		a := t.contender(t.driver(), lasting(short))
		a.lock()
		t.outwait(short)
		require.Empty(t, t.inspect(a).Holders)
	}},
	{"InspectChangesNothing", func(t *test) {
		t.needs(Inspect, Queue)
		a := t.contender(t.driver(), lasting(short))
		b := t.contender(t.driver(), waiting)
		g := a.lock()
		b.queue()
		t.inspect(a)
		require.Equal(t, g.Fence, a.lock().Fence)
		t.inspect(b)
		b.outlast(a)
	}},
	{"InspectOfNamesOfAnyBytes", func(t *test) {
		t.needs(Inspect)
		d := t.driver()
		for _, name := range t.names() {
			c := t.contender(d, named(name), heldBy("it"))
			require.Empty(t, t.inspect(c).Holders, "name %q", name)
			c.lock()
			require.NotEmpty(t, t.inspect(c).Holders, "name %q", name)
		}
	}},
	{"ListNamesLocksInUseOnceByTheirPrefix", func(t *test) {
		t.needs(List)
		d, base := t.driver(), t.unique()
		var kind driver.Kind
		lock := func(name string) {
			t.name = name
			c := t.contender(d)
			c.lock()
			kind = c.req.Kind
		}
		// A character that is special in patterns, paths or keys stands for itself.
		special := base + `/a%_*?[b]\:`
		lock(special)
		if t.has(Queue) {
			t.contender(d, waiting).queue()
		}
		lock(base + "/ax")
		lock(base + "/b")
		lock("x" + base)
		require.ElementsMatch(t, []string{special, base + "/ax", base + "/b"}, t.list(d, kind, base))
		require.ElementsMatch(t, []string{special, base + "/ax"}, t.list(d, kind, base+"/a"))
		require.Equal(t, []string{special}, t.list(d, kind, special))
		require.Contains(t, t.list(d, kind, ""), "x"+base)
	}},
}

// shown is how a store shows a holder that has given the text.
func (t *test) shown(c *contender, text string) string {
	if t.has(Texts) {
		return text
	}
	return c.req.Token
}

// waiter is what Inspect shows of a waiter without an owner.
func (t *test) waiter(c *contender) driver.Waiter {
	return driver.Waiter{Holder: t.shown(c, c.req.Holder), Shared: c.req.Shared, Weight: c.req.Weight}
}

// inspect looks at the lock of c, with c's driver.
func (t *test) inspect(c *contender) driver.Info {
	ctx, cancel := t.bounded()
	defer cancel()
	info, err := can[driver.Inspector](c).Inspect(ctx, c.req.Kind, c.req.Name)
	require.NoError(t, err)
	require.Equal(t, c.req.Name, info.Name)
	return info
}

// list returns the names of the locks of a kind that begin with prefix.
func (t *test) list(d driver.Driver, kind driver.Kind, prefix string) (names []string) {
	l, ok := driver.As[driver.Lister](d)
	require.True(t, ok)
	ctx, cancel := t.bounded()
	defer cancel()
	require.NoError(t, l.List(ctx, prefix, func(k driver.Kind, name string) error {
		if k == kind {
			names = append(names, name)
		}
		return nil
	}))
	return names
}
