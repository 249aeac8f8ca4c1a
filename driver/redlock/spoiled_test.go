package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/driver/redlock"
)

// mumbler carries out releases, but does not say so while it mumbles.
type mumbler struct {
	driver.Driver
	mumbles atomic.Bool
	heard   chan struct{}
	dead    atomic.Bool
}

func (m *mumbler) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if m.dead.Load() {
		return driver.Grant{}, errDial
	}
	return m.Driver.Acquire(ctx, r)
}

type cutOff struct{ error }

func (cutOff) Is(target error) bool { return target == driver.ErrTransient }

func (m *mumbler) Unwrap() driver.Driver { return m.Driver }

func (m *mumbler) Release(ctx context.Context, l driver.Lease) error {
	err := m.Driver.Release(ctx, l)
	if m.mumbles.Load() {
		m.mumbles.Store(false)
		close(m.heard)
		time.Sleep(10 * time.Millisecond)
		return cutOff{errors.New("the answer was lost")}
	}
	return err
}

// A waiter that gave votes back without hearing what became of them cannot count on these
// nodes again. When they are too many it goes on under another token.
func TestWaiterWhoseVotesAreSpoiledStillGetsTheLock(t *testing.T) {
	for name, c := range map[string]struct {
		spoiled []int
		dead    bool // the last node
		opts    []redlock.Option
	}{
		"two":                  {[]int{1, 2}, false, []redlock.Option{redlock.WithDelayedRestart(0)}},
		"one, another is dead": {[]int{1}, true, []redlock.Option{redlock.WithDelayedRestart(0)}},
		"one, none is certain": {[]int{1}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { spoils(t, c.spoiled, c.dead, c.opts...) })
		})
	}
}

func spoils(t *testing.T, spoiled []int, dead bool, opts ...redlock.Option) {
	var nodes []driver.Driver
	var mumblers []*mumbler
	var taken []driver.Request
	for range 3 {
		m := &mumbler{Driver: &claimant{Driver: memdriver.New()}, heard: make(chan struct{})}
		mumblers, nodes = append(mumblers, m), append(nodes, m)
		taken = append(taken, driver.Request{Kind: driver.Mutex, Name: "x", Token: "other", Ask: 1, TTL: time.Hour})
	}
	take := func(i int) {
		g, err := mumblers[i].Driver.Acquire(t.Context(), &taken[i])
		require.NoError(t, err)
		require.Equal(t, driver.Granted, g.Status)
	}
	give := func(i int) {
		l := driver.Lease{Kind: driver.Mutex, Name: "x", Token: taken[i].Token, TTL: time.Hour}
		require.NoError(t, mumblers[i].Driver.Release(t.Context(), l))
		taken[i].Token += "'"
	}
	for i := range 3 {
		take(i)
	}
	mumblers[2].dead.Store(dead)
	locks := holdfast.Open(redlock.New(nodes, opts...), holdfast.WithTTL(10*time.Second))
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		lease, err := locks.Mutex("x").Lease(ctx)
		if err == nil {
			err = lease.Release(t.Context())
		}
		done <- err
	}()
	synctest.Wait()
	for _, i := range spoiled { // the waiter has a minority there, and gives it back
		mumblers[i].mumbles.Store(true)
		give(i)
		<-mumblers[i].heard
		take(i)
	}
	for i := range 3 {
		if !dead || i < 2 {
			give(i)
		}
	}
	began := time.Now()
	require.NoError(t, <-done)
	require.Less(t, time.Since(began), time.Second)
	require.NoError(t, locks.Close())
}

// straggler is a node to which an ask is so long on its way that the tombstone of its release is gone.
type straggler struct {
	driver.Driver
	arrives chan struct{}
}

func (s *straggler) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	asked := *r
	<-s.arrives
	return s.Driver.Acquire(context.WithoutCancel(ctx), &asked)
}

func (s *straggler) Release(ctx context.Context, l driver.Lease) error {
	l.Unsettled = false
	return s.Driver.Release(ctx, l)
}

