package redlock

import (
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/trouble"
)

var (
	// errSilent is for a node that was not asked, errUnheard for one that has not
	// answered.
	errSilent   = fmt.Errorf("redlock: the node does not answer: %w: %w", driver.ErrTransient, driver.ErrNotExecuted)
	errUnheard  = fmt.Errorf("redlock: no answer in time: %w", driver.ErrTransient)
	errGiving   = fmt.Errorf("redlock: the vote is being given back: %w", driver.ErrTransient)
	errReleased = fmt.Errorf("%w: the token was released before", driver.ErrNotHeld)
	errYoung    = fmt.Errorf("redlock: the node was restarted not long ago: %w", driver.ErrTransient)
	errUnseen   = fmt.Errorf("redlock: only the node says that it was not restarted not long ago: %w", driver.ErrTransient)
	errSlow     = fmt.Errorf("redlock: the lease was over before a majority had granted it: %w", driver.ErrTransient)
)

// majorityError is the error when too few nodes can do what was asked.
type majorityError struct {
	nodes  int
	failed []error
	// The error may pass if enough nodes have none, or one that may pass. Nothing was done
	// only if no node has done anything.
	transient, notExecuted bool
}

// noMajority makes one error of what the nodes said, nil for each that can do it.
func noMajority(errs []error) error {
	e := &majorityError{nodes: len(errs), notExecuted: true}
	able := 0
	for _, err := range errs {
		if err != nil {
			e.failed = append(e.failed, err)
		}
		if err == nil || trouble.Passes(err) {
			able++
		}
		e.notExecuted = e.notExecuted && errors.Is(err, driver.ErrNotExecuted)
	}
	e.transient = able > len(errs)/2
	if len(e.failed) == 0 {
		e.failed = []error{errSlow}
	}
	return e
}

// Error lists what the nodes say.
func (e *majorityError) Error() string {
	var texts []string
	for _, err := range e.failed {
		texts = append(texts, err.Error())
	}
	return fmt.Sprintf("redlock: %d of %d nodes fail: %s", len(e.failed), e.nodes, strings.Join(texts, "; "))
}

// Is matches what any of the nodes says, except where the target speaks of all of them.
func (e *majorityError) Is(target error) bool {
	switch target {
	case driver.ErrTransient:
		return e.transient
	case driver.ErrNotExecuted:
		return e.notExecuted
	case driver.ErrNotHeld:
		return false
	}
	for _, err := range e.failed {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
