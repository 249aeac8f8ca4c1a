package redlock_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/driver/redlock"
)

// Each of 5 nodes is free, or held by another, or down, in every combination: three that are free
// win, and nothing is left of an attempt on any node.
func TestWonIfAndOnlyIfAMajorityIsFree(t *testing.T) {
	const (
		free = iota
		held
		down
		states
	)
	for all := range states * states * states * states * states {
		var of [5]int
		var count [states]int
		for i, rest := 0, all; i < len(of); i, rest = i+1, rest/states {
			of[i] = rest % states
			count[of[i]]++
		}
		t.Run(fmt.Sprint(of), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var stores, nodes []driver.Driver
				for _, state := range of {
					l := &link{Driver: memdriver.New()}
					stores, nodes = append(stores, l.Driver), append(nodes, l)
					l.cut.Store(state == down)
					if state == held {
						_, err := l.Driver.Acquire(t.Context(), request("holder"))
						require.NoError(t, err)
					}
				}
				d := redlock.New(nodes, redlock.WithDelayedRestart(0))
				g, err := d.Acquire(t.Context(), request("token"))
				l := lease("token")
				switch {
				case count[free] >= 3:
					require.NoError(t, err)
					require.Equal(t, driver.Granted, g.Status)
					require.EqualValues(t, 1, g.Ask)
					require.NoError(t, d.Renew(t.Context(), []driver.Lease{l})[0])
					require.NoError(t, d.Release(t.Context(), l))
				case count[held] >= 3 || count[down] < 3:
					require.NoError(t, err)
					require.Equal(t, driver.Busy, g.Status)
				default:
					require.ErrorIs(t, err, driver.ErrTransient)
					l.Unsettled = true
					_ = d.Release(t.Context(), l) // As many nodes are down as before.
				}
				synctest.Wait()
				for i, s := range stores {
					require.Equal(t, of[i] == held, taken(t, s), "node %d", i)
				}
				require.NoError(t, d.Close())
			})
		})
	}
}