func TestAskThatArrivesLongAfterItsReleaseTakesNothing(t *testing.T) {
	for _, queued := range []bool{false, true} {
		t.Run(fmt.Sprint("queued ", queued), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &straggler{memdriver.New(), make(chan struct{})}
				nodes := []driver.Driver{memdriver.New(), memdriver.New(), s}
				other := driver.Request{Kind: driver.Mutex, Name: "x", Token: "other", Ask: 1, TTL: time.Hour}
				for i, n := range []driver.Driver{nodes[0], nodes[1], s.Driver} {
					if i < 2 || queued {
						_, err := n.Acquire(t.Context(), &other)
						require.NoError(t, err)
					}
				}
				locks := holdfast.Open(redlock.New(nodes, redlock.WithDelayedRestart(0)))
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := locks.Mutex("x").Lease(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				time.Sleep(time.Second)
				close(s.arrives)
				time.Sleep(time.Second)
				if queued {
					require.NoError(t, s.Driver.Release(t.Context(), driver.Lease{Kind: driver.Mutex, Name: "x", Token: "other", TTL: time.Hour}))
				}
				info, err := s.Driver.(driver.Inspector).Inspect(t.Context(), driver.Mutex, "x")
				require.NoError(t, err)
				require.Empty(t, info.Holders)
				require.NoError(t, locks.Close())
			})
		})
	}
}

// shy is a node that cannot be dialed once, or takes its time to release.
type shy struct {
	driver.Driver
	fails    atomic.Bool
	pauses   time.Duration
	releases atomic.Bool
}

func (s *shy) Unwrap() driver.Driver { return s.Driver }

func (s *shy) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if s.fails.Swap(false) {
		return driver.Grant{}, errDial
	}
	return s.Driver.Acquire(ctx, r)
}

func (s *shy) Release(ctx context.Context, l driver.Lease) error {
	s.releases.Store(true)
	time.Sleep(s.pauses)
	return s.Driver.Release(ctx, l)
}

// A client that has just started needs all nodes. It gives the vote of one back, and asks again before that is
// done, so that it stands in no queue there.
func TestNodeThatIsGivenBackWhileOthersAreAskedIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []driver.Driver
		for i := range 3 {
			s := &shy{Driver: &claimant{Driver: memdriver.New()}}
			if s.fails.Store(i < 2); i == 2 {
				s.pauses = 40 * time.Millisecond
			}
			nodes = append(nodes, s)
		}
		locks := holdfast.Open(redlock.New(nodes), holdfast.WithTTL(30*time.Second))
		began := time.Now()
		lease, err := locks.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		require.Less(t, time.Since(began), 5*time.Second, "it was no heartbeat")
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, locks.Close())
	})
}

// unlucky is a link on which the next ask hangs, and is lost then, and the next release cannot be sent.
type unlucky struct {
	driver.Driver
	hangs, refuses, dead, late atomic.Bool
	loses                      chan struct{}
}

func (u *unlucky) Unwrap() driver.Driver { return u.Driver }

func (u *unlucky) Close() error { return nil }

func (u *unlucky) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	switch {
	case u.dead.Load():
		return driver.Grant{}, errDial
	case u.hangs.Swap(false):
		<-u.loses
		return driver.Grant{}, errLost
	case u.late.Swap(false):
		return driver.Grant{}, errLost
	}
	return u.Driver.Acquire(ctx, r)
}

func (u *unlucky) Release(ctx context.Context, l driver.Lease) error {
	if u.dead.Load() || u.refuses.Swap(false) {
		return errDial
	}
	return u.Driver.Release(ctx, l)
}

// unluckyNodes are three nodes on which another token holds the lock.
func unluckyNodes(t *testing.T) (links []*unlucky, nodes []driver.Driver) {
	for range 3 {
		u := &unlucky{Driver: memdriver.New(), loses: make(chan struct{})}
		_, err := u.Driver.Acquire(t.Context(), request("other"))
		require.NoError(t, err)
		links, nodes = append(links, u), append(nodes, u)
	}
	return links, nodes
}

