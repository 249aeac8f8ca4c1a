package redlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redlock"
)

// puppet is a node that says what the test wants.
type puppet struct {
	driver.Driver // nil: nothing else is called
	wake          func(driver.Grant)
	released      atomic.Int32
}

func (p *puppet) Acquire(_ context.Context, r *driver.Request) (driver.Grant, error) {
	p.wake = r.Wake
	return driver.Grant{Status: driver.Queued}, nil
}

func (p *puppet) Release(context.Context, driver.Lease) error {
	p.released.Add(1)
	return nil
}

func (p *puppet) Close() error { return nil }

func (p *puppet) push(ask uint64) { p.wake(driver.Grant{Status: driver.Granted, Ask: ask}) }

// theatre is a token that has asked some times, a second apart, and waits at 3 puppets.
func theatre(t *testing.T, asks int, play func(nodes []*puppet, ask func(), heard func() []driver.Grant)) {
	synctest.Test(t, func(t *testing.T) {
		nodes := []*puppet{{}, {}, {}}
		d := redlock.New([]driver.Driver{nodes[0], nodes[1], nodes[2]}, redlock.WithDelayedRestart(0))
		defer func() { require.NoError(t, d.Close()) }()
		var news []driver.Grant
		r := request("waiter")
		r.Wait, r.Wake = true, func(g driver.Grant) { news = append(news, g) }
		ask := func() {
			g, err := d.Acquire(t.Context(), r)
			require.NoError(t, err)
			require.Equal(t, driver.Queued, g.Status)
			r.Ask++
		}
		for range asks {
			ask()
			time.Sleep(time.Second)
		}
		play(nodes, ask, func() []driver.Grant {
			synctest.Wait()
			return news
		})
		require.NoError(t, d.Release(t.Context(), lease("waiter")))
	})
}

func TestGrantRestsOnTheOldestAskOfItsMajority(t *testing.T) {
	for name, c := range map[string]struct {
		asks []uint64
		want uint64
	}{
		"the older of two": {[]uint64{2, 1}, 1},
		"both the same":    {[]uint64{2, 2}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			theatre(t, 2, func(nodes []*puppet, ask func(), heard func() []driver.Grant) {
				for i, ask := range c.asks {
					require.Empty(t, heard(), "one node is no majority")
					nodes[i].push(ask)
				}
				require.Equal(t, []driver.Grant{{Status: driver.Granted, Ask: c.want}}, heard())
			})
		})
	}
}

// A push can be late. Its lease may have ended, and have gone to another.
func TestVotesDoNotOutliveTheTTLOfTheirAsk(t *testing.T) {
	theatre(t, 1, func(nodes []*puppet, ask func(), heard func() []driver.Grant) {
		time.Sleep(ttl - time.Second - ttl/100 - 2*time.Millisecond)
		nodes[0].push(1)
		nodes[1].push(1)
		require.Empty(t, heard(), "there is no validity left")
	})
	theatre(t, 1, func(nodes []*puppet, ask func(), heard func() []driver.Grant) {
		nodes[0].push(1)
		time.Sleep(ttl)
		nodes[1].push(1)
		require.Empty(t, heard(), "the votes are not good at the same time")
	})
}

// A minority is given back after a while, and what is pushed for it later proves nothing:
// it may be of before.
func TestVoteThatWasGivenBackIsNotCounted(t *testing.T) {
	theatre(t, 1, func(nodes []*puppet, ask func(), heard func() []driver.Grant) {
		stale := nodes[2].wake
		nodes[2].push(1)
		time.Sleep(ttl / 3)
		require.Positive(t, nodes[2].released.Load())
		stale(driver.Grant{Status: driver.Granted, Ask: 1})
		ask()
		nodes[2].push(1)
		nodes[1].push(1)
		require.Empty(t, heard(), "one of the votes is another's by now")
	})
}
