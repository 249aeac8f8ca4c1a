package leader_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/leader"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestOneLeadsUntilItResigns(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a := leader.New(l.Near(), "x", holdfast.WithHolder("a"))
		b := leader.New(l.Mates(), "x", holdfast.WithHolder("b"))
		_, err := a.Leader(t.Context())
		require.ErrorIs(t, err, leader.ErrNoLeader)

		first, err := a.Campaign(t.Context())
		require.NoError(t, err)
		var second *leader.Term
		elected := lab.Begin(func() {
			var err error
			second, err = b.Campaign(t.Context())
			assert.NoError(t, err)
		})
		l.UntilQueue("x", 1)
		for _, e := range []*leader.Election{a, b} {
			now, err := e.Leader(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "a", now.Name)
			assert.Equal(t, first.Fence(), now.Fence)
		}
		l.Stays(elected)

		require.NoError(t, first.Resign(t.Context()))
		l.Ends(elected)
		require.ErrorIs(t, first.Err(), holdfast.ErrNotHeld)
		require.ErrorIs(t, context.Cause(first.Context()), context.Canceled)
		assert.Greater(t, second.Fence(), first.Fence(), "FOUL: fences went back")
		now, err := a.Leader(t.Context())
		require.NoError(t, err)
		assert.Equal(t, leader.Leader{Name: "b", Fence: second.Fence(), Since: now.Since}, now)
		require.NoError(t, second.Resign(t.Context()))
	})
}

// A candidate that came before is not passed over for one of the leader's own process.
func TestCandidatesAreElectedInTheOrderInWhichTheyCame(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		turn := holdfast.WithTTL(time.Hour) // of which a part is a turn of one process
		mates, other := leader.New(l.Mates(turn), "x"), leader.New(l.Mates(turn), "x")
		first, err := mates.Campaign(t.Context())
		require.NoError(t, err)
		var elected []string
		var all []<-chan any
		for i, c := range []struct {
			name string
			in   *leader.Election
		}{{"another process", other}, {"the same process", mates}} {
			all = append(all, lab.Begin(func() {
				term, err := c.in.Campaign(t.Context())
				if assert.NoError(t, err) {
					elected = append(elected, c.name)
					assert.NoError(t, term.Resign(t.Context()))
				}
			}))
			l.UntilQueue("x", i+1)
		}
		require.NoError(t, first.Resign(t.Context()))
		for _, done := range all {
			l.Ends(done)
		}
		assert.Equal(t, []string{"another process", "the same process"}, elected)
	})
}

func TestRunStandsAgainWhenItsTermIsLost(t *testing.T) {
	t.Parallel()
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c, operator := l.Near(holdfast.WithTTL(l.Time(300*time.Millisecond))), l.Near()
		e := leader.New(c, "x")
		terms, lost := 0, errors.New("whatever lead returns then")
		done := errors.New("done")
		err := e.Run(t.Context(), func(ctx context.Context) error {
			if terms++; terms == 3 {
				return done
			}
			require.NoError(t, operator.Mutex("x").ForceUnlock(ctx))
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), holdfast.ErrLost)
			if terms == 1 {
				return nil
			}
			return lost
		})
		require.ErrorIs(t, err, done)
		assert.Equal(t, 3, terms)
		l.Free(operator, "x")

		ctx, cancel := context.WithCancelCause(t.Context())
		err = e.Run(ctx, func(ctx context.Context) error {
			cancel(done)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, done)
		l.Free(operator, "x")
		require.ErrorIs(t, e.Run(ctx, nil), done, "it does not stand")

		require.Panics(t, func() { _ = e.Run(t.Context(), func(context.Context) error { panic("lead") }) })
		l.Free(operator, "x")
	})
}

func TestObserveTellsOfEachChangeAndOfTrouble(t *testing.T) {
	for _, curt := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { observe(t, curt) })
	}
}

func observe(t *testing.T, curt bool) {
	store := &moody{Driver: memdriver.New()}
	store.curt.Store(curt)
	c := holdfast.Open(store)
	defer c.Close()
	a, b := leader.New(c, "x", holdfast.WithHolder("a")), leader.New(c, "x", holdfast.WithHolder("b"))
	ctx, cancel := context.WithCancel(t.Context())
	type seen struct {
		name string
		err  error
	}
	news, over := make(chan seen), make(chan struct{})
	go func() {
		defer close(over)
		for now, err := range a.Observe(ctx, time.Second) {
			news <- seen{now.Name, err}
		}
	}()
	next := func() seen {
		select {
		case s := <-news:
			return s
		case <-time.After(5 * time.Second):
			t.Fatal("nothing is seen")
			return seen{}
		}
	}
	quiet := func() {
		select {
		case s := <-news:
			t.Fatalf("seen again: %v", s)
		case <-time.After(time.Minute):
		}
	}
	require.ErrorIs(t, next().err, leader.ErrNoLeader)
	quiet()
	term, err := a.Campaign(t.Context())
	require.NoError(t, err)
	require.Equal(t, seen{"a", nil}, next())
	quiet()
	store.down.Store(true)
	require.ErrorIs(t, next().err, driver.ErrTransient)
	quiet()
	store.down.Store(false)
	require.Equal(t, seen{"a", nil}, next())
	require.NoError(t, term.Resign(t.Context()))
	term, err = b.Campaign(t.Context())
	require.NoError(t, err)
	require.Equal(t, seen{"b", nil}, next())
	require.NoError(t, term.Resign(t.Context()))
	require.ErrorIs(t, next().err, leader.ErrNoLeader)
	cancel()
	<-over

	for range a.Observe(t.Context(), time.Second) {
		break
	}
	require.Panics(t, func() { a.Observe(t.Context(), 0) })
}

// moody is a store that sometimes does not tell who holds a lock, or nothing but the name.
type moody struct {
	*memdriver.Driver
	down, curt atomic.Bool
}

func (d *moody) Inspect(ctx context.Context, k driver.Kind, name string) (driver.Info, error) {
	if d.down.Load() {
		return driver.Info{}, driver.ErrTransient
	}
	info, err := d.Driver.Inspect(ctx, k, name)
	if d.curt.Load() {
		for i := range info.Holders {
			info.Holders[i] = driver.Holder{Holder: info.Holders[i].Holder}
		}
	}
	return info, err
}
