package deadlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/tag"
)

// scripted is a walk for a lock of p, who waits for a, which another holds, who waits for b, which
// a third one holds, who waits for p's. The function returns what a look at a and b shows.
func scripted(shows func(Lock) driver.Holder) *walk {
	return &walk{
		me: note{id: "me", since: time.UnixMicro(9)}, want: lockNo(0),
		mine:    func(l Lock, _ driver.Holder) bool { return l == lockNo(2) },
		inspect: func(l Lock) holdfast.Info { return holdfast.Info{Holders: []driver.Holder{shows(l)}} },
	}
}

// waiting is a holder that has told so often that it waits for a lock.
func waiting(id string, told int, l Lock) driver.Holder {
	n := note{id: id, told: told, want: l, since: time.UnixMicro(1)}
	return driver.Holder{Fence: 1, Tag: tag.With("", n.text())}
}

// One has been read, tells its wait twice more and gives up, before the wait of the other begins.
// Both never waited at the same time.
func TestWaitsThatNeverMetAreNoCircle(t *testing.T) {
	for before := range 3 { // readings that see the first one wait
		readings, first, other := 0, 1, 1
		w := scripted(func(l Lock) (h driver.Holder) {
			switch l {
			case lockNo(0):
				h = waiting("one", first, lockNo(1))
				if readings++; readings > before {
					first = 3
				}
			case lockNo(1):
				if first == 3 {
					h = waiting("other", other, lockNo(2))
				}
			}
			return h
		})
		for range 8 {
			require.Nil(t, w.look())
			other += 2
		}
	}
}

// What a member has told counts for its wait, not for the next one.
func TestCountsOfAnotherWaitProveNothing(t *testing.T) {
	id, told := "one", 1
	w := scripted(func(l Lock) (h driver.Holder) {
		switch l {
		case lockNo(0):
			h = waiting(id, told, lockNo(1))
		case lockNo(1):
			h = waiting("other", told, lockNo(2))
		}
		return h
	})
	for i := range 5 {
		id, told = fmt.Sprint("wait", i), told+2
		require.Nil(t, w.look())
	}
}

// A member may be slow: it tells its wait once in a while, and the readings in between change nothing.
func TestSlowMembersAreWaitedFor(t *testing.T) {
	looks, failing := 0, false
	w := scripted(func(l Lock) (h driver.Holder) {
		switch l {
		case lockNo(0):
			h = waiting("slow", 1+looks/100, lockNo(1))
		case lockNo(1):
			h = waiting("slower", 1+looks/200, lockNo(2))
		}
		return h
	})
	read := w.inspect
	w.inspect = func(l Lock) holdfast.Info {
		if failing = !failing && looks > 0 && looks%3 == 0; failing {
			return holdfast.Info{}
		}
		return read(l)
	}
	for circle := w.look(); circle == nil; circle = w.look() {
		looks++
		require.Less(t, looks, 500)
	}
	require.GreaterOrEqual(t, looks, 400)
}
