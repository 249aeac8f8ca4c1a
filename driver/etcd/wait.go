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
	name := c.token
	d.tasks.Go(func() {
		defer cancel()
		for pause := time.Duration(0); ctx.Err() == nil; {
			if c == nil || q.holds(c) || q.kin(c.record) != nil {
				d.followed(ctx, l, q, c, t)
				return
			}
			failed := d.await(ctx, l, q, c)
			// To know the change is not enough: those further ahead may still be there, and our
			// own claim may have gone while we watched another's.
			next, err := d.look(ctx, l, name)
			if err == nil {
				q, c = next, next.find(name)
			}
			if err == nil && failed == nil {
				pause = 0
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
func (d *Driver) followed(ctx context.Context, l lock, q *queue, c *claim, t *token) {
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
	t.wake(c.granted(t.ask))
	if t.notice {
		d.heed(l, q, c, t)
	}
}

// await returns when so much has changed since q that c might hold the lock, or with an error
// if it cannot tell. It watches one claim if that alone stands in the way, so that only the next
// of those that want the lock for themselves hears of a release, and otherwise all.
func (d *Driver) await(ctx context.Context, l lock, q *queue, c *claim) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ahead := map[string]int64{} // the weight of those that came before
	sum, key := c.Weight, ""
	for _, a := range q.claims {
		if a.token == c.token {
			break
		}
		ahead[a.key] = a.Weight
		sum += a.Weight
		if a.Weight+c.Weight > c.limit && len(c.Owner) == 0 { // else another of the owner may get it first
			key = a.key // the last of these
		}
	}
	what := []clientv3.OpOption{clientv3.WithRev(q.revision + 1)}
	if key == "" {
		key, what = l.claims, append(what, clientv3.WithPrefix())
	}
	for resp := range d.watch(ctx, key, what...) {
		for _, e := range resp.Events {
			weight, before := ahead[string(e.Kv.Key)]
			if !before {
				continue // It came later.
			}
			var r record
			if e.Type == clientv3.EventTypePut && json.Unmarshal(e.Kv.Value, &r) == nil {
				ahead[string(e.Kv.Key)] = r.Weight
			} else {
				delete(ahead, string(e.Kv.Key))
			}
			sum -= weight - r.Weight
		}
		change := len(resp.Events) > 0 && (key != l.claims || len(c.Owner) > 0)
		if err := resp.Err(); err != nil || change || key == l.claims && sum <= c.limit {
			return err
		}
	}
	return ctx.Err()
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
					d.lost(strings.TrimPrefix(string(e.Kv.Key), d.prefix+newsPath))
				}
				from = max(from, resp.Header.Revision+1)
			}
			cancel()
			pause = longer(pause) // such as while there is no leader
			rest(d.ctx, pause)
		}
	})
}

// lost tells a token that the lock was taken from it.
func (d *Driver) lost(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tokens[id]; t != nil && t.granted {
		t.granted, t.tie = false, tie{}
		if t.wake != nil {
			t.wake(driver.Grant{Status: driver.Lost})
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
