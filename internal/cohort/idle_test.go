package cohort_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/cohort"
)

func idle(t *testing.T) (*line, *term) {
	t.Helper()
	c, a := &line{}, &term{key: "k", stays: true}
	asked(t, c, "k")
	c.Won(a)
	require.Equal(t, cohort.Kept, c.Next(a))
	require.Same(t, a, c.Term())
	return c, a
}

func TestIdleTermIsEnteredAgain(t *testing.T) {
	c, a := idle(t)
	for i, wait := range []bool{true, false, true} {
		require.Equal(t, news{cohort.Held, a}, come(t, c, "k", wait))
		require.Equal(t, i+1, a.passes)
		require.False(t, c.Over(a, true), "somebody has it")
		require.Equal(t, news{Status: cohort.Busy}, come(t, c, "k", false))
		require.Equal(t, cohort.Kept, c.Next(a))
	}
}

func TestNewcomerWhomAnIdleTermDoesNotSuitEndsIt(t *testing.T) {
	for what, spoil := range map[string]func(*term) string{
		"another key": func(*term) string { return "other" },
		"its turn":    func(a *term) string { a.over = true; return "k" },
	} {
		for _, wait := range []bool{true, false} {
			c, a := idle(t)
			key := spoil(a)
			n, ended := c.Join(cohort.NewWaiter[*term, string](), &key, wait)
			require.Equal(t, news{Status: cohort.Ask}, n, what)
			require.Same(t, a, ended, what)
			require.Nil(t, c.Term(), what)
			require.False(t, c.Over(a, true), what)
		}
	}
}

func TestIdleTermComesToItsEnd(t *testing.T) {
	for _, onlyIdle := range []bool{true, false} {
		c, a := idle(t)
		require.True(t, c.Over(a, onlyIdle))
		require.Nil(t, c.Term())
		asked(t, c, "k")
	}
}

func TestTermThatMayStayPassesToWhoWaits(t *testing.T) {
	c, a := &line{}, &term{key: "k", stays: true}
	asked(t, c, "k")
	c.Won(a)
	w := join(t, c, "k")
	require.Equal(t, cohort.Passed, c.Next(a))
	require.Equal(t, news{cohort.Held, a}, told(t, w))
	a.over = true
	later := join(t, c, "k")
	require.Equal(t, news{Status: cohort.Ask}, told(t, later))
	require.Equal(t, cohort.Over, c.Next(a), "somebody is at the store")
}
