package cohort_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/cohort"
)

// Its holder may hold on for much longer. Then the first should have a good place in the
// store's queue by now.
func TestEndOfTheTurnSendsTheFirstToTheStoreWhileTheTermIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a := &line{}, &term{key: "k", ends: time.Now().Add(time.Second)}
		asked(t, c, "k")
		c.Won(a)
		first, second := join(t, c, "k"), join(t, c, "k")
		time.Sleep(time.Second - 1)
		synctest.Wait()
		untold(t, first, second)
		a.goOn(time.Second + 1) // it was extended
		time.Sleep(time.Second)
		synctest.Wait()
		untold(t, first, second)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Equal(t, news{Status: cohort.Ask}, told(t, first))
		time.Sleep(time.Hour)
		synctest.Wait()
		untold(t, second)
		require.Equal(t, cohort.Over, c.Next(a))
		untold(t, second)
	})
}

func TestAlarmOfAnEarlierTermIsNotThatOfTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &line{}
		a := &term{key: "k", ends: time.Now().Add(time.Second)}
		b := &term{key: "k", ends: time.Now().Add(time.Minute)}
		asked(t, c, "k")
		c.Won(a)
		left := join(t, c, "k") // sets the alarm
		_, late := c.Leave(left)
		require.False(t, late)
		require.Equal(t, cohort.Over, c.Next(a))
		asked(t, c, "k")
		c.Won(b)
		w := join(t, c, "k")
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		untold(t, w)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Equal(t, news{Status: cohort.Ask}, told(t, w))
	})
}

func TestTurnWithoutAnEndIsLookedAtOnlyWhenSomethingChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a := &line{}, &term{key: "k"}
		asked(t, c, "k")
		c.Won(a)
		w := join(t, c, "k")
		time.Sleep(time.Hour)
		synctest.Wait()
		untold(t, w)
		a.goOn(time.Second) // from now on it has one
		c.Review()
		untold(t, w)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, news{Status: cohort.Ask}, told(t, w))
	})
}

// The first was at the store before the turn was over, so nobody has heard that alarm.
func TestTermThatReplacesAnotherHasAnAlarmOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a, b := &line{}, &term{key: "k"}, &term{key: "k"}
		a.goOn(time.Second)
		b.goOn(time.Minute)
		asked(t, c, "k")
		c.Won(a)
		first, second := join(t, c, "k"), join(t, c, "k")
		a.over = true
		c.Review()
		require.Equal(t, news{Status: cohort.Ask}, told(t, first))
		c.Won(b)
		untold(t, second)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, news{Status: cohort.Ask}, told(t, second))
	})
}
