package redisdriver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// look has many look at locks at once.
func look(d *redisdriver.Driver, names []string) (infos []driver.Info, errs []error) {
	infos, errs = make([]driver.Info, len(names)), make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { infos[i], errs[i] = d.Inspect(context.Background(), driver.Mutex, name) })
	}
	all.Wait()
	return infos, errs
}

// parties are who holds a lock, and who waits.
func parties(info driver.Info) (all string) {
	for _, h := range info.Holders {
		all += fmt.Sprint(h.Holder, " ", h.Fence, ", ")
	}
	for _, w := range info.Queue {
		all += fmt.Sprint(w.Holder, ", ")
	}
	return all
}

// Whoever looks at many locks gets of each what he would get of it alone.
func TestLooksShareCalls(t *testing.T) {
	everywhere(t, func(t *testing.T, s *redistest.Server, virtual bool) {
		d, rdb, w := watched(t, s)
		var names []string
		for i := range 200 {
			name := fmt.Sprint("seen", i)
			names = append(names, name)
			ask := func(who string, wait bool) {
				r := askFor(name)
				r.Token, r.Holder, r.Wait = who+"-"+name, who, wait
				_, err := d.Acquire(t.Context(), r)
				require.NoError(t, err)
			}
			switch {
			case i == 7:
				require.NoError(t, rdb.RPush(t.Context(), d.Key(driver.Mutex, name), "no lock").Err())
			case i == 8:
				require.NoError(t, rdb.Set(t.Context(), d.Key(driver.Mutex, name), "garbage", 0).Err())
			case i%10 == 0: // is free
			case i%20 == 1:
				ask("holder", false)
				for k := range 60 { // there is more to tell than goes in one call
					ask(fmt.Sprint("waiter", k), true)
				}
			default:
				ask("holder", false)
			}
		}
		w.runs = nil
		infos, errs := look(d, names)
		if virtual {
			require.Less(t, len(w.seen()), 100)
		}
		_, most := locksIn(w.seen())
		require.Greater(t, most, 1)
		require.LessOrEqual(t, most, 64, "for no longer may a call hold up the server")

		d.Batch(false)
		for i, name := range names {
			info, err := d.Inspect(t.Context(), driver.Mutex, name)
			assert.Equal(t, parties(info), parties(infos[i]), name)
			assert.Equal(t, fmt.Sprint(err), fmt.Sprint(errs[i]), name)
			assert.Equal(t, errors.Is(err, driver.ErrNotExecuted), errors.Is(errs[i], driver.ErrNotExecuted), name)
			switch {
			case i == 7 || i == 8:
				assert.ErrorContains(t, errs[i], "WRONGTYPE", name)
			case i%20 == 1:
				assert.Len(t, infos[i].Queue, 60, name)
			default:
				assert.NoError(t, errs[i], name)
			}
		}
	})
}

// Who looks at many locks leaves connections to others.
func TestLooksThatShareNoCallsAreFewAtATime(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		d, _, w := watched(t, s)
		d.Batch(false)
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprint("seen", i))
		}
		_, errs := look(d, names[:1])
		requireNone(t, errs)
		open := w.shut(func(int, run) bool { return true })
		var all sync.WaitGroup
		all.Go(func() {
			_, errs := look(d, names)
			requireNone(t, errs)
		})
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, w.seen(), 16)
		open()
		all.Wait()
		require.Len(t, w.seen(), 100)
	})
}

// looksShareCallsOfANode is a scene of TestNodesOfACluster.
func looksShareCallsOfANode(t *testing.T, c *redistest.Cluster) {
	i := onIsland(t, c)
	i.try(t, i.beside(t, "looked", "tried%d", several)...)
	names := i.beside(t, "looked", "looked%d", 50)
	for _, name := range names {
		_, err := i.ask("somebody", name)
		require.NoError(t, err)
	}
	until(t, "a shared call", func(int) bool {
		open := i.w.shut(func(n int, _ run) bool { return n == 0 })
		var all sync.WaitGroup
		all.Go(func() {
			infos, errs := look(i.d, names)
			requireNone(t, errs)
			for _, info := range infos {
				require.Len(t, info.Holders, 1)
			}
		})
		i.awaitCaller(t, len(names)-1)
		open()
		all.Wait()
		return slices.ContainsFunc(i.w.seen(), func(r run) bool { return len(r.keys) > 1 && strings.Contains(r.keys[0], "looked") })
	})
}
