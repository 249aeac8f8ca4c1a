package simulation_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// scenes are short plans with all that they are about in few frames.
var scenes = map[string]plan{
	"mutex goes from hand to hand": {
		Procs: processes(3), Locks: []driver.Kind{driver.Mutex},
		Actors: []actor{
			{0, []step{{Do: doLease, Hold: 40 * millisecond}}},
			{1, []step{{Do: doLease, Pause: 10 * millisecond, Hold: 20 * millisecond}}},
			{2, []step{{Do: doLease, Pause: 20 * millisecond, Hold: 20 * millisecond}}},
		},
	},
	"mutex goes from hand to hand, and again when all is well": {
		Procs: processes(2), Locks: []driver.Kind{driver.Mutex},
		Actors: []actor{
			{0, []step{{Do: doLease, Hold: 40 * millisecond}, {Do: doLease, Pause: 20 * time.Second, Hold: 6 * time.Second}}},
			{1, []step{{Do: doLease, Pause: 10 * millisecond, Hold: 20 * millisecond}, {Do: doLease, Pause: 20 * time.Second, Hold: 6 * time.Second}}},
			{1, []step{{Do: doLease, Pause: 20*time.Second + 200*millisecond}}},
			{0, []step{{Do: doLease, Pause: 20*time.Second + 250*millisecond}}},
		},
	},
	"mutex is held for long": {
		Procs: processes(2), Locks: []driver.Kind{driver.Mutex},
		Actors: []actor{
			{0, []step{{Do: doLease, Hold: 1500 * millisecond}}},
			{1, []step{{Do: doLease, Pause: 10 * millisecond, Hold: 1500 * millisecond}}},
			{0, []step{{Do: doLease, Pause: 20 * millisecond, Hold: 20 * millisecond}}},
		},
	},
	"release comes so late that it finds another holder": {
		Procs: processes(2), Locks: []driver.Kind{driver.Mutex},
		Actors: []actor{
			{0, []step{{Do: doLease, Hold: 20 * millisecond}}},
			{1, []step{{Do: doLease, Pause: latest - 500*millisecond, Hold: 2 * time.Second}}},
		},
	},
	"waiter is cancelled": {
		Procs: processes(3), Locks: []driver.Kind{driver.Mutex},
		Actors: []actor{
			{0, []step{{Do: doLease, Hold: 40 * millisecond}}},
			{1, []step{{Do: doLease, Pause: 10 * millisecond, Hold: 20 * millisecond, Patience: 15 * millisecond}}},
			{2, []step{{Do: doLease, Pause: 20 * millisecond, Hold: 20 * millisecond}}},
		},
	},
	"waiter is cancelled as it is served": {
		Procs: processes(3), Locks: []driver.Kind{driver.Mutex},
		Actors: []actor{
			{0, []step{{Do: doLease, Hold: 40 * millisecond}}},
			{1, []step{{Do: doLease, Pause: 10 * millisecond, Hold: 20 * millisecond, Patience: 31 * millisecond}}},
			{2, []step{{Do: doLease, Pause: 20 * millisecond, Hold: 20 * millisecond}}},
		},
	},
	"readers and a writer": {
		Procs: processes(3), Locks: []driver.Kind{driver.RWMutex},
		Actors: []actor{
			{0, []step{{Do: doRLease, Hold: 30 * millisecond}}},
			{1, []step{{Do: doRLease, Pause: 5 * millisecond, Hold: 30 * millisecond}}},
			{2, []step{{Do: doLease, Pause: 10 * millisecond, Hold: 20 * millisecond}}},
			{1, []step{{Do: doRLease, Pause: 15 * millisecond, Hold: 10 * millisecond}}},
			{0, []step{{Do: doRLock, Pause: 18 * millisecond, Hold: 10 * millisecond}}},
		},
	},
	"writer goes on as a reader": {
		Procs: processes(2), Locks: []driver.Kind{driver.RWMutex},
		Actors: []actor{
			{0, []step{{Do: doDowngrade, Hold: 20 * millisecond}}},
			{1, []step{{Do: doRLease, Pause: 5 * millisecond, Hold: 20 * millisecond}}},
			{1, []step{{Do: doLease, Pause: 10 * millisecond, Hold: 5 * millisecond}}},
		},
	},
	"parts of a semaphore": {
		Procs: processes(3), Locks: []driver.Kind{driver.Semaphore},
		Actors: []actor{
			{0, []step{{Do: doLock, N: 3, Hold: 20 * millisecond}}},
			{1, []step{{Do: doLease, N: 1, Pause: 5 * millisecond, Hold: 30 * millisecond}}},
			{2, []step{{Do: doLease, N: 2, Pause: 10 * millisecond, Hold: 10 * millisecond}}},
		},
	},
	"many locks in one call": {
		Procs: processes(2), Locks: []driver.Kind{driver.Mutex},
		Actors: []actor{
			{0, []step{{Do: doLease, Hold: 1 * millisecond}, {Do: doGroup, Hold: 10 * millisecond}}},
			{1, []step{{Do: doLease, Pause: 3 * millisecond, Hold: 1 * millisecond}, {Do: doGroup, N: 1, Hold: 10 * millisecond}}},
		},
	},
	"process closes": {
		Procs: processes(2), Locks: []driver.Kind{driver.Mutex},
		Actors: []actor{
			{0, []step{{Do: doLease, Hold: 40 * millisecond}}},
			{1, []step{{Do: doLease, Pause: 10 * millisecond, Hold: 10 * millisecond}}},
			{0, []step{{Do: doLock, Pause: 15 * millisecond, Hold: 10 * millisecond}}},
			{0, []step{{Do: doClose, Pause: 25 * millisecond}, {Do: doLease, Hold: 10 * millisecond}}},
		},
	},
	"goroutines of one process take turns": {
		Procs: []proc{{TTL: time.Second, Timeout: 300 * millisecond, Linger: 10 * millisecond}, {TTL: time.Second, Timeout: 300 * millisecond}},
		Locks: []driver.Kind{driver.Mutex},
		Actors: []actor{
			{0, []step{{Do: doLease, Hold: 10 * millisecond}, {Do: doLock, Pause: 2 * millisecond, Hold: 5 * millisecond}}},
			{0, []step{{Do: doLock, Pause: 2 * millisecond, Hold: 10 * millisecond}, {Do: doNest, Hold: 3 * millisecond}}},
			{1, []step{{Do: doLease, Pause: 5 * millisecond, Hold: 10 * millisecond}}},
		},
	},
	"lease moves": {
		Procs: processes(2), Locks: []driver.Kind{driver.Mutex},
		Actors: []actor{
			{0, []step{{Do: doMove, Hold: 20 * millisecond}}},
			{1, []step{{Do: doLease, Pause: 5 * millisecond, Hold: 10 * millisecond}}},
		},
	},
	"owner comes again": {
		Procs: processes(3), Locks: []driver.Kind{driver.Mutex},
		Actors: []actor{
			{0, []step{{Do: doOwner, Hold: 30 * millisecond}}},
			{1, []step{{Do: doLease, Pause: 5 * millisecond, Hold: 10 * millisecond}}},
			{2, []step{{Do: doOwner, Pause: 10 * millisecond, Hold: 30 * millisecond}}},
		},
	},
	"limit changes": {
		Procs: processes(2), Locks: []driver.Kind{driver.Semaphore},
		Actors: []actor{
			{0, []step{{Do: doLease, N: 2, Hold: 30 * millisecond}}},
			{1, []step{{Do: doLease, N: 2, Pause: 5 * millisecond, Hold: 10 * millisecond}}},
			{0, []step{{Do: doResize, N: 3, Pause: 10 * millisecond}, {Do: doResize, N: 1, Pause: 20 * millisecond}}},
		},
	},
	"lock is taken by force": {
		Procs: processes(3), Locks: []driver.Kind{driver.Mutex},
		Actors: []actor{
			{0, []step{{Do: doLease, Hold: 40 * millisecond}}},
			{1, []step{{Do: doLease, Pause: 5 * millisecond, Hold: 10 * millisecond}}},
			{2, []step{{Do: doForce, N: 1, Pause: 10 * millisecond}}},
		},
	},
}

