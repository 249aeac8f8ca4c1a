package etcddriver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

const (
	// leastTTL is the shortest lease of an etcd with its usual election timeout of a second.
	leastTTL = 2 * time.Second

	// over is how much longer than its TTL a lease lasts at most: it is rounded up to a
	// second, the leader looks for expired ones every half a second, and revokes them by
	// consensus.
	over = 2 * time.Second

	// retention is for how long it is remembered that a token was given up.
	retention = time.Minute

	// timeout bounds a request, which etcd itself gives up after 7 s.
	timeout = 7 * time.Second

	// crowd is how long a step rests at most before it is tried again, since others were faster.
	crowd = 50 * time.Millisecond
)

// Driver keeps locks in etcd.
type Driver struct {
	client *clientv3.Client
	leases pb.LeaseClient
	prefix string

	ctx   context.Context // of what goes on between two calls
	end   context.CancelFunc
	tasks sync.WaitGroup

	mu        sync.Mutex // guards what follows, and is held while Wake is called
	tokens    map[string]*token
	spares    []spare // the one used last comes last
	listening bool
	renewals  chan *renewal // nil until there is the first

	era   atomic.Int64          // of the stream of watches
	crowd atomic.Pointer[queue] // the last one with more than a few claims, nil before
}

// Option changes a [Driver].
type Option interface{ apply(*Driver) }

type optionFunc func(*Driver)

func (f optionFunc) apply(d *Driver) { f(d) }

// WithPrefix sets what all keys begin with, followed by a slash. Programs exclude each other only
// if they use the same prefix. The default is "holdfast".
func WithPrefix(prefix string) Option { return optionFunc(func(d *Driver) { d.prefix = prefix }) }

// New returns a driver that keeps locks in the etcd behind client, which it does not close.
// It panics if client is nil.
//
// Set DialKeepAliveTime and DialKeepAliveTimeout of the client to less than half of the
// shortest TTL, or it does not notice for minutes that a server has gone without a word.
func New(client *clientv3.Client, opts ...Option) *Driver {
	if client == nil {
		panic("etcddriver: nil client")
	}
	// Its own lease client repeats a revocation whose answer was lost, and says then that there
	// was no such lease: a clean release would look like a lost lock.
	leases := pb.NewLeaseClient(client.ActiveConnection())
	d := &Driver{client: client, leases: leases, prefix: "holdfast", tokens: map[string]*token{}}
	for _, o := range opts {
		o.apply(d)
	}
	d.ctx, d.end = context.WithCancel(clientv3.WithRequireLeader(telemetry.Unasked(context.Background())))
	return d
}

