package drivertest

import (
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

var acquireCases = []property{
	{"FreeLockIsGranted", func(t *test) {
		a, b := t.contender(t.driver()), t.contender(t.driver(), named(t.unique()), waiting)
		require.EqualValues(t, 1, a.lock().Ask)
		require.EqualValues(t, 1, b.lock().Ask)
		require.Equal(t, b.grant.Fence, b.lock().Fence) // The first answer was lost.
	}},
	{"SecondTokenIsBusy", func(t *test) {
		a, b := t.pair()
		a.lock()
		busy(b, t.contender(a.d))
		a.release()
		b.lock()
	}},
	{"BusyLeavesNothingBehind", func(t *test) {
		a, b := t.pair()
		a.lock()
		b.busy()
		b.releasesNothing()
		a.release()
		t.contender(t.driver()).lock()
		b.unwoken()
	}},
	{"RepeatOfHolderIsTheSameGrant", func(t *test) {
		a, b := t.pair()
		first := a.lock()
		a.repeats()
		a.holds()
		require.Equal(t, first.Fence, a.lock().Fence, "a renewal keeps the fence")
		b.busy()
		a.release()
		b.lock() // One release ends it, however often it was granted.
	}},
	{"GrantLastsFromTheAskItNames", func(t *test) {
		a, b := t.pair(lasting(2 * short))
		a.lock()
		pass(t, short)
		a.lock()
		b.outlast(a)
	}},
	{"TokenIsNotBoundToADriver", func(t *test) {
		a, b := t.pair()
		moved := t.contender(b.d)
		moved.req.Token = a.req.Token
		moved.sent = append(moved.sent, a.sent...)
		g := a.lock()
		require.Equal(t, g.Fence, moved.lock().Fence)
		moved.holds()
		moved.release()
		b.lock()
	}},
	{"TokenOfAnyPrintableCharacters", func(t *test) {
		a, b := t.pair()
		for c := '!'; c <= '~'; c++ {
			a.req.Token += string(c)
		}
		b.req.Token = a.req.Token + "1" // One is the beginning of the other.
		a.lock()
		b.busy()
		b.releasesNothing()
		a.holds()
		a.release()
		b.lock()
		a.releasesNothing()
	}},
	{"ShortestAndLongestTTL", func(t *test) {
		a, b := t.pair(lasting(driver.MinTTL))
		a.lock()
		b.req.TTL = driver.MaxTTL
		b.outlast(a)
		b.holds()
		b.release()
	}},
	{"NoWakeIsWanted", func(t *test) {
		t.needs(Queue)
		a, b := t.pair(waiting, func(r *driver.Request) { r.Wake = nil })
		a.lock()
		b.queue()
		a.release()
		b.lock()
	}},
}
