package redlock

import (
	"context"
	"time"
)

// age tells whether a node is old enough to vote.
//
// A node that was restarted may have forgotten the votes it gave before, and would help to
// elect a second holder. After the longest TTL all those votes have ended. The rule is
// about when a vote is counted, not when it was given.
//
// A client that was just started cannot know how old a node is. It has only the word of the
// node, whose clock may have been set forward since it restarted. But the client knows that
// no more than a minority of the nodes fails. See enough.
type age struct {
	proven  time.Time // the node is old enough from then on, for sure
	claimed time.Time // the same in the opinion of the node
	err     error     // why it is not known
}

// age finds out how old a node is. Its answers before this call were given at that age at the
// latest, or by an earlier process.
func (d *redlock) age(ctx context.Context, n *node) age {
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

// certain reports whether there is proof that the node is old enough.
func (a age) certain() bool { return !time.Now().Before(a.proven) }

// enough reports how many of some votes count, if claims of them are of nodes that only say
// that they are old enough. As many of these votes as a minority may be wrong.
//
// An earlier holder has the votes of a majority. Suppose that a majority is left after we
// subtract the votes that may be wrong. Then one of the earlier holder's nodes is in it
// that was not restarted, and it would refuse us. So a client that was just started has the
// lock at once if all nodes vote for it. When it has watched nodes for long enough, it can
// do without some of them.
func (d *redlock) enough(votes, claims int) int {
	return votes - min(claims, len(d.nodes)-d.majority())
}
