package zkdriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// leastTTL is the shortest TTL. A ZooKeeper with its usual tick of 2 s has no session of less
	// than 4 s, so there the end of a client is noticed later than a TTL says.
	leastTTL = 2 * time.Second

	// over is how much longer than its TTL a lease lasts at most after its client has died: the
	// slack, a tick that it is rounded up to, and half a tick until the leader hears of the last
	// ping.
	over = slack + 3*time.Second

	// retention is for how long it is remembered that a token was given up.
	retention = time.Minute

	// timeout bounds what a call does.
	timeout = 7 * time.Second

	// crowd is how long a step rests at most before it is tried again.
	crowd = 50 * time.Millisecond

	// lastTry is the last attempt at a step whose connections are lost, counted from 0.
	lastTry = 3
)

// Driver keeps locks in ZooKeeper.
type Driver struct {
	servers []string
	root    string
	dial    zk.Dialer
	user    *user

	ctx   context.Context // of what goes on between two calls
	end   context.CancelFunc
	tasks sync.WaitGroup

	mu       sync.Mutex // guards what follows, and is held while Wake is called
	tokens   map[string]*token
	sessions map[time.Duration]*session // by the timeout that they want
	sweeper  *time.Timer                // of sessions that nobody uses, nil if there is none
}

// user is on whose behalf the sessions are.
type user struct {
	scheme string
	secret []byte
}

// Option changes a [Driver].
type Option interface{ apply(*Driver) }

type optionFunc func(*Driver)

func (f optionFunc) apply(d *Driver) { f(d) }

// WithPrefix sets the path that all nodes are under, without the first slash. Programs exclude
// each other only if they use the same prefix. The default is "holdfast".
func WithPrefix(prefix string) Option {
	return optionFunc(func(d *Driver) { d.root = "/" + strings.Trim(prefix, "/") })
}

// WithDialer sets how connections are made, such as with tls.DialWithDialer to the secureClientPort
// of the servers. Each renewal makes one. The default is a plain TCP connection.
func WithDialer(dial func(network, address string, timeout time.Duration) (net.Conn, error)) Option {
	return optionFunc(func(d *Driver) { d.dial = dial })
}

// WithAuth sets the user, as "digest" and "name:password". Only that user has rights to what the
// driver makes. The default is no user; then everybody has all rights.
func WithAuth(scheme string, secret []byte) Option {
	return optionFunc(func(d *Driver) { d.user = &user{scheme, slices.Clone(secret)} })
}

// New returns a driver that keeps locks in the ZooKeeper of those servers, each a host with a port
// or without. It connects when a lock is asked for. It panics if there is no server.
func New(servers []string, opts ...Option) *Driver {
	if len(servers) == 0 {
		panic("zkdriver: no servers")
	}
	d := &Driver{
		servers: slices.Clone(servers), root: "/holdfast", dial: net.DialTimeout,
		tokens: map[string]*token{}, sessions: map[time.Duration]*session{},
	}
	for _, o := range opts {
		o.apply(d)
	}
	d.ctx, d.end = context.WithCancel(context.Background())
	return d
}

// acl is who has rights to what the driver makes.
func (d *Driver) acl() []zk.ACL {
	if d.user != nil {
		return zk.AuthACL(zk.PermAll)
	}
	return zk.WorldACL(zk.PermAll)
}

// String says where ZooKeeper is.
func (d *Driver) String() string { return "ZooKeeper at " + strings.Join(d.servers, ", ") }

// Granularity implements [driver.Granular].
func (d *Driver) Granularity() (least, more time.Duration) { return leastTTL, over }

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if err := valid(ctx, r); err != nil {
		return driver.Grant{}, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	l := d.lock(r.Kind, r.Name)
	t, err := d.begin(l, r)
	if err != nil {
		return driver.Grant{}, err
	}
	g, err := d.acquire(ctx, l, r, t, time.Now().Add(r.TTL))
	d.done(l, r.Token, t, g, err)
	return g, failure(err)
}