// mostFrames of a scene may fail: those that come later are heartbeats.
const mostFrames = 120

// processes queue one by one, so that a scene has the same frames each time.
func processes(n int) []proc {
	all := make([]proc, n)
	for i := range all {
		all[i] = proc{TTL: time.Second, Timeout: 300 * millisecond, Strict: true}
	}
	return all
}

// In each scene each frame on the wire is lost, delayed, or the last before a reset, or just
// then a caller gives up, or a process closes. Without HOLDFAST_SOAK=1 each frame has some of
// that, and the next frames have the rest.
func TestEveryFrameMayFail(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var plays, ops, virtual atomic.Int64
			began, few := time.Now(), 10
			if soak {
				few = 1
			}
			for title, scene := range scenes {
				t.Run(title, func(t *testing.T) {
					t.Parallel()
					scene.Seed = 1
					calm := play(t, &scene, nil, open)
					require.NoError(t, calm.err)
					for at := 1; at <= min(calm.frames, mostFrames); at++ {
						for i, s := range strikes(&scene) {
							if (at+i)%few != 0 {
								continue
							}
							s.At = at
							o := play(t, &scene, &s, open)
							require.NoError(t, o.err, "%s %d at frame %d of %d", s.Kind, s.Of, at, calm.frames)
							plays.Add(1)
							ops.Add(int64(o.ops))
							virtual.Add(int64(o.virtual))
						}
					}
				})
			}
			t.Cleanup(func() { // when all scenes have been played
				t.Logf("%d plays, %d calls, %.1f virtual hours in %v", plays.Load(), ops.Load(),
					time.Duration(virtual.Load()).Hours(), time.Since(began).Round(time.Second))
			})
		})
	}
}

// strikes are all that can happen at a frame.
func strikes(p *plan) []strike {
	list := []strike{{Kind: strikeLose}, {Kind: strikeDelay}, {Kind: strikeReset}, {Kind: strikeDeliver}, {Kind: strikeCut}}
	for i := range p.Actors {
		list = append(list, strike{Kind: strikeCancel, Of: i})
	}
	for i := range p.Procs {
		list = append(list, strike{Kind: strikeClose, Of: i})
	}
	return list
}
