package etcddriver

import (
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// A cycle of a lock that nobody else wants is two writes: the one that makes the claim, and the
// one that deletes it. To make a lease and to revoke it would be two more, or one more if the
// revocation deletes the claim. So a lease whose claim has gone serves the next claim.
//
// A lease belongs to its only claim, as long as that is there, and then to whoever has deleted
// it, by a transaction that found the claim on that lease: see leave. Nobody else revokes the
// lease or uses it again. (Wrong version: whoever has seen a claim revokes its lease. The token
// may have been released meanwhile, and the lease may serve another claim.)
//
// A request of the earlier token must not reach the later one. So only the lease of a token
// whose asks were all answered is kept, and only if the answer to the deletion came. An ask that
// was not answered may still make its claim, on that lease; then the lease must be gone once the
// tombstone is.
//
// The claim that gets a used lease needs its whole TTL, from when the request was sent. So a
// renewal goes together with the transaction, and counts if both were answered in the same term.
// It does not matter which of the two etcd handles first: what could spoil the renewal is a
// newer leader than the one that made it. One that was elected before the request was sent would
// have handled the transaction, and would show in its term. One that was elected later gives the
// lease its whole TTL. If the renewal does not count, confirm has the last word.

// spare is a lease that no claim has.
type spare struct {
	lease clientv3.LeaseID
	ttl   time.Duration
	since time.Time // when it had its whole TTL, at the latest
	used  bool      // a claim had it
}

// most spares that are kept. Others than those are revoked.
const mostSpares = 64

// lasts reports whether a lease is surely alive. A lease of which this is not sure is left to
// expire, or revoked.
func (s *spare) lasts() bool { return time.Since(s.since) < s.ttl/2 }

// take returns a lease for a claim, with that TTL.
func (d *Driver) take(ctx context.Context, ttl time.Duration) (spare, error) {
	ttl = time.Duration(seconds(ttl)) * time.Second
	d.mu.Lock()
	for i, s := range slices.Backward(d.spares) {
		if s.ttl == ttl && s.lasts() {
			d.spares = slices.Delete(d.spares, i, i+1)
			d.mu.Unlock()
			return s, nil
		}
	}
	d.mu.Unlock()
	s := spare{ttl: ttl, since: time.Now()}
	var err error
	s.lease, err = d.grant(ctx, ttl)
	return s, err
}

// refresh renews a lease that was used. Nothing comes if that fails.
func (d *Driver) refresh(ctx context.Context, s spare) <-chan lifetime {
	if !s.used {
		return nil
	}
	renewed := make(chan lifetime, 1)
	go func() {
		defer close(renewed)
		if l, err := d.keepAlive(ctx, s.lease); err == nil {
			renewed <- l
		}
	}()
	return renewed
}

// own notes which lease an ask has given to the claim of a token.
func (d *Driver) own(t *token, s spare) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t.own = s
}

// keeps reports whether keep would keep a lease.
func (d *Driver) keeps(s spare) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.room(s)
}

// room makes room for a lease, if that lasts. The caller holds mu.
func (d *Driver) room(s spare) bool {
	d.spares = slices.DeleteFunc(d.spares, func(s spare) bool { return !s.lasts() })
	return s.lease != 0 && s.lasts() && len(d.spares) < mostSpares
}

// keep keeps a lease for the next claim, or revokes it, if there is one.
func (d *Driver) keep(s spare) {
	if s.lease == 0 {
		return
	}
	s.used = true
	d.mu.Lock()
	room := d.room(s)
	if room {
		d.spares = append(d.spares, s)
	}
	d.mu.Unlock()
	if !room {
		d.discard(s.lease)
	}
}

// forgetSpares forgets all, since one has ended that should have been alive.
func (d *Driver) forgetSpares() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spares = nil
}

// revokeSpares revokes what is kept, once nobody wants it any more.
func (d *Driver) revokeSpares() {
	ctx, cancel := context.WithTimeout(telemetry.Unasked(context.Background()), time.Second)
	defer cancel()
	var all sync.WaitGroup
	for _, s := range d.spares {
		all.Go(func() { _ = d.revoke(ctx, s.lease) })
	}
	all.Wait()
}
