package zkdriver

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// idle is for how long a session is kept that has no claims.
const idle = time.Minute

// wants is the timeout of a session for claims with that TTL.
func wants(ttl time.Duration) time.Duration {
	return (ttl+time.Second-1)/time.Second*time.Second + slack
}

// session returns the session for claims with that TTL.
func (d *Driver) session(ttl time.Duration) (*session, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sessionLocked(ttl)
}

// sessionOf returns the session that has the claim of a token, if it lasts for that TTL, or is to
// get it.
func (d *Driver) sessionOf(t *token, ttl time.Duration) (*session, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.s != nil && t.s.wants >= wants(ttl) && !t.s.isOver() {
		return t.s, nil
	}
	return d.sessionLocked(ttl)
}

func (d *Driver) sessionLocked(ttl time.Duration) (*session, error) {
	if d.ctx.Err() != nil {
		return nil, errClosed
	}
	w := wants(ttl)
	s := d.sessions[w]
	if s == nil || s.isOver() {
		var err error
		if s, err = d.open(w); err != nil {
			return nil, refusal("%w", err)
		}
		d.sessions[w] = s
	}
	s.used = time.Now()
	if d.sweeper == nil {
		d.sweeper = time.AfterFunc(idle/2, d.sweep)
	}
	return s, nil
}

// sweep closes sessions that nobody has used for a while.
func (d *Driver) sweep() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil {
		return
	}
	for _, t := range d.tokens {
		if t.s != nil {
			t.s.used = time.Now()
		}
	}
	for w, s := range d.sessions {
		if time.Since(s.used) > idle && time.Now().After(s.carries) {
			delete(d.sessions, w)
			d.tasks.Go(func() { s.stop(false) })
		}
	}
	if d.sweeper = nil; len(d.sessions) > 0 {
		d.sweeper = time.AfterFunc(idle/2, d.sweep)
	}
}

// ended tells the tokens of a session that it is over: holders that they hold nothing, and waiters
// that they are to ask again.
func (d *Driver) ended(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tokens {
		if t.s != s {
			continue
		}
		held := t.granted
		t.ignore()
		t.s, t.settled, t.granted = nil, false, false
		switch {
		case t.wake == nil || t.released || t.dead:
		case held:
			t.wake(driver.Grant{Status: driver.Lost, Ended: true})
		default:
			t.wake(driver.Grant{Status: driver.Queued})
		}
	}
	if d.sessions[s.wants] == s {
		delete(d.sessions, s.wants)
	}
	if d.ctx.Err() == nil {
		d.tasks.Go(s.conn.Close)
	}
}

// later has something done in a session after some time, until it has worked or the session is over.
func (d *Driver) later(s *session, after time.Duration, f func(context.Context) error) {
	time.AfterFunc(after, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.spawn(s, f)
	})
}

// spawn has something done in a session, until it has worked or the session is over. The caller
// holds mu.
func (d *Driver) spawn(s *session, f func(context.Context) error) {
	if d.ctx.Err() != nil {
		return
	}
	d.tasks.Go(func() {
		for pause := time.Duration(0); d.ctx.Err() == nil && !s.isOver(); {
			ctx, cancel := context.WithTimeout(d.ctx, timeout)
			err := f(ctx)
			cancel()
			if err == nil || errors.Is(err, zk.ErrNoAuth) {
				return
			}
			pause = longer(pause)
			rest(d.ctx, pause)
		}
	})
}
