package drivertest

import (
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

var acquireCases = []property{
	{"FreeLockIsGranted", func(t *test) {
		a := t.contender(t.driver())
		require.EqualValues(t, 1, a.lock().Ask)
	}},
	{"FreeLockIsGrantedToWhoWouldWait", func(t *test) {
		a := t.contender(t.driver(), waiting)
		require.EqualValues(t, 1, a.lock().Ask)
	}},
	{"SecondTokenIsBusy", func(t *test) {
		a, b := t.pair()
		a.lock()
		b.busy()
	}},
	{"SecondTokenOfOneDriverIsBusy", func(t *test) {
		d := t.driver()
		t.contender(d).lock()
		t.contender(d).busy()
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
	{"BusyTokenMayTryAgain", func(t *test) {
		a, b := t.pair()
		a.lock()
		b.busy()
		a.release()
		b.lock()
	}},
	{"RepeatOfHolderIsTheSameGrant", func(t *test) {
		a, b := t.pair()
		first := a.lock()
		for range 3 {
			require.Equal(t, first.Fence, a.lock().Fence)
		}
		b.busy()
		a.release()
		b.lock() // One release ends it, however often it was granted.
	}},
	{"RepeatThatWaitsIsTheSameGrant", func(t *test) {
		// The first ask found the lock free, its answer was lost.
		a, _ := t.pair(waiting)
		require.Equal(t, a.lock().Fence, a.lock().Fence)
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
