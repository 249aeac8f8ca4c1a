package redlock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// FenceRaiser is the ability of a node to give a lease a larger fence than it was granted, so that
// the nodes can agree on one. If a node lacks it, the lock has no fences.
type FenceRaiser interface {
	// RaiseFence makes the fence of a lease at least fence, with fences numbers from it on
	// (0 means 1). It returns the fence that the lease then has. That is larger than fence
	// if the lease had a larger one already, or if another lease may have been given
	// fence. Fences of later grants lie beyond it, and a repeat of an ask is answered with
	// it. If the token does not hold the lock, RaiseFence returns [driver.ErrNotHeld].
	RaiseFence(ctx context.Context, l driver.Lease, fence, fences int64) (int64, error)
}

// Uptimer is the ability of a node to tell how long it has been running, since one that has just
// started may have forgotten its leases. [New] wants it of each node, see [WithDelayedRestart].
type Uptimer interface {
	// Uptime returns how long the node has at least been running without a restart. sure
	// is measured by clocks that nobody can set. said is what the node says, no less than
	// sure, and too much after the node's clock was set forward. All that the driver
	// answered, or told with Wake, before the call came from that run of the node or from
	// an earlier one.
	Uptime(ctx context.Context) (sure, said time.Duration, err error)
}

// maxUnanswered is how many calls a node may leave unanswered once one of them is overdue. It
// gets no more then, so that a frozen one does not collect goroutines and connections.
const maxUnanswered = 64

// node is one of the stores that vote.
type node struct {
	driver.Driver
	i      int
	raise  FenceRaiser // nil if it is none
	uptime Uptimer     // nil if it is none

	unanswered, overdue atomic.Int32 // calls that are, and those of them that are late

	mu         sync.Mutex
	behind     map[lockID][]chan struct{} // calls that were left behind, see round
	unreleased map[string]*pendingRelease // by token
	repeating  bool
}

func newNode(i int, d driver.Driver) *node {
	n := &node{Driver: d, i: i, behind: map[lockID][]chan struct{}{}, unreleased: map[string]*pendingRelease{}}
	n.raise, _ = driver.As[FenceRaiser](d)
	n.uptime, _ = driver.As[Uptimer](d)
	return n
}
