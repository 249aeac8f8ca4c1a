package etcddriver

import (
	"context"
	"errors"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

var _ driver.Stealer = (*Driver)(nil)

// Steal implements [driver.Stealer]. If somebody waits, the claim has the place of the last
// holder, and the fence that follows those of that place.
func (d *Driver) Steal(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if err := valid(ctx, r); err != nil {
		return driver.Grant{}, err
	}
	if r.Kind == driver.Semaphore || r.Shared {
		return driver.Grant{}, refusal("to steal a part of a %s: %w", r.Kind, errors.ErrUnsupported)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	l := d.lock(r.Kind, r.Name)
	t, lease := d.begin(l, r)
	g, err := d.steal(ctx, l, r, t, lease)
	d.done(l, r, t, g)
	return g, d.failure(err)
}

func (d *Driver) steal(ctx context.Context, l lock, r *driver.Request, t *token, lease clientv3.LeaseID) (driver.Grant, error) {
	for range attempts(ctx) {
		q, c, err := d.confirm(ctx, l, r.Token, r.TTL, lease)
		switch {
		case err != nil:
			return driver.Grant{}, err
		case c != nil && q.holds(c):
			return d.answer(ctx, l, q, c, r, t)
		case q.dead:
			return driver.Grant{}, driver.ErrNotHeld
		case c != nil: // It waits.
			err = d.drop(ctx, c.tie)
			if lease = 0; err != nil && !errors.Is(err, driver.ErrNotHeld) {
				return driver.Grant{}, err
			}
			continue
		}
		q, err = d.depose(ctx, l, q, r)
		if err != nil {
			return driver.Grant{}, err
		}
		if q != nil {
			return d.answer(ctx, l, q, q.find(r.Token), r, t)
		}
	}
	return driver.Grant{}, errCrowded
}

// depose puts a claim in the place of all that hold the lock, and returns what there is then, or
// nil if somebody else may hold it now.
func (d *Driver) depose(ctx context.Context, l lock, q *queue, r *driver.Request) (*queue, error) {
	own, err := q.succeed(r)
	if err != nil {
		return nil, err
	}
	lease, err := d.grant(ctx, r.TTL)
	if err != nil {
		return nil, err
	}
	// A repeat may come as late as the end of the lease, if nobody heard the answer.
	grave, err := d.grant(ctx, r.TTL+retention)
	if err != nil {
		d.discard(lease)
		return nil, err
	}
	bury := func(key, text string) clientv3.Op { return clientv3.OpPut(key, text, clientv3.WithLease(grave)) }
	_, limit := r.Share()
	holders, _ := q.holders()
	var ends, graves []clientv3.Op
	for _, h := range holders {
		ends = append(ends, clientv3.OpDelete(h.key))
		graves = append(graves, bury(l.dead+h.token, ""), bury(l.news+h.token, r.Holder))
	}
	graves = append(graves, bury(l.dead+r.Token, ""), clientv3.OpPut(l.key(limit, r.Token), own.String(), clientv3.WithLease(lease)))
	resp, err := d.client.Txn(ctx).If(q.unchanged(l, r.Token)...).Then(append(nested(append(ends, graves...)), l.look(r.Token)...)...).Commit()
	switch {
	case err != nil: // It may have happened.
		return nil, err
	case !resp.Succeeded:
		d.discard(lease)
		d.discard(grave)
		return nil, nil
	}
	var ended []clientv3.LeaseID
	for i, h := range holders {
		if part := resp.Responses[i/maxOps].GetResponseTxn(); part.Responses[i%maxOps].GetResponseDeleteRange().Deleted > 0 {
			ended = append(ended, h.lease) // else it may serve another claim
		}
	}
	d.discard(ended...)
	return d.seen(l, resp)
}

// unchanged is the conditions under which no others hold the lock than did before: no claim has
// come or changed, and the last holder has not left. If others have, those that wait still do.
func (q *queue) unchanged(l lock, token string) []clientv3.Cmp {
	same := []clientv3.Cmp{absent(l.dead + token), clientv3.Compare(clientv3.ModRevision(l.claims).WithPrefix(), "<", q.revision+1)}
	if holders, _ := q.holders(); len(holders) > 0 {
		same = append(same, holders[len(holders)-1].there())
	}
	return same
}

// nested is more operations than a transaction may have, in transactions within it.
func nested(ops []clientv3.Op) (parts []clientv3.Op) {
	for part := range slices.Chunk(ops, maxOps) {
		parts = append(parts, clientv3.OpTxn(nil, part, nil))
	}
	return parts
}

// succeed is the claim of a token that takes the lock from all that hold it. It comes before those
// that wait, and its fence after those of all holders.
func (q *queue) succeed(r *driver.Request) (record, error) {
	own := recordOf(r)
	holders, _ := q.holders()
	if len(holders) == len(q.claims) {
		return own, nil
	}
	last := holders[len(holders)-1]
	for _, h := range holders { // those of an owner have one place
		if h.place() == last.place() {
			own.First = max(own.First, h.First+h.Fences)
		}
	}
	own.Place, own.Fences = last.place(), 1 // a place has room for many thieves
	if own.First+own.Fences > block {
		return own, refusal("a hold that was handed on with %d fences already", own.First)
	}
	return own, nil
}