// asksFor has a token ask, and wait. It notes when that has won.
func asksFor(t *testing.T, d driver.Driver, token string, ask uint64, won *atomic.Bool) (driver.Grant, error) {
	r := request(token)
	r.Ask, r.Wait = ask, true
	r.Wake = func(g driver.Grant) {
		if g.Status == driver.Granted {
			won.Store(true)
		}
	}
	g, err := d.Acquire(t.Context(), r)
	if err == nil && g.Status == driver.Granted {
		won.Store(true)
	}
	return g, err
}

// A heartbeat hangs while its vote is to be given back, which fails. The node is asked again, and the vote makes a
// majority. Then the heartbeat is lost.
func TestVoteThatWasNotGivenBackIsKeptByItsHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		links, nodes := unluckyNodes(t)
		var others []driver.Driver
		for _, u := range links {
			others = append(others, &unlucky{Driver: u.Driver})
		}
		links[1].dead.Store(true)
		d, other := redlock.New(nodes, redlock.WithDelayedRestart(0)), redlock.New(others, redlock.WithDelayedRestart(0))
		var first, second atomic.Bool
		_, _ = asksFor(t, d, "first", 1, &first)
		_, _ = asksFor(t, other, "second", 1, &second)
		links[2].hangs.Store(true)
		links[2].refuses.Store(true)
		go asksFor(t, d, "first", 2, &first) //nolint:errcheck // won says it
		synctest.Wait()
		for _, i := range []int{2, 1, 0} {
			require.NoError(t, links[i].Driver.Release(t.Context(), lease("other")))
			time.Sleep(4 * time.Millisecond)
		}
		require.True(t, first.Load())
		close(links[2].loses)
		time.Sleep(5 * time.Millisecond)
		require.False(t, second.Load(), "FOUL: there are two")
		require.Equal(t, []error{nil}, d.Renew(t.Context(), []driver.Lease{lease("first")}))
		require.NoError(t, d.Close())
		require.NoError(t, other.Close())
	})
}

// It would lose its places.
func TestWaiterKeepsItsTokenThoughANodeIsLateOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		links, nodes := unluckyNodes(t)
		mumbles := &mumbler{Driver: links[1], heard: make(chan struct{})}
		nodes[1] = mumbles
		d := redlock.New(nodes, redlock.WithDelayedRestart(0))
		var won atomic.Bool
		_, err := asksFor(t, d, "me", 1, &won)
		require.NoError(t, err)
		mumbles.mumbles.Store(true) // its vote is spoiled
		require.NoError(t, links[1].Driver.Release(t.Context(), lease("other")))
		time.Sleep(time.Second)
		links[2].late.Store(true)
		_, err = asksFor(t, d, "me", 2, &won)
		require.NotErrorIs(t, err, driver.ErrNotHeld)
		require.NoError(t, d.Close())
	})
}

// A caller that only tries gets no other token: it hears that nodes do not answer. Nothing was taken from it.
func TestTryIsToldOfTheTroubleThoughItsVotesAreSpoiled(t *testing.T) {
	for name, opts := range map[string][]redlock.Option{
		"two are needed, and two are dead":         {redlock.WithDelayedRestart(0)},
		"three are needed, and one fails for once": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node := func() driver.Driver { return &claimant{Driver: memdriver.New()} }
				m, s, u := &mumbler{Driver: node(), heard: make(chan struct{})}, &shy{Driver: node()}, &unlucky{Driver: node()}
				m.mumbles.Store(true)
				s.fails.Store(true)
				if u.dead.Store(opts != nil); opts != nil {
					go func() { // as soon as it has the vote back
						<-m.heard
						m.dead.Store(true)
					}()
				}
				locks := holdfast.Open(redlock.New([]driver.Driver{m, s, u}, opts...))
				_, err := locks.Mutex("x").TryLease(t.Context())
				require.ErrorIs(t, err, holdfast.ErrUnavailable)
				require.NotErrorIs(t, err, holdfast.ErrLost)
				require.NoError(t, locks.Close())
			})
		})
	}
}

// deliberate takes its time to answer an ask.
type deliberate struct {
	driver.Driver
	takes    atomic.Int64 // ns
	released atomic.Bool
}

func (s *deliberate) Unwrap() driver.Driver { return s.Driver }

