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
type age struct {
	matures time.Time
	err     error // why it is not known
}

// age finds out how old a node is. What it has answered before was said at this age, or by
// the process before.
func (d *Driver) age(ctx context.Context, n *node) age {
	if d.longest == 0 {
		return age{}
	}
	up, err := n.uptime.Uptime(ctx)
	return age{time.Now().Add(d.longest - up), err}
}

// doubt says why a vote of that node does not count now, nil if it does.
func (a age) doubt() error {
	switch {
	case a.err != nil:
		return a.err
	case time.Now().Before(a.matures):
		return errYoung
	}
	return nil
}
