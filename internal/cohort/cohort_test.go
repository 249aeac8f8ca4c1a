package cohort_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/cohort"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	line   = cohort.Cohort[*term, string]
	waiter = cohort.Waiter[*term, string]
	news   = cohort.News[*term]
)

// term is one that does as the test says.
type term struct {
	key    string
	over   bool // its turn is
	stays  bool
	passes int

	mu   sync.Mutex
	ends time.Time // zero for never
}

func (t *term) Suits(key *string) bool {
	ends := t.Ends()
	return *key == t.key && !t.over && (ends.IsZero() || time.Now().Before(ends))
}

func (t *term) Pass()       { t.passes++ }
func (t *term) Stays() bool { return t.stays }

func (t *term) Ends() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ends
}

// goOn lets the turn last until d from now.
func (t *term) goOn(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ends = time.Now().Add(d)
}

// join wants the lock by that key, and must have to wait.
func join(t *testing.T, c *line, key string) *waiter {
	t.Helper()
	w := cohort.NewWaiter[*term, string]()
	n, ended := c.Join(w, &key, true)
	require.Equal(t, news{Status: cohort.Wait}, n)
	require.Nil(t, ended)
	return w
}

// asked wants the lock of a cohort without anybody, and must have to ask the store.
func asked(t *testing.T, c *line, key string) {
	t.Helper()
	require.Equal(t, news{Status: cohort.Ask}, come(t, c, key, true))
}

// come wants the lock and need not wait.
func come(t *testing.T, c *line, key string, wait bool) news {
	t.Helper()
	n, ended := c.Join(cohort.NewWaiter[*term, string](), &key, wait)
	require.Nil(t, ended)
	return n
}

// told is what the waiter must have been told by now.
func told(t *testing.T, w *waiter) news {
	t.Helper()
	select {
	case n := <-w.News():
		return n
	default:
		t.Fatal("it was told nothing")
		panic("unreachable")
	}
}

func untold(t *testing.T, ws ...*waiter) {
	t.Helper()
	for i, w := range ws {
		require.Empty(t, w.News(), "number %d was told something", i)
	}
}

func TestTermPassesInTheOrderOfArrival(t *testing.T) {
	c, a := &line{}, &term{key: "k"}
	asked(t, c, "k")
	ws := []*waiter{join(t, c, "k")}
	untold(t, ws...) // one asker is enough
	c.Won(a)
	ws = append(ws, join(t, c, "k"), join(t, c, "k"))
	untold(t, ws...)
	for i, w := range ws {
		require.Equal(t, cohort.Passed, c.Next(a))
		require.Equal(t, news{cohort.Held, a}, told(t, w))
		require.Equal(t, i+1, a.passes)
		untold(t, ws[i+1:]...)
		require.Same(t, a, c.Term())
	}
	require.Equal(t, cohort.Over, c.Next(a))
	require.Nil(t, c.Term())
	asked(t, c, "k")
}

func TestOnlyOneAtATimeIsAtTheStore(t *testing.T) {
	c := &line{}
	asked(t, c, "k")
	ws := []*waiter{join(t, c, "k"), join(t, c, "another"), join(t, c, "k")}
	untold(t, ws...)
	for i, w := range ws {
		c.Failed()
		require.Equal(t, news{Status: cohort.Ask}, told(t, w))
		untold(t, ws[i+1:]...)
	}
	c.Failed()
	asked(t, c, "k")
}

func TestWhoDoesNotWaitIsNoWaiter(t *testing.T) {
	c, a := &line{}, &term{key: "k"}
	require.Equal(t, news{Status: cohort.Ask}, come(t, c, "k", false))
	require.Equal(t, news{Status: cohort.Busy}, come(t, c, "k", false), "somebody is at the store")
	c.Won(a)
	require.Equal(t, news{Status: cohort.Busy}, come(t, c, "k", false), "somebody has it")
	require.Equal(t, cohort.Over, c.Next(a), "nobody waits")
	require.Equal(t, news{Status: cohort.Ask}, come(t, c, "k", false))
}

func TestTermThatDoesNotSuitTheFirstDoesNotPassToTheSecond(t *testing.T) {
	c, a, b := &line{}, &term{key: "k"}, &term{key: "other"}
	asked(t, c, "k")
	c.Won(a)
	first := join(t, c, "other")
	require.Equal(t, news{Status: cohort.Ask}, told(t, first), "it need not wait for the end of the term to be at the store")
	second := join(t, c, "k")
	untold(t, second)
	require.Equal(t, cohort.Over, c.Next(a), "who is at the store was there before")
	untold(t, second)
	c.Won(b)
	require.Equal(t, news{Status: cohort.Ask}, told(t, second))
	require.Equal(t, cohort.Over, c.Next(b))
	c.Won(a)
	require.Equal(t, cohort.Over, c.Next(a))
}