func (s *deliberate) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	asked := *r
	time.Sleep(time.Duration(s.takes.Load()))
	return s.Driver.Acquire(ctx, &asked)
}

func (s *deliberate) Release(ctx context.Context, l driver.Lease) error {
	s.released.Store(true)
	return s.Driver.Release(ctx, l)
}

// A waiter gives the vote of the first node back, and has done so, and is asking there anew, when the second answers
// its heartbeat; the third is dead. The first is no node without a queue, for which the vote of the second would be
// given back at once.
func TestVoteIsKeptThoughAnotherIsGivenBackDuringTheAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &shy{Driver: memdriver.New(), pauses: 20 * time.Millisecond}
		late, dead := &unlucky{Driver: memdriver.New()}, &unlucky{Driver: memdriver.New()}
		first, second := &deliberate{Driver: slow}, &deliberate{Driver: late}
		late.late.Store(true) // its first answer is lost
		dead.dead.Store(true)
		d := redlock.New([]driver.Driver{first, second, dead}, redlock.WithDelayedRestart(0))
		var won atomic.Bool
		_, err := asksFor(t, d, "me", 1, &won)
		require.Error(t, err)
		for !slow.releases.Load() {
			time.Sleep(time.Millisecond)
		}
		first.takes.Store(int64(40 * time.Millisecond))
		second.takes.Store(int64(30 * time.Millisecond))
		g, err := asksFor(t, d, "me", 2, &won)
		require.NoError(t, err)
		require.Equal(t, driver.Queued, g.Status)
		require.False(t, second.released.Load())
		require.NoError(t, d.Close())
	})
}

// forgetful is a node that keeps no tombstones. Its answer to the first release is lost, and that to the second late.
type forgetful struct {
	straggler
	releases atomic.Int32
	answers  chan struct{}
}

func (s *forgetful) Unwrap() driver.Driver { return s.Driver }

func (s *forgetful) Release(ctx context.Context, l driver.Lease) error {
	n := s.releases.Add(1)
	err := s.straggler.Release(ctx, l)
	switch n {
	case 1:
		return errLost
	case 2:
		<-s.answers
	}
	return err
}

// A release is repeated when the ask comes in that it has overtaken: what that takes is released once more.
func TestReleaseThatIsDueAgainIsNotForgottenWithTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &forgetful{straggler: straggler{memdriver.New(), make(chan struct{})}, answers: make(chan struct{})}
		nodes := []driver.Driver{memdriver.New(), memdriver.New(), s}
		for _, n := range nodes[:2] {
			_, err := n.Acquire(t.Context(), request("other"))
			require.NoError(t, err)
		}
		d := redlock.New(nodes, redlock.WithDelayedRestart(0))
		var won atomic.Bool
		_, err := asksFor(t, d, "me", 1, &won)
		require.NoError(t, err)
		require.NoError(t, d.Release(t.Context(), lease("me")))
		time.Sleep(20 * time.Millisecond)
		require.EqualValues(t, 2, s.releases.Load())
		close(s.arrives)
		synctest.Wait()
		require.True(t, taken(t, s.Driver))
		close(s.answers)
		time.Sleep(time.Second)
		require.False(t, taken(t, s.Driver))
		require.NoError(t, d.Close())
	})
}

// The client may have heard of its grant by the time when an answer is judged.
func TestBallotThatIsWonIsNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nodes := unluckyNodes(t)
		d := redlock.New(nodes, redlock.WithDelayedRestart(0))
		var won atomic.Bool
		for i, token := range []string{"loses", "wins"} {
			_, err := asksFor(t, d, token, 1, &won)
			require.NoError(t, err)
			if i == 0 {
				require.True(t, redlock.Ends(d, token))
				require.NoError(t, d.Release(t.Context(), lease(token)))
			}
		}
		for _, n := range nodes {
			require.NoError(t, n.Release(t.Context(), lease("other")))
		}
		time.Sleep(time.Millisecond)
		require.True(t, won.Load())
		require.False(t, redlock.Ends(d, "wins"))
		require.NoError(t, d.Close())
	})
}