// Granularity implements [driver.Granular].
func (d *Driver) Granularity() (least, more time.Duration) { return leastTTL, over }

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if err := valid(ctx, r); err != nil {
		return driver.Grant{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	l := d.lock(r.Kind, r.Name)
	t, lease := d.begin(l, r)
	g, err := d.acquire(ctx, l, r, t, lease)
	d.done(l, r, t, g)
	return g, d.failure(err)
}

// acquire finds the claim of the token and refreshes its lease, or makes the claim. The lease
// is that of the claim as far as is known here.
func (d *Driver) acquire(ctx context.Context, l lock, r *driver.Request, t *token, lease clientv3.LeaseID) (driver.Grant, error) {
	var fresh spare
	defer func() { d.keep(fresh) }()
	made := false // the claim has been made, on that lease
	q, c := &queue{}, (*claim)(nil)
	weight, limit := r.Share()
	blind := r.Ask == 1 && r.Wait && r.Owner == "" && r.MaxWaiters == 0 && weight <= limit // nothing to find, nor to refuse
	for try := range attempts(ctx) {
		if !blind || try > 0 {
			var err error
			if q, c, err = d.confirm(ctx, l, r.Token, r.TTL, lease); err != nil {
				switch {
				case made:
					err = fmt.Errorf("%w: %v", driver.ErrTransient, err) // not ErrNotExecuted
				case errors.Is(err, errForeign):
					err = fmt.Errorf("%w: %w", err, driver.ErrNotExecuted)
				}
				return driver.Grant{}, err
			}
		}
		if q.dead {
			return driver.Grant{}, fmt.Errorf("%w: the token was released before", driver.ErrNotHeld)
		}
		kin := q.kin(recordOf(r))
		if c != nil {
			if q.holds(c) || kin == nil {
				return d.answer(ctx, l, q, c, r, t)
			}
			lease, c.Place, c.First = c.lease, kin.place(), kin.First
			if _, err := d.rewrite(ctx, c, c.lease, kin.there()); err != nil {
				return driver.Grant{}, d.begun(err) // there is a claim
			}
			continue
		}
		if err := q.admit(r); err != nil {
			return driver.Grant{}, err
		}
		if !r.Wait && !q.fits(r) && kin == nil {
			return q.answer(driver.Busy, weight), nil
		}
		if kin == nil && q.full(r, len(q.claims)) {
			return q.answer(driver.Full, weight), nil
		}
		if fresh.lease == 0 {
			var err error
			if fresh, err = d.take(ctx, r.TTL); err != nil {
				return driver.Grant{}, err
			}
		}
		asked := time.Now()
		renewed := d.refresh(ctx, fresh)
		entered, err := d.enter(ctx, l, r, q, fresh.lease)
		if fresh.used && errors.Is(err, rpctypes.ErrLeaseNotFound) { // such as after the machine has slept
			d.forgetSpares()
			fresh = spare{}
			continue
		}
		if err != nil {
			fresh = spare{} // The claim may be there, and if so it keeps its place.
			return driver.Grant{}, err
		}
		if c := entered.find(r.Token); c != nil && c.lease == fresh.lease {
			// Of those that came at one moment each sees how many were before it.
			if before := slices.IndexFunc(entered.claims, func(e claim) bool { return e.token == r.Token }); entered.full(r, before) {
				own := fresh.lease
				fresh = spare{}
				if err := d.revoke(ctx, own); err != nil && !errors.Is(err, driver.ErrNotHeld) {
					return driver.Grant{}, d.begun(err)
				}
				return entered.answer(driver.Full, weight), nil
			}
			own := fresh
			fresh = spare{}
			if own.used {
				if now := <-renewed; !now.in(entered) || now.ttl < r.TTL {
					lease, made = own.lease, true
					continue // and confirm
				}
				own.since = asked
			}
			d.own(t, own)
			return d.answer(ctx, l, entered, c, r, t)
		}
	}
	return driver.Grant{}, errCrowded
}

// confirm looks for the claim of a token until it finds none, or one whose lease has been renewed
// since confirm was called, for that TTL. The lease is the one that the claim may have.
func (d *Driver) confirm(ctx context.Context, l lock, token string, ttl time.Duration, lease clientv3.LeaseID) (*queue, *claim, error) {
	for range attempts(ctx) {
		var own lifetime
		var err error
		if lease != 0 {
			if own, err = d.keepAlive(ctx, lease); err != nil {
				return nil, nil, err
			}
		}
		q, err := d.look(ctx, l, token)
		if err != nil {
			return nil, nil, err
		}
		c := q.find(token)
		switch {
		case c == nil:
			return q, nil, nil
		case c.lease != lease || !own.in(q): // again if another leader was elected
			lease = c.lease
		case own.ttl >= ttl:
			return q, c, nil
		default:
			if err := d.lengthen(ctx, c, ttl); err != nil {
				return nil, nil, err
			}
		}
	}
	return nil, nil, errCrowded
}

// answer tells the token of its claim, whose lease was refreshed since it asked.
func (d *Driver) answer(ctx context.Context, l lock, q *queue, c *claim, r *driver.Request, t *token) (driver.Grant, error) {
	held := q.holds(c)
	if !held && !r.Wait { // It was a waiter that does not want to wait any more.
		if err := d.drop(ctx, c.tie); err != nil && !errors.Is(err, driver.ErrNotHeld) {
			return driver.Grant{}, err
		}
		return q.answer(driver.Busy, c.Weight), nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t.tie, t.granted, t.ask, t.wake, t.notice = c.tie, held, max(t.ask, r.Ask), r.Wake, t.notice || r.Notice // a late answer takes no notice back
	g := q.answer(driver.Queued, c.Weight)
	if held {
		g = c.granted(r.Ask)
	}
	if held || r.Wake == nil {
		t.ignore()
	}
	if r.Wake == nil || t.released {
		return g, nil
	}
	d.listen(q.revision)
	switch {
	case held && t.notice:
		d.heed(l, q, c, t)
	case !held && t.unfollow == nil:
		d.follow(l, q, c, t)
	}
	return g, nil
}

// Release implements [driver.Driver].
func (d *Driver) Release(ctx context.Context, lease driver.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	l := d.lock(lease.Kind, lease.Name)
	var known tie
	var own spare
	d.mu.Lock()
	if t := d.tokens[l.id(lease.Token)]; t != nil {
		if known = t.tie; t.asks == 0 && t.own.lease == known.lease {
			own = t.own
		}
		t.released = true
		d.forget(l, lease.Token, t)
	}
	d.mu.Unlock()
	return d.failure(d.release(ctx, l, lease, known, own))
}

// release ends a claim. A straggler must not make the claim once more after we have looked, so
// the tombstone comes first.
func (d *Driver) release(ctx context.Context, l lock, lease driver.Lease, known tie, own spare) error {
	if lease.Unsettled {
		if err := d.bury(ctx, l, lease.Token); err != nil {
			return err
		}
	}
	switch {
	case !lease.Unsettled && d.keeps(own):
		done, err := d.leave(ctx, known)
		if done {
			d.keep(own)
		}
		if done || err != nil {
			return err
		}
	case known.lease != 0:
		if err := d.revoke(ctx, known.lease); !errors.Is(err, driver.ErrNotHeld) {
			return err
		}
	}
	q, err := d.look(ctx, l, lease.Token)
	if err != nil {
		return err
	}
	if c := q.find(lease.Token); c != nil {
		return d.drop(ctx, c.tie)
	}
	return driver.ErrNotHeld
}

// Close implements [driver.Driver].
func (d *Driver) Close() error {
	d.mu.Lock() // so that no task begins after that
	d.end()
	d.mu.Unlock()
	d.tasks.Wait()
	d.revokeSpares()
	return nil
}

// valid refuses what nobody can serve, and a caller that has given up already.
func valid(ctx context.Context, r *driver.Request) error {
	switch {
	case r.TTL < leastTTL:
		return refusal("a TTL of %v, must be %v to %v", r.TTL, leastTTL, driver.MaxTTL)
	case ctx.Err() != nil:
		return refusal("%w", ctx.Err())
	}
	return r.Check()
}