func TestTurnThatIsOverSendsTheFirstToTheStore(t *testing.T) {
	c, a := &line{}, &term{key: "k"}
	asked(t, c, "k")
	c.Won(a)
	first, second := join(t, c, "k"), join(t, c, "k")
	c.Review()
	untold(t, first, second)
	a.over = true
	c.Review()
	require.Equal(t, news{Status: cohort.Ask}, told(t, first))
	c.Review()
	untold(t, second)
	require.Equal(t, cohort.Over, c.Next(a))
	untold(t, second)

	// The turn ends between two looks.
	b := &term{key: "k"}
	c.Won(b)
	untold(t, second)
	b.over = true
	require.Equal(t, cohort.Over, c.Next(b))
	require.Equal(t, news{Status: cohort.Ask}, told(t, second))
}

func TestAttemptOfOneWhoGivesUpIsGoneOnWith(t *testing.T) {
	c, attempt := &line{}, &term{key: "k"}
	asked(t, c, "k")
	require.False(t, c.Bequeath(attempt), "to nobody")
	heir, second := join(t, c, "k"), join(t, c, "k")
	require.True(t, c.Bequeath(attempt))
	require.Equal(t, news{cohort.Ask, attempt}, told(t, heir))
	untold(t, second)
	require.True(t, c.Bequeath(attempt), "the heir gives up, too")
	require.Equal(t, news{cohort.Ask, attempt}, told(t, second))
	require.False(t, c.Bequeath(attempt))
	c.Failed()
	asked(t, c, "k")
}

func TestAttemptPassesOnlyToOneWhoAskedAlike(t *testing.T) {
	c, attempt := &line{}, &term{key: "k"}
	asked(t, c, "k")
	first, second := join(t, c, "other"), join(t, c, "k")
	require.False(t, c.Bequeath(attempt))
	untold(t, first, second)
	c.Failed()
	require.Equal(t, news{Status: cohort.Ask}, told(t, first))
	// It is the key of who is at the store now that counts.
	require.False(t, c.Bequeath(attempt))
	c.Failed()
	require.Equal(t, news{Status: cohort.Ask}, told(t, second))
}

func TestWhoLeavesIsPassedOver(t *testing.T) {
	c, a := &line{}, &term{key: "k"}
	asked(t, c, "k")
	c.Won(a)
	first, second, third := join(t, c, "k"), join(t, c, "k"), join(t, c, "k")
	for _, w := range []*waiter{second, first} {
		_, late := c.Leave(w)
		require.False(t, late)
	}
	require.Equal(t, cohort.Passed, c.Next(a))
	require.Equal(t, news{cohort.Held, a}, told(t, third))
	untold(t, first, second)
}

func TestWhoLeavesTooLateHasItsNews(t *testing.T) {
	c, a := &line{}, &term{key: "k"}
	asked(t, c, "k")
	c.Won(a)
	first := join(t, c, "k")
	require.Equal(t, cohort.Passed, c.Next(a))
	n, late := c.Leave(first)
	require.True(t, late)
	require.Equal(t, news{cohort.Held, a}, n)

	second := join(t, c, "k")
	a.over = true
	c.Review()
	n, late = c.Leave(second)
	require.True(t, late)
	require.Equal(t, news{Status: cohort.Ask}, n)
}

// The one behind may have another key.
func TestLeaveOfTheFirstSendsTheNextToTheStoreIfTheTermDoesNotSuit(t *testing.T) {
	c, a := &line{}, &term{key: "k"}
	asked(t, c, "k")
	c.Won(a)
	first, second := join(t, c, "k"), join(t, c, "other")
	untold(t, first, second)
	_, late := c.Leave(first)
	require.False(t, late)
	require.Equal(t, news{Status: cohort.Ask}, told(t, second))
}

// The one that comes to be the first, too, should be at the store as early as can be.
func TestPassToTheLastWhomTheTermSuitsSendsTheNextToTheStore(t *testing.T) {
	c, a := &line{}, &term{key: "k"}
	asked(t, c, "k")
	c.Won(a)
	first, second := join(t, c, "k"), join(t, c, "other")
	untold(t, first, second)
	require.Equal(t, cohort.Passed, c.Next(a))
	require.Equal(t, news{cohort.Held, a}, told(t, first))
	require.Equal(t, news{Status: cohort.Ask}, told(t, second))
}

func TestLostTermSendsTheFirstToTheStore(t *testing.T) {
	c, a, b := &line{}, &term{key: "k"}, &term{key: "k"}
	asked(t, c, "k")
	c.Won(a)
	first, second := join(t, c, "k"), join(t, c, "k")
	require.False(t, c.Over(b, false), "another")
	require.False(t, c.Over(a, true), "somebody has it")
	untold(t, first)
	require.True(t, c.Over(a, false))
	require.Equal(t, news{Status: cohort.Ask}, told(t, first))
	require.Nil(t, c.Term())
	require.False(t, c.Over(a, false), "once more")
	c.Won(b)
	require.Equal(t, cohort.Over, c.Next(a), "its holder has only now noticed")
	require.Same(t, b, c.Term())
	untold(t, second)
	require.Equal(t, cohort.Passed, c.Next(b))
	require.Equal(t, news{cohort.Held, b}, told(t, second))
}