// acquire makes the claim of the token, or finds it, and sees that it lasts until then.
func (d *Driver) acquire(ctx context.Context, l lock, r *driver.Request, t *token, until time.Time) (driver.Grant, error) {
	made, caughtUp := false, false
	var last error
	for try := range attempts(ctx) {
		s, err := d.sessionOf(t, r.TTL)
		if err == nil {
			err = s.touch(ctx, until)
		}
		if again(err, &last, try) {
			continue
		}
		if err != nil {
			return driver.Grant{}, unsent(err, try)
		}
		q, c, dead := &queue{}, (*claim)(nil), false
		if blind := try == 0 && r.Ask == 1 && r.Wait && r.Owner == "" && r.MaxWaiters == 0 && r.Kind != driver.Semaphore; !blind {
			q, c, dead, err = d.find(ctx, s, l, r.Token, t)
		}
		if err == nil && c == nil && !dead {
			var g driver.Grant
			g, err = d.admit(ctx, s, l, r, q, &caughtUp)
			if err == nil && g.Status != 0 {
				return g, nil
			}
			if err == nil {
				made = true
				if err = d.claim(ctx, s, l, r, t, q); err == nil {
					q, c, dead, err = d.find(ctx, s, l, r.Token, t)
				}
			}
		}
		if err == nil && dead {
			if !d.releasing(t) {
				_, err = d.withdraw(ctx, s, l, r.Token)
			}
			return driver.Grant{}, cmp.Or(err, fmt.Errorf("%w: the token was released before", driver.ErrNotHeld))
		}
		var g driver.Grant
		switch {
		case err != nil:
		case c == nil: // It is void, as one with another limit, or its session has ended.
			_, err = d.withdraw(ctx, s, l, r.Token)
			err = cmp.Or(err, errMoved)
		default:
			g, err = d.settle(ctx, s, l, r, t, q, c, until, made)
		}
		if made && isForeign(err) { // The next ask is refused, which does not make a claim.
			err = fmt.Errorf("%w: %w", driver.ErrTransient, err)
		}
		if again(err, &last, try) {
			continue
		}
		return g, err
	}
	return driver.Grant{}, cmp.Or(last, errCrowded)
}

// errMoved says that a step found something else than it expected. It is tried again.
var errMoved = errors.New("zkdriver: moved meanwhile")

// again reports whether to try again after an error: since something has moved, or a connection
// was lost. The latter is tried a few times, for the next server may be well.
func again(err error, last *error, try int) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, errMoved), errors.Is(err, errExpired), errors.Is(err, zk.ErrNoNode):
		return true
	}
	*last = err
	return passes(err) && try < lastTry
}

// find looks for the claim of a token. If there is none, or none that was known before, it says
// whether the token was given up.
func (d *Driver) find(ctx context.Context, s *session, l lock, token string, t *token) (q *queue, c *claim, dead bool, err error) {
	if q, err = d.look(ctx, s, l); err != nil {
		return nil, nil, false, err
	}
	c = q.find(token)
	if all := q.all(token); c != nil && len(all) > 1 {
		for _, node := range all {
			if node != c.node {
				if _, err = d.remove(ctx, s, l.dir+"/"+node); err != nil {
					return nil, nil, false, err
				}
			}
		}
	}
	d.mu.Lock()
	known := t.settled && t.s == s
	if c == nil && known { // Only force takes a claim away while its session lasts.
		t.dead, t.settled, t.granted = true, false, false
	}
	dead = t.dead
	d.mu.Unlock()
	if !dead && (c == nil || !known) {
		dead, err = d.buried(ctx, s, l, token)
	}
	return q, c, dead, err
}

// admit refuses what cannot be had, and answers a request that gets no claim. To one that does not
// wait it says so only of what the leader knows, which the member may not have heard of yet.
func (d *Driver) admit(ctx context.Context, s *session, l lock, r *driver.Request, q *queue, caughtUp *bool) (driver.Grant, error) {
	if weight, limit := r.Share(); weight > limit {
		return driver.Grant{}, fmt.Errorf("%w: %d of %d: %w", driver.ErrLimitExceeded, r.Weight, r.Limit, driver.ErrNotExecuted)
	}
	if r.Kind == driver.Semaphore && q.made != 0 && q.limit != r.Limit {
		free, err := d.relimit(ctx, s, l, r.Limit)
		switch {
		case err != nil:
			return driver.Grant{}, err
		case free:
			return driver.Grant{}, errMoved
		case len(q.claims) == 0 && !*caughtUp: // others have come since we looked, perhaps with our limit
			*caughtUp = true
			return driver.Grant{}, cmp.Or(d.sync(ctx, s), errMoved)
		}
		return driver.Grant{}, fmt.Errorf("%w: %d, not %d: %w", driver.ErrLimitConflict, q.limit, r.Limit, driver.ErrNotExecuted)
	}
	own := claimOf(r)
	busy := !r.Wait && !q.fits(&own)
	if full := q.full(r, len(q.claims)); q.kin(&own) != nil || !busy && !full {
		return driver.Grant{}, nil
	}
	if !*caughtUp {
		*caughtUp = true
		return driver.Grant{}, cmp.Or(d.sync(ctx, s), errMoved)
	}
	if busy {
		return driver.Grant{Status: driver.Busy}, nil
	}
	return driver.Grant{Status: driver.Full}, nil
}

