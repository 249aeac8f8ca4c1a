package etcddriver

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-go/holdfast/driver"
)

// follow watches those before a claim, until it holds the lock, and tells its token so. The
// caller holds mu.
func (d *Driver) follow(l lock, q *queue, c *claim, t *token) {
	ctx, cancel := context.WithCancel(d.ctx)
	t.unfollow = cancel
	name, tag := c.token, ""
	d.tasks.Go(func() {
		defer cancel()
		for pause := time.Duration(0); ctx.Err() == nil; {
			if !q.waits(c) {
				d.followed(ctx, l, q, c, t, tag)
				return
			}
			tag = q.tag()
			next, err := d.await(ctx, l, q, c)
			if err == nil {
				pause, q, c = 0, next, next.find(name)
				continue
			}
			if next, err = d.look(ctx, l, name); err == nil {
				q, c = next, next.find(name)
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
// its place, or its owner holds the lock. The tag is that of the holder before. ctx has ended if
// somebody else has told it, or nobody wants to know.
func (d *Driver) followed(ctx context.Context, l lock, q *queue, c *claim, t *token, tag string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	t.ignore()
	if c == nil || !q.holds(c) {
		t.wake(driver.Grant{Status: driver.Queued})
		return
	}
	t.tie, t.granted = c.tie, true
	g := c.granted(t.ask)
	g.HolderTag = tag
	t.wake(g)
	if t.notice {
		d.heed(l, q, c, t)
	}
}

// await returns the queue once so much has changed since q that c might hold the lock, or an
// error if it cannot tell. It watches one claim if that alone stands in the way, so that only the
// next of those that want the lock for themselves hears of a release, and otherwise all.
func (d *Driver) await(ctx context.Context, l lock, q *queue, c *claim) (*queue, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := q.ahead(c)
	key, what, same := l.claims, []clientv3.OpOption{clientv3.WithCreatedNotify(), clientv3.WithPrefix()}, []clientv3.Cmp(nil)
	if a.one != nil {
		key, what, same = a.one.key, what[:1], []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(a.one.key), "=", a.one.changed)}
	}
	for resp := range d.watch(ctx, key, what...) {
		next, err := d.missed(ctx, resp, l, q, c.token, same...)
		switch {
		case err != nil:
			return nil, err
		case next != nil:
			c := next.find(c.token)
			if a.one != nil || !next.waits(c) || next.ahead(c).one != nil {
				return next, nil
			}
			q, a = next, next.ahead(c)
		case a.change(q, resp.Events) && (a.one != nil || len(c.Owner) > 0 || a.sum <= c.limit):
			// To know the change is not enough: those further ahead may still be there, and our
			// own claim may have gone while we watched another's.
			return d.look(ctx, l, c.token)
		}
	}
	return nil, ctx.Err()
}

// ahead is what stands in the way of a claim.
type ahead struct {
	one     *claim           // that alone is to be watched, if any
	weights map[string]int64 // of those that came before, by their keys
	sum     int64            // with its own weight
}

func (q *queue) ahead(c *claim) ahead {
	a := ahead{nil, map[string]int64{}, c.Weight}
	for i := range q.claims {
		other := &q.claims[i]
		if other.token == c.token {
			break
		}
		a.weights[other.key] = other.Weight
		a.sum += other.Weight
		if other.Weight+c.Weight > c.limit && len(c.Owner) == 0 { // else another of the owner may get it first
			a.one = other // the last of these
		}
	}
	return a
}

// change notes what has happened since q, and reports whether anything has to those that came before.
func (a *ahead) change(q *queue, events []*clientv3.Event) (changed bool) {
	for _, e := range events {
		key := string(e.Kv.Key)
		weight, before := a.weights[key]
		if !before || e.Kv.ModRevision <= q.revision {
			continue
		}
		var r record
		if e.Type == clientv3.EventTypePut && json.Unmarshal(e.Kv.Value, &r) == nil {
			a.weights[key] = r.Weight
		} else {
			delete(a.weights, key)
		}
		a.sum -= weight - r.Weight
		changed = true
	}
	return changed
}

// missed returns the queue if anything may have happened after q and before a watch began, of which this
// is a response: if the conditions do not hold any more, or there are none.
//
// A watch begins with what comes next. (Wrong version: with the revision after q. If etcd has written
// anything since, that watch hears nothing for up to 100 ms: see syncWatchersLoop there. So a release
// that came just before the watch, or an etcd that others write to, made each hand-over late.)
func (d *Driver) missed(ctx context.Context, of clientv3.WatchResponse, l lock, q *queue, token string, same ...clientv3.Cmp) (*queue, error) {
	if err := of.Err(); err != nil || !of.Created || of.Header.Revision <= q.revision {
		return nil, err
	}
	if len(same) == 0 {
		return d.look(ctx, l, token)
	}
	resp, err := d.client.Txn(ctx).If(same...).Else(l.look(token)...).Commit()
	if err != nil || resp.Succeeded {
		return nil, err
	}
	return d.seen(l, resp)
}

// watch yields what happens to a key. The client carries all watches on one stream, if the
// metadata of their contexts are the same. A stream keeps the token that it began with: once etcd
// has forgotten that one, the stream takes no more watches, and those that follow need another.
func (d *Driver) watch(ctx context.Context, key string, opts ...clientv3.OpOption) iter.Seq[clientv3.WatchResponse] {
	return func(yield func(clientv3.WatchResponse) bool) {
		era := d.era.Load()
		ctx := metadata.AppendToOutgoingContext(ctx, "holdfast-era", strconv.FormatInt(era, 10))
		for resp := range d.client.Watch(ctx, key, opts...) {
			if outdated(resp.Err()) {
				d.era.CompareAndSwap(era, era+1)
			}
			if !yield(resp) {
				return
			}
		}
	}
}

// listen hears of locks that were taken by force from whoever holds them, since that revision.
// There is one watch for all, since that is rare. The caller holds mu.
func (d *Driver) listen(revision int64) {
	if d.listening {
		return
	}
	d.listening = true
	d.tasks.Go(func() {
		pause := time.Duration(0)
		for from := revision + 1; d.ctx.Err() == nil; {
			ctx, cancel := context.WithCancel(d.ctx)
			for resp := range d.watch(ctx, d.prefix+newsPath, clientv3.WithPrefix(), clientv3.WithFilterDelete(), clientv3.WithRev(from)) {
				if resp.Err() == nil {
					pause = 0
				}
				if errors.Is(resp.Err(), rpctypes.ErrCompacted) {
					from = resp.CompactRevision
				}
				for _, e := range resp.Events {
					d.lost(strings.TrimPrefix(string(e.Kv.Key), d.prefix+newsPath), string(e.Kv.Value))
				}
				from = max(from, resp.Header.Revision+1)
			}
			cancel()
			pause = longer(pause) // such as while there is no leader
			rest(d.ctx, pause)
		}
	})
}

// lost tells a token that the lock was taken from it, and which holder has stolen it, if one has.
func (d *Driver) lost(id, thief string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tokens[id]; t != nil && t.granted {
		t.granted, t.tie = false, tie{}
		if t.wake != nil {
			t.wake(driver.Grant{Status: driver.Lost, Holder: thief})
		}
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
