package zkdriver

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// news is what tells, once, that something has happened to a node.
type news = <-chan zk.Event

// watch returns what tells that a node goes, or that nodes come to it or leave. A change of what the
// node says is no news. All that watch a node share what they hear. The client could not end a watch,
// so those who stop waiting would otherwise leave one each.
//
// What a node was like must be read after watch, for the news may be that of an earlier call. The
// client hears the news before it reads of what has happened.
func (s *session) watch(ctx context.Context, path string) (news, error) {
	s.mu.Lock()
	w := s.watches[path]
	s.mu.Unlock()
	if w != nil && !heard(w) {
		return w, nil
	}
	w, err := call(ctx, s, func(c *zk.Conn) (news, error) {
		_, _, w, err := c.ChildrenW(path)
		return w, err
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watches) >= s.crowded {
		for path, w := range s.watches {
			if heard(w) {
				delete(s.watches, path)
			}
		}
		s.crowded = 2*len(s.watches) + 64
	}
	s.watches[path] = w
	return w, nil
}

// watching reports whether there is a watch that has not heard anything yet. The caller holds mu.
func (s *session) watching() bool {
	for _, w := range s.watches {
		if !heard(w) {
			return true
		}
	}
	return false
}

// heard reports whether there is news. It takes the event of the first to ask; the others find the
// channel closed.
func heard(w news) bool {
	select {
	case <-w:
		return true
	default:
		return false
	}
}

// follow watches those before a claim, until it holds the lock, and tells its token so. The
// caller holds mu.
func (d *Driver) follow(s *session, l lock, q *queue, c *claim, t *token) {
	ctx, cancel := context.WithCancel(d.ctx)
	t.unfollow = cancel
	name := c.token
	d.tasks.Go(func() {
		defer cancel()
		for pause := time.Duration(0); ctx.Err() == nil; {
			if s.isOver() || c == nil || q.holds(c) || q.kin(c) != nil {
				d.followed(ctx, s, l, q, c, t)
				return
			}
			// To know the change is not enough: those further ahead may still be there, and our
			// own claim may have gone while we watched another's.
			next, failed := d.await(ctx, s, l, q, c)
			if failed == nil {
				q, c, pause = next, next.find(name), 0
				continue
			}
			pause = longer(pause)
			rest(ctx, pause)
		}
	})
}

// longer is the pause after one that was not long enough.
func longer(pause time.Duration) time.Duration {
	return min(max(2*pause, 10*time.Millisecond), time.Second)
}

func rest(ctx context.Context, pause time.Duration) {
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// followed tells a token that it holds the lock; or that it is to ask again, because it has lost
// its place, or its owner holds the lock. ctx has ended if somebody else has told it, or nobody
// wants to know.
func (d *Driver) followed(ctx context.Context, s *session, l lock, q *queue, c *claim, t *token) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	t.ignore()
	if t.s != s || !t.settled || c == nil || c.node != t.claim.node || !q.holds(c) {
		t.wake(driver.Grant{Status: driver.Queued})
		return
	}
	t.granted = true
	t.wake(t.record.granted(t.ask))
	if t.notice {
		d.heed(s, l, t)
	}
}

// await returns the queue when so much has changed that c might hold the lock. It watches one claim
// if that alone stands in the way, so that only the next of those that want the lock for
// themselves hears of a release, and otherwise all.
func (d *Driver) await(ctx context.Context, s *session, l lock, q *queue, c *claim) (*queue, error) {
	path := l.dir
	stone := q.obstacle(c)
	if stone != nil {
		path += "/" + stone.node
	}
	w, err := s.watch(ctx, path)
	switch {
	case errors.Is(err, zk.ErrNoNode): // It has gone already.
		return d.look(ctx, s, l)
	case err != nil:
		return nil, err
	case stone == nil:
		if q, err = d.look(ctx, s, l); err != nil || q.find(c.token) == nil || q.holds(q.find(c.token)) || q.kin(c) != nil {
			return q, err
		}
	}
	select {
	case <-w:
		return d.look(ctx, s, l)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// heed watches those that come after a claim, and tells its token that it is wanted. The caller
// holds mu.
func (d *Driver) heed(s *session, l lock, t *token) {
	t.ignore()
	ctx, cancel := context.WithCancel(d.ctx)
	t.unfollow, t.wanted = cancel, false
	d.tasks.Go(func() {
		defer cancel()
		for pause := time.Duration(0); ctx.Err() == nil && !s.isOver(); {
			w, err := s.watch(ctx, l.dir)
			var q *queue
			if err == nil {
				q, err = d.look(ctx, s, l)
			}
			if err != nil {
				pause = longer(pause)
				rest(ctx, pause)
				continue
			}
			pause = 0
			if q.wanted() {
				d.want(ctx, t)
			}
			select {
			case <-w:
			case <-ctx.Done():
			}
		}
	})
}

// want tells a token that it is wanted, unless nobody wants to know any more.
func (d *Driver) want(ctx context.Context, t *token) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() == nil {
		t.wanted = true
		t.wake(driver.Grant{Status: driver.Wanted})
	}
}

// remind tells a token again that it is wanted.
func (d *Driver) remind(t *token) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.unfollow != nil && t.granted && t.wanted {
		t.wake(driver.Grant{Status: driver.Wanted})
	}
}

// listen hears of locks that were taken by force from those in a session that hold them. There is
// one watch for all, since that is rare. The caller holds mu.
func (d *Driver) listen(s *session) {
	if s.listens {
		return
	}
	s.listens = true
	d.tasks.Go(func() {
		for pause := time.Duration(0); d.ctx.Err() == nil && !s.isOver(); {
			w, err := s.watch(d.ctx, d.forced())
			if errors.Is(err, zk.ErrNoNode) {
				if err = d.lay(d.ctx, s, d.forced()); err == nil {
					continue
				}
			}
			var words found
			if err == nil {
				words, err = d.children(d.ctx, s, d.forced())
			}
			if err != nil {
				pause = longer(pause)
				rest(d.ctx, pause)
				continue
			}
			pause = 0
			for _, word := range words.nodes {
				d.lost(word)
			}
			select {
			case <-w:
			case <-d.ctx.Done():
			}
		}
	})
}

// lost tells a token that the lock was taken from it.
func (d *Driver) lost(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tokens[id]
	if t == nil || !t.granted || t.releasing {
		return
	}
	t.ignore()
	t.dead, t.settled, t.granted = true, false, false
	t.ttl = retention
	t.renewed()
	if t.wake != nil {
		t.wake(driver.Grant{Status: driver.Lost})
	}
}

// attempts are those at a step that fails if others are faster, until ctx ends. The first may have
// known too little, so the second follows at once; later ones wait, each for a time of its own.
func attempts(ctx context.Context) iter.Seq[int] {
	return func(yield func(int) bool) {
		for try := 0; ctx.Err() == nil && yield(try); try++ {
			if try > 0 {
				rest(ctx, rand.N(min(time.Millisecond<<min(try, 10), crowd)))
			}
		}
	}
}
