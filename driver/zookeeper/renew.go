package zkdriver

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Renew implements [driver.Driver]. Leases that are known to be granted here are renewed together,
// those of a session with one request; of the others it has to look who holds the lock.
func (d *Driver) Renew(ctx context.Context, leases []driver.Lease) []error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	errs := make([]error, len(leases))
	tokens := make([]*token, len(leases))
	together := map[*session][]int{}
	paths := make([]string, len(leases))
	for i, lease := range leases {
		l := d.lock(lease.Kind, lease.Name)
		var back func(time.Duration)
		tokens[i], back = d.hold(l, lease.Token)
		defer func() {
			if errs[i] == nil {
				back(lease.TTL)
			} else {
				back(0)
			}
		}()
		errs[i] = errUnknown
		d.mu.Lock()
		if t := tokens[i]; t != nil && t.settled && t.granted && t.s.wants >= wants(lease.TTL) {
			paths[i] = l.dir + "/" + t.claim.node
			together[t.s] = append(together[t.s], i)
		}
		d.mu.Unlock()
	}
	var all sync.WaitGroup
	for s, those := range together {
		all.Go(func() { d.renewTogether(ctx, s, leases, paths, those, errs) })
	}
	all.Wait()
	for i, lease := range leases {
		if errors.Is(errs[i], errUnknown) {
			errs[i] = d.renew(ctx, lease, tokens[i])
		}
		if errs[i] = failure(errs[i]); errs[i] == nil && tokens[i] != nil {
			d.remind(tokens[i])
		}
	}
	return errs
}

// renewTogether renews leases of one session. Those whose claims have gone stay unknown.
func (d *Driver) renewTogether(ctx context.Context, s *session, leases []driver.Lease, paths []string, those []int, errs []error) {
	var claims []string
	longest := time.Duration(0)
	for _, i := range those {
		claims = append(claims, paths[i])
		longest = max(longest, leases[i].TTL)
	}
	until := time.Now().Add(longest)
	var last error
	for try := range attempts(ctx) {
		err := s.touch(ctx, until)
		var gone map[string]bool
		if err == nil {
			gone, err = d.check(ctx, s, claims)
		}
		if errors.Is(err, errExpired) {
			return
		}
		if again(err, &last, try) {
			continue
		}
		for _, i := range those {
			switch {
			case err != nil:
				errs[i] = err
			case !gone[paths[i]] && s.lasts(until):
				errs[i] = nil
			}
		}
		return
	}
	for _, i := range those {
		errs[i] = cmp.Or(last, ended(ctx))
	}
}

// renew renews a lease of which this driver knows nothing, or nothing good.
func (d *Driver) renew(ctx context.Context, lease driver.Lease, t *token) error {
	_, _, _, _, err := d.held(ctx, lease, t)
	return err
}

// held finds the claim of a token that holds the lock, and sees that it lasts for the TTL from
// now on.
func (d *Driver) held(ctx context.Context, lease driver.Lease, t *token) (*session, *queue, *claim, record, error) {
	l := d.lock(lease.Kind, lease.Name)
	until := time.Now().Add(lease.TTL)
	last := error(nil)
	for try := range attempts(ctx) {
		s, q, c, rec, err := d.holding(ctx, l, lease, t, until)
		if again(err, &last, try) {
			continue
		}
		return s, q, c, rec, err
	}
	return nil, nil, nil, record{}, cmp.Or(last, errCrowded)
}

func (d *Driver) holding(ctx context.Context, l lock, lease driver.Lease, t *token, until time.Time) (s *session, q *queue, c *claim, rec record, err error) {
	if t != nil {
		s, err = d.sessionOf(t, lease.TTL)
	} else {
		s, err = d.session(lease.TTL)
	}
	if err != nil {
		return
	}
	if err = s.touch(ctx, until); err != nil {
		return
	}
	if t == nil { // The member may not have heard yet of what another driver did.
		if err = d.sync(ctx, s); err != nil {
			return
		}
	}
	if q, err = d.look(ctx, s, l); err != nil {
		return
	}
	if c = q.find(lease.Token); c == nil || !q.holds(c) {
		return s, q, c, rec, driver.ErrNotHeld
	}
	if rec, err = d.own(ctx, s, l, t, c, lease.TTL); err != nil {
		return
	}
	gone, err := d.check(ctx, s, []string{l.dir + "/" + c.node})
	if err == nil && (len(gone) > 0 || !s.lasts(until)) {
		err = errMoved
	}
	if err == nil {
		d.mu.Lock()
		if t != nil {
			t.s, t.claim, t.record, t.settled, t.granted = s, *c, rec, true, true
		} else if until.After(s.carries) {
			s.carries = until
		}
		d.mu.Unlock()
	}
	return s, q, c, rec, err
}
