package etcddriver

import (
	"context"
	"errors"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// grant makes a lease of etcd. It lasts at least as long, from when the request was sent:
// consensus comes first, and a leader that is elected later gives each lease its whole TTL.
func (d *Driver) grant(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error) {
	resp, err := d.client.Grant(ctx, seconds(ttl))
	if err != nil {
		return 0, err
	}
	return resp.ID, nil
}

func seconds(ttl time.Duration) int64 { return int64((ttl + time.Second - 1) / time.Second) }

// revoke ends a lease, and the claim with it.
func (d *Driver) revoke(ctx context.Context, lease clientv3.LeaseID) error {
	_, err := d.leases.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: int64(lease)})
	err = clientv3.ContextError(ctx, err)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return driver.ErrNotHeld
	}
	return err
}

// discard revokes leases that nobody uses, one after the other. They would end by themselves, but
// TTLs can be long.
func (d *Driver) discard(leases ...clientv3.LeaseID) {
	d.tasks.Go(func() {
		for _, lease := range leases {
			ctx, cancel := context.WithTimeout(d.ctx, timeout)
			_ = d.revoke(ctx, lease)
			cancel()
		}
	})
}

// lifetime is what a renewal said of a lease.
type lifetime struct {
	ttl  time.Duration // 0 if there is no such lease
	term uint64
}

// in reports whether the renewal counts: whether the leader that made it was still the only
// one when the queue was looked at, which was later.
//
// Renewals are not subject to consensus. A leader that was paused, or cut off, may answer one
// before it hears that another has been elected, who knows nothing of it and lets the lease
// end earlier. The answer carries the term of that leader. A linearizable read needs a
// majority that follows a leader; if it has the same term there was no other one before.
func (l lifetime) in(q *queue) bool { return l.ttl > 0 && l.term == q.term }

// keepAlive renews a lease.
func (d *Driver) keepAlive(ctx context.Context, lease clientv3.LeaseID) (lifetime, error) {
	all, err := d.send(ctx, []clientv3.LeaseID{lease})
	if err != nil {
		return lifetime{}, err
	}
	return all[0], nil
}

// keepAllAlive renews the leases of claims, and makes sure that the renewals count, and that the
// claims are there. The TTL is 0 if one is not, or no more on that lease.
func (d *Driver) keepAllAlive(ctx context.Context, ties []tie) ([]time.Duration, error) {
	if len(ties) == 0 {
		return nil, nil
	}
	leases := make([]clientv3.LeaseID, len(ties))
	for i, t := range ties {
		leases[i] = t.lease
	}
	all, err := d.send(ctx, leases)
	if err != nil {
		return nil, err
	}
	var ttls []time.Duration
	for part := range slices.Chunk(ties, maxOps) {
		var reads []clientv3.Op
		for _, t := range part {
			reads = append(reads, clientv3.OpGet(t.key)) // WithKeysOnly leaves the lease out
		}
		resp, err := d.client.Txn(ctx).Then(reads...).Commit()
		if err != nil {
			return nil, err
		}
		for i, r := range resp.Responses {
			own, ttl := all[len(ttls)], time.Duration(0)
			if own.term != resp.Header.RaftTerm {
				return nil, errElection
			}
			if kvs := r.GetResponseRange().Kvs; len(kvs) == 1 && clientv3.LeaseID(kvs[0].Lease) == part[i].lease {
				ttl = own.ttl
			}
			ttls = append(ttls, ttl)
		}
	}
	return ttls, nil
}

// maxOps is how many operations a transaction may have; etcd allows 128 by default.
const maxOps = 100

// lengthen gives a claim a lease with a longer TTL, for that of a lease never changes.
func (d *Driver) lengthen(ctx context.Context, c *claim, ttl time.Duration) error {
	lease, err := d.grant(ctx, ttl)
	if err != nil {
		return err
	}
	moved, err := d.rewrite(ctx, c, lease)
	switch {
	case moved:
		d.discard(c.lease)
	case err == nil:
		d.discard(lease)
	}
	return err
}
