package redlock

import (
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
)

// maxPending is how many calls a node may leave unanswered once one of them is overdue. It
// gets no more then, so that a frozen one does not collect goroutines and connections.
const maxPending = 64

// node is one of the stores that vote.
type node struct {
	driver.Driver
	i      int
	raise  driver.FenceRaiser // nil if it is none
	uptime driver.Uptimer     // nil if it is none

	pending, stuck atomic.Int32 // calls, and those of them that are overdue

	mu     sync.Mutex
	behind map[lockID][]chan struct{} // calls that were left behind, see round
	debts  map[string]debt            // by token
	paying bool
}

func newNode(i int, d driver.Driver) *node {
	n := &node{Driver: d, i: i, behind: map[lockID][]chan struct{}{}, debts: map[string]debt{}}
	n.raise, _ = driver.As[driver.FenceRaiser](d)
	n.uptime, _ = driver.As[driver.Uptimer](d)
	return n
}
