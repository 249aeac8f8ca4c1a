package drivertest

import (
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

var inspectCases = []Case{
	{"InspectShowsAFreeLock", func(t *test) {
		t.needs(Inspect)
		a := t.contender(t.driver())
		never := t.inspect(a)
		require.Nil(t, never.Holder)
		require.Empty(t, never.Queue)
		a.lock()
		a.release()
		released := t.inspect(a)
		require.Nil(t, released.Holder)
		require.Empty(t, released.Queue)
	}},
	{"InspectShowsTheHolder", func(t *test) {
		t.needs(Inspect)
		for _, text := range []string{"web-3:4711", "two words, and — “more”", "line\nbreak", `{"json": true}`, ""} {
			t.name = t.unique()
			a := t.contender(t.driver(), heldBy(text))
			g := a.lock()
			info := t.inspect(t.contender(t.driver()))
			require.NotNil(t, info.Holder)
			require.Equal(t, text, info.Holder.Holder)
			require.Equal(t, g.Fence, info.Holder.Fence)
			require.Positive(t, info.Holder.TimeLeft)
			require.LessOrEqual(t, info.Holder.TimeLeft, long+grace)
			require.False(t, info.Holder.Since.IsZero())
			require.Empty(t, info.Queue)
		}
	}},
	{"InspectShowsTheQueueInOrder", func(t *test) {
		t.needs(Inspect, Queue)
		d := t.driver()
		t.contender(d, heldBy("holder")).lock()
		var want []driver.Waiter
		for i := range 12 { // More than nine, in case somebody sorts numbers as texts.
			text := []string{"two words", "line\nbreak", "", "web-3"}[i%4] + strings.Repeat("!", i/4)
			t.contender(d, heldBy(text), waiting).queue()
			want = append(want, driver.Waiter{Holder: text})
		}
		require.Equal(t, want, t.inspect(t.contender(d)).Queue)
	}},
	{"InspectShowsWhoWasServed", func(t *test) {
		t.needs(Inspect, Queue)
		a, b := t.contender(t.driver()), t.contender(t.driver(), heldBy("b"), waiting)
		c, e := t.contender(a.d, heldBy("c"), waiting), t.contender(a.d, heldBy("e"), waiting)
		a.lock()
		b.queue()
		c.queue()
		e.queue()
		c.release()
		a.release()
		info := t.inspect(a)
		require.NotNil(t, info.Holder)
		require.Equal(t, "b", info.Holder.Holder)
		require.Equal(t, []driver.Waiter{{Holder: "e"}}, info.Queue)
	}},
	{"InspectFollowsARenewal", func(t *test) {
		t.needs(Inspect)
		a := t.contender(t.driver(), lasting(4*short))
		a.lock()
		before := t.inspect(a)
		a.req.TTL = long
		require.NoError(t, a.renew())
		after := t.inspect(a)
		require.NotNil(t, before.Holder)
		require.NotNil(t, after.Holder)
		require.Greater(t, after.Holder.TimeLeft, 4*short+grace)
		require.True(t, after.Holder.Since.Equal(before.Holder.Since), "a renewal is no new hold")
	}},
	{"InspectShowsNoExpiredHolder", func(t *test) {
		t.needs(Inspect)
		a := t.contender(t.driver(), lasting(short))
		a.lock()
		t.outwait(short)
		require.Nil(t, t.inspect(a).Holder)
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
			require.Nil(t, t.inspect(c).Holder, "name %q", name)
			c.lock()
			require.NotNil(t, t.inspect(c).Holder, "name %q", name)
		}
	}},
}

// inspect looks at the lock of c, with c's driver.
func (t *test) inspect(c *contender) driver.Info {
	t.Helper()
	i, ok := driver.As[driver.Inspector](c.d)
	require.True(t, ok)
	ctx, cancel := t.bounded()
	defer cancel()
	info, err := i.Inspect(ctx, c.req.Kind, c.req.Name)
	require.NoError(t, err)
	require.Equal(t, c.req.Name, info.Name)
	return info
}
