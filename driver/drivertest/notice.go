package drivertest

import (
	"errors"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

var noticeCases = able([]property{
	{"NoticeTellsTheHolderThatSomebodyWaits", func(t *test) {
		t.needs(Push)
		for _, later := range []bool{false, true} { // when the holder asks for it
			t.name = t.unique()
			a, b := t.pair(waiting)
			a.req.Notice = !later
			a.lock()
			for range 2 {
				require.False(t, later && a.noticed())
			}
			a.unwoken()
			b.queue()
			a.wanted()
			a.holds()
			a.wanted()
			a.release()
			b.pushed()
			b.holds()
			b.unwanted()
		}
	}},
	{"NoticeIsOnlyForWhoAskedForIt", func(t *test) {
		t.needs(Push)
		a, b := t.couple()
		a.holds()
		a.release()
		b.pushed() // By now the news for a would have come, too.
		a.unwoken()
	}},
	{"NoticeOfOneWhoHadToWait", func(t *test) {
		t.needs(Push)
		a, b := t.pair(waiting)
		c := t.contender(t.driver(), waiting)
		b.req.Notice = true
		a.lock()
		b.queue()
		a.release()
		b.pushed()
		b.holds()
		b.unwanted()
		c.queue()
		b.wanted()
	}},
	{"NoticeTellsThatSomebodyWaitsAlready", func(t *test) {
		t.needs(Push)
		a, b := t.pair(waiting)
		c := t.contender(t.driver(), waiting)
		a.lock()
		b.queue()
		require.True(t, a.noticed())
		b.release()
		require.False(t, a.noticed(), "it gave up")
		for { // what came of the first one
			if _, ok := a.woken(driver.Wanted, 0); !ok {
				break
			}
		}
		c.queue()
		a.wanted()
	}},
	{"NoticeOutlastsARepeatOfTheAsk", func(t *test) {
		t.needs(Push)
		a, b := t.pair(waiting)
		a.lock()
		require.False(t, a.noticed())
		a.lock() // as if its answer were late
		b.queue()
		a.wanted()
	}},
	{"NoticeRenewsNothing", func(t *test) {
		a, b := t.pair(lasting(2 * short))
		a.lock()
		pass(t, short)
		if _, err := a.notice(); !errors.Is(err, errors.ErrUnsupported) { // there may be no news
			require.NoError(t, err)
		}
		b.outlast(a)
	}},
}, Notice)

var readerNoticeCases = able([]property{
	{"NoticeIsNotOfReadersThatComeIn", func(t *test) {
		a, b := t.pair(reading)
		a.lock()
		require.False(t, a.noticed())
		b.lock()
		pass(t, short/2)
		a.holds()
		a.unwoken()
		w := t.contender(t.driver(), waiting)
		w.queue()
		a.wanted()
	}},
	{"NoticeOfAllReaders", func(t *test) {
		readers := t.several(20, reading)
		for _, r := range readers {
			r.lock()
			require.False(t, r.noticed())
		}
		w := t.contender(t.driver(), waiting)
		w.queue()
		each(readers, (*contender).wanted)
	}},
}, Notice, Push)

// notice asks for notices, and whether somebody waits.
func (c *contender) notice() (bool, error) {
	ctx, cancel := c.t.call()
	defer cancel()
	return can[driver.Notifier](c).Notice(ctx, c.lease())
}

// noticed is notice of a token that must hold the lock.
func (c *contender) noticed() bool {
	wanted, err := c.notice()
	require.NoError(c.t, err)
	return wanted
}

// wanted waits for the news that somebody waits for what the token holds.
func (c *contender) wanted() {
	c.hears(driver.Wanted, "that somebody waits")
}
