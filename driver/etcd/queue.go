package etcddriver

import (
	"cmp"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/driver"
)

// queue is the claims on a lock at one revision, in the order in which they came. Those that
// hold the lock are the first ones, as many as fit: a holder remains one, since claims
// only come at the end, leave, and become smaller.
type queue struct {
	path     string // of the lock
	claims   []claim
	dead     bool // the token that looked was given up
	revision int64
	term     uint64 // in which a leader has proved to be the only one after the request came
}

// find returns a copy, which the caller may change.
func (q *queue) find(token string) *claim {
	for _, c := range q.claims {
		if c.token == token {
			return &c
		}
	}
	return nil
}

// known returns the claim in a key, if q has it just so.
func (q *queue) known(kv *mvccpb.KeyValue) (claim, bool) {
	i, found := slices.BinarySearchFunc(q.claims, kv.CreateRevision, func(c claim, came int64) int { return cmp.Compare(c.place(), came) })
	if !found || q.claims[i].changed != kv.ModRevision || q.claims[i].key != string(kv.Key) {
		return claim{}, false
	}
	return q.claims[i], true
}

// holders returns those that hold the lock, and how much is left of it for others.
func (q *queue) holders() (holders []claim, left int64) {
	for i, c := range q.claims {
		switch {
		case i == 0:
			left = c.limit - c.Weight
		case c.place() == q.claims[0].place(): // It holds what the first holds, for the same owner.
		case c.Weight > left:
			return q.claims[:i], left
		default:
			left -= c.Weight
		}
	}
	return q.claims, left
}

// tag is what a holder has said, if any has.
func (q *queue) tag() (said string) {
	holders, _ := q.holders()
	for _, h := range holders {
		said = cmp.Or(h.Tag, said)
	}
	return said
}

// answer is what a token is told that cannot have the lock now. For how long a holder has had it etcd
// does not know.
func (q *queue) answer(s driver.Status, weight int64) driver.Grant {
	holders, left := q.holders()
	g := driver.Grant{Status: s, HolderTag: q.tag(), Behind: len(holders) > 0 && weight <= left}
	if len(holders) > 0 && !g.Behind {
		g.Holder, g.HolderFence = holders[0].Holder, holders[0].fence()
	}
	return g
}

// kin is a claim that lets another hold the lock beside it: one of the same owner that holds it
// alone.
func (q *queue) kin(r record) *claim {
	for i := range q.claims {
		c := &q.claims[i]
		if c.place() == q.claims[0].place() && len(r.Owner) > 0 && slices.Equal(c.Owner, r.Owner) && c.Weight == c.limit && r.Weight == c.limit {
			return c
		}
	}
	return nil
}

func (q *queue) holds(c *claim) bool {
	holders, _ := q.holders()
	return slices.ContainsFunc(holders, func(h claim) bool { return h.token == c.token })
}

// waits reports whether a claim is there, and neither it nor its owner holds the lock.
func (q *queue) waits(c *claim) bool { return c != nil && !q.holds(c) && q.kin(c.record) == nil }

// fits reports whether a claim that came now would hold the lock.
func (q *queue) fits(r *driver.Request) bool {
	holders, left := q.holders()
	weight, _ := r.Share()
	return len(q.claims) == 0 || len(holders) == len(q.claims) && weight <= left
}

// full reports whether as many wait as the request allows, among the first so many claims.
func (q *queue) full(r *driver.Request, claims int) bool {
	holders, _ := q.holders()
	return r.Wait && r.MaxWaiters > 0 && int64(claims-len(holders)) >= r.MaxWaiters
}

// admit refuses what can never be had.
func (q *queue) admit(r *driver.Request) error {
	weight, limit := r.Share()
	for _, c := range q.claims {
		if c.limit != limit {
			return fmt.Errorf("%w: %d, not %d: %w", driver.ErrLimitConflict, c.limit, r.Limit, driver.ErrNotExecuted)
		}
	}
	if weight > limit {
		return fmt.Errorf("%w: %d of %d: %w", driver.ErrLimitExceeded, r.Weight, r.Limit, driver.ErrNotExecuted)
	}
	return nil
}