// claim makes the claim of a token.
func (d *Driver) claim(ctx context.Context, s *session, l lock, r *driver.Request, t *token, q *queue) error {
	own, rec := claimOf(r), recordOf(r)
	kin := q.kin(&own)
	if kin != nil {
		is, err := d.read(ctx, s, l.dir+"/"+kin.node)
		if err != nil {
			return err
		}
		k, err := recorded(is)
		if err != nil {
			return err
		}
		rec.Change, rec.First = k.Change, k.First
	}
	d.mu.Lock()
	dead := t.dead
	if !dead {
		t.s, t.sent = s, true // where a request may be under way from now on
	}
	d.mu.Unlock()
	if dead {
		return fmt.Errorf("%w: the token was released before", driver.ErrNotHeld)
	}
	_, err := d.enter(ctx, s, l, &own, rec, kin)
	if errors.Is(err, zk.ErrNoNode) && kin == nil {
		if err = d.build(ctx, s, l, r.Limit); err == nil {
			_, err = d.enter(ctx, s, l, &own, rec, kin)
		}
	}
	return err
}

// settle makes sure that a claim is one of this session, in its right place, and lasts, and
// answers. made says that the claim may be a new one.
func (d *Driver) settle(ctx context.Context, s *session, l lock, r *driver.Request, t *token, q *queue, c *claim, until time.Time, made bool) (driver.Grant, error) {
	rec, err := d.own(ctx, s, l, t, c, r.TTL)
	if err != nil {
		return driver.Grant{}, err
	}
	held := q.holds(c)
	if kin := q.kin(c); !held && kin != nil {
		is, err := d.read(ctx, s, l.dir+"/"+kin.node)
		if err != nil {
			return driver.Grant{}, err
		}
		k, err := recorded(is)
		if err != nil {
			return driver.Grant{}, err
		}
		rec.Change, rec.First = k.Change, k.First
		_, err = d.replace(ctx, s, l, t, c, c, rec, kin, &zk.CheckVersionRequest{Path: l.dir + "/" + kin.node, Version: -1})
		return driver.Grant{}, cmp.Or(err, errMoved)
	}
	// Of those that came at one moment each sees how many were before it.
	before := slices.IndexFunc(q.claims, func(e claim) bool { return e.node == c.node })
	if full := made && q.full(r, before); !held && (!r.Wait || full) {
		if _, err := d.withdraw(ctx, s, l, r.Token); err != nil {
			return driver.Grant{}, err
		}
		if full {
			return driver.Grant{Status: driver.Full}, nil
		}
		return driver.Grant{Status: driver.Busy}, nil
	}
	if !s.lasts(until) {
		if gone, err := d.check(ctx, s, []string{l.dir + "/" + c.node}); err != nil || len(gone) > 0 {
			return driver.Grant{}, cmp.Or(err, errMoved)
		}
	}
	if !s.lasts(until) {
		return driver.Grant{}, errMoved
	}
	return d.answer(s, l, q, c, rec, r, t, held), nil
}

// answer tells the token of its claim.
func (d *Driver) answer(s *session, l lock, q *queue, c *claim, rec record, r *driver.Request, t *token, held bool) driver.Grant {
	d.mu.Lock()
	defer d.mu.Unlock()
	t.s, t.claim, t.record, t.settled = s, *c, rec, true
	t.granted, t.ask, t.wake, t.notice = held, max(t.ask, r.Ask), r.Wake, t.notice || r.Notice // a late answer takes no notice back
	g := driver.Grant{Status: driver.Queued}
	if held {
		g = rec.granted(r.Ask)
	}
	if held || r.Wake == nil {
		t.ignore()
	}
	if r.Wake == nil || t.released || d.ctx.Err() != nil {
		return g
	}
	d.listen(s)
	switch {
	case held && t.notice:
		d.heed(s, l, t)
	case !held && t.unfollow == nil:
		d.follow(s, l, q, c, t)
	}
	return g
}

