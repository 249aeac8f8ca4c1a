package redlock

import (
	"context"
	"time"
)

// age tells whether a node is old enough to vote.
//
// A node that was restarted may have forgotten the votes it gave before, and would help to
// elect a second holder. After the longest TTL all of them have ended, whoever had them. It
// is the time at which a vote is counted that matters, not that at which it was given.
//
// A client that was just started cannot know how old a node is. All it has is the word of
// the node, whose clock may have been set forward since it restarted. What it does know is
// that no more than a minority of the nodes fails. See enough.
type age struct {
	proven  time.Time // the node is old enough from then on, for sure
	claimed time.Time // the same in the opinion of the node
	err     error     // why it is not known
}

// age finds out how old a node is. What it has answered before was said at this age, or by
// the process before.
func (d *Driver) age(ctx context.Context, n *node) age {
	if d.longest == 0 {
		return age{}
	}
	sure, said, err := n.uptime.Uptime(ctx)
	now := time.Now()
	return age{now.Add(d.longest - sure), now.Add(d.longest - said), err}
}

// doubt says why a vote of that node does not count now, nil if it does.
func (a age) doubt() error {
	switch {
	case a.err != nil:
		return a.err
	case time.Now().Before(a.claimed):
		return errYoung
	}
	return nil
}

// certain reports whether the node does not only say that it is old enough.
func (a age) certain() bool { return !time.Now().Before(a.proven) }

// enough reports how many of some votes count if so many of them are of nodes that only say
// that they are old enough: as many of these as a minority may be wrong.
//
// An earlier holder has the votes of a majority. At least one of these nodes has neither been
// restarted nor refuses us, if we have votes that count from a majority: of all votes without
// those that may be wrong. So a client that was just started has the lock at once if all nodes
// vote for it, and can do without some of them when it has seen the others for long enough.
func (d *Driver) enough(votes, claims int) int { return votes - min(claims, len(d.nodes)-d.majority()) }