// Release implements [driver.Driver]. It alone takes the claim away: an ask that is under way leaves
// that to it. (Wrong version: each ask that ends withdraws the claim of a token that was released. If it
// is faster, the release finds nothing, and says that the lease was lost.)
func (d *Driver) Release(ctx context.Context, lease driver.Lease) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	l := d.lock(lease.Kind, lease.Name)
	d.mu.Lock()
	t := d.tokens[l.id(lease.Token)]
	s, node := (*session)(nil), ""
	if t != nil && !t.sent { // An ask may still wait for a connection.
		t.released = true
		d.forget(l, lease.Token, t)
		d.entomb(l, lease.Token, t)
		d.mu.Unlock()
		return driver.ErrNotHeld
	}
	if t != nil {
		if s = t.s; t.settled {
			node = t.claim.node
		}
		t.released, t.releasing = true, true
		t.ignore()
	}
	d.mu.Unlock()
	err := d.releaseAgain(ctx, l, lease, s, node)
	gone := errors.Is(err, driver.ErrNotHeld)
	again := err != nil && !gone // should nobody repeat it
	if t != nil {
		d.mu.Lock()
		t.releasing = false
		d.forget(l, lease.Token, t)
		if s = cmp.Or(t.s, s); t.late {
			again = true
		}
		if gone && (t.dead || node != "") {
			d.entomb(l, lease.Token, t)
		}
		d.mu.Unlock()
	}
	if again && s != nil {
		d.later(s, 0, func(ctx context.Context) error {
			_, err := d.withdraw(ctx, s, l, lease.Token)
			return err
		})
	}
	return failure(err)
}

// releaseAgain is release until it has worked. A claim that an earlier attempt may have ended is not
// there for the next one.
func (d *Driver) releaseAgain(ctx context.Context, l lock, lease driver.Lease, s *session, node string) error {
	was := false
	var last error
	for try := range attempts(ctx) {
		there, err := d.release(ctx, l, lease, s, node)
		was = was || there
		if again(err, &last, try) {
			continue
		}
		if err == nil && !was {
			err = driver.ErrNotHeld
		}
		return err
	}
	return cmp.Or(last, ended(ctx), errCrowded)
}

// release ends a claim, and reports whether there was one, or after an error may have been. A straggler
// must not make the claim once more after we have looked, so the tombstone comes first.
func (d *Driver) release(ctx context.Context, l lock, lease driver.Lease, s *session, node string) (was bool, err error) {
	if s == nil || s.isOver() {
		if s, err = d.session(max(lease.TTL, leastTTL)); err != nil {
			return false, err
		}
		node = ""
	}
	if lease.Unsettled {
		if err = d.bury(ctx, s, l, lease.Token); err != nil {
			return false, err
		}
	}
	if node != "" {
		if was, err = d.remove(ctx, s, l.dir+"/"+node); err != nil || was && !lease.Unsettled {
			return was, err
		}
	} else if err = d.sync(ctx, s); err != nil { // so that the member has heard of the claim
		return false, err
	}
	more, err := d.withdraw(ctx, s, l, lease.Token)
	return was || more, err
}

// Close implements [driver.Driver]. A session that has claims is left to end by itself.
func (d *Driver) Close() error {
	d.mu.Lock() // so that no task begins after that
	d.end()
	if d.sweeper != nil {
		d.sweeper.Stop()
	}
	stays := map[*session]bool{}
	for _, s := range d.sessions {
		stays[s] = time.Now().Before(s.carries)
	}
	for _, t := range d.tokens {
		if t.timer != nil {
			t.timer.Stop()
		}
		if t.s != nil && !t.releasing {
			stays[t.s] = true
		}
	}
	d.mu.Unlock()
	var all sync.WaitGroup
	for s, stay := range stays {
		all.Go(func() { s.stop(stay) })
	}
	all.Wait()
	d.tasks.Wait()
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
