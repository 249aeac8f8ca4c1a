package etcddriver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// block is how many fences there are between two revisions of etcd, and most is how many of
// these one request gets.
const (
	block = 1 << 20
	most  = 1 << 12
)

// few claims are read faster than they are compared with what was there before.
const few = 4

// lock is where the claims on one lock are.
type lock struct {
	path   string // of the lock among all locks, ending in a slash
	claims string // what their keys begin with
	dead   string // what the keys of its tombstones begin with
	news   string // what the keys of those begin with that were taken from their holders
}

func (d *Driver) lock(k driver.Kind, name string) lock {
	path := string(k) + "/" + url.PathEscape(name) + "/"
	return lock{path, d.prefix + "/lock/" + path, d.prefix + "/dead/" + path, d.prefix + newsPath + path}
}

const newsPath = "/forced/"

// id names a token of the lock among all tokens.
func (l lock) id(token string) string { return l.path + token }

// key is that of a claim. The limit stands in it so that a transaction can see that all others
// have the same.
func (l lock) key(limit int64, token string) string {
	return l.claims + strconv.FormatInt(limit, 10) + "/" + token
}

// claim is a key that says that a token holds the lock, or waits for it.
type claim struct {
	record
	tie
	token   string
	limit   int64
	came    int64 // the revision that made it
	changed int64 // the revision that last wrote it
}

// tie is what makes a claim end.
type tie struct {
	key   string
	lease clientv3.LeaseID
}

// record is what a claim says of itself.
type record struct {
	Holder string    `json:"holder,omitempty"`
	Shared bool      `json:"shared,omitempty"`
	Weight int64     `json:"weight"`
	Fences int64     `json:"fences"`
	Since  time.Time `json:"since"` // on the clock of the client
	Owner  []byte    `json:"owner,omitempty"`
	Tag    string    `json:"tag,omitempty"` // what its holder said last

	// Place is the place in the queue: that of the claim of the same owner beside which this one
	// holds the lock, or of the one whose hold it has taken over. 0 means the revision that made
	// the claim. First is its first fence among those of the place.
	Place int64 `json:"place,omitempty"`
	First int64 `json:"first,omitempty"`
}

func recordOf(r *driver.Request) record {
	weight, _ := r.Share()
	c := record{Holder: r.Holder, Shared: r.Shared, Weight: weight, Since: time.Now(), Owner: []byte(r.Owner)}
	if c.Fences = min(max(r.Fences, 1), most); r.Owner != "" {
		c.Fences = 1 // which they share
	}
	return c
}

// granted is the answer to an ask whose token holds the lock.
func (c *claim) granted(ask uint64) driver.Grant {
	return driver.Grant{Status: driver.Granted, Ask: ask, Fence: c.fence(), Fences: c.Fences}
}

func (c *claim) fence() int64 { return c.place()*block + c.First }

func (c *claim) place() int64 { return cmp.Or(c.Place, c.came) }

// look reads the claims on a lock, and whether the token was given up.
func (d *Driver) look(ctx context.Context, l lock, token string) (*queue, error) {
	resp, err := d.client.Txn(ctx).Then(l.look(token)...).Commit()
	if err != nil {
		return nil, err
	}
	return d.seen(l, resp)
}

func (l lock) look(token string) []clientv3.Op {
	return []clientv3.Op{clientv3.OpGet(l.claims, clientv3.WithPrefix()), clientv3.OpGet(l.dead+token, clientv3.WithCountOnly())}
}

// seen is what a transaction has seen that ended with look. Of a queue that was seen before most
// is as it was, and is not read again: with 64 claims that is a sixth of all work of a client.
func (d *Driver) seen(l lock, resp *clientv3.TxnResponse) (*queue, error) {
	last := len(resp.Responses) - 1
	q := &queue{path: l.claims, revision: resp.Header.Revision, term: resp.Header.RaftTerm}
	q.dead = resp.Responses[last].GetResponseRange().Count > 0
	kvs := resp.Responses[last-1].GetResponseRange().Kvs
	q.claims = make([]claim, 0, len(kvs))
	before := d.crowd.Load()
	for _, kv := range kvs {
		c, known := claim{}, false
		if before != nil && before.path == q.path {
			c, known = before.known(kv)
		}
		if !known {
			var err error
			if c, err = l.claim(kv); err != nil {
				return nil, err
			}
		}
		q.claims = append(q.claims, c)
	}
	slices.SortFunc(q.claims, func(a, b claim) int { return cmp.Or(cmp.Compare(a.place(), b.place()), cmp.Compare(a.came, b.came)) })
	if len(q.claims) > few {
		d.crowd.Store(q)
	}
	return q, nil
}

func (l lock) claim(kv *mvccpb.KeyValue) (claim, error) {
	c := claim{tie: tie{string(kv.Key), clientv3.LeaseID(kv.Lease)}, came: kv.CreateRevision, changed: kv.ModRevision}
	limit, token, _ := strings.Cut(strings.TrimPrefix(c.key, l.claims), "/")
	var err error
	if c.limit, err = strconv.ParseInt(limit, 10, 64); err == nil {
		err = json.Unmarshal(kv.Value, &c.record)
	}
	if err != nil {
		return claim{}, fmt.Errorf("etcddriver: %w at %q: %w", errForeign, c.key, err)
	}
	c.token = token
	return c, nil
}

// enter makes a claim, unless something stands against it that q does not show, and returns
// what there is then.
func (d *Driver) enter(ctx context.Context, l lock, r *driver.Request, q *queue, lease clientv3.LeaseID) (*queue, error) {
	_, limit := r.Share()
	key := l.key(limit, r.Token)
	free := []clientv3.Cmp{absent(key), absent(l.dead + r.Token)}
	own := recordOf(r)
	if kin := q.kin(own); kin != nil {
		own.Place, own.First = kin.place(), kin.First
		free = append(free, kin.there())
	} else if !r.Wait { // All that has happened since, if anything, is that some have left.
		free = append(free, clientv3.Compare(clientv3.ModRevision(l.claims).WithPrefix(), "<", q.revision+1))
	}
	if r.Kind == driver.Semaphore { // Nobody is there with another limit.
		same := l.key(r.Limit, "")
		free = append(free, absent(l.claims).WithRange(same), absent(clientv3.GetPrefixRangeEnd(same)).WithRange(clientv3.GetPrefixRangeEnd(l.claims)))
	}
	put := clientv3.OpPut(key, own.String(), clientv3.WithLease(lease))
	look := l.look(r.Token)
	resp, err := d.client.Txn(ctx).If(free...).Then(append([]clientv3.Op{put}, look...)...).Else(look...).Commit()
	if err != nil {
		return nil, err
	}
	return d.seen(l, resp)
}

func absent(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), "=", 0) }

// there is a condition: that the claim is still there.
func (c *claim) there() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(c.key), "=", c.came)
}

// String is the record as it is stored.
func (r record) String() string {
	text, _ := json.Marshal(r) // which cannot fail
	return string(text)
}

// rewrite stores a claim that has changed, with that lease, and reports false if somebody else
// has changed it, or a condition does not hold.
func (d *Driver) rewrite(ctx context.Context, c *claim, lease clientv3.LeaseID, also ...clientv3.Cmp) (bool, error) {
	resp, err := d.client.Txn(ctx).
		If(append(also, clientv3.Compare(clientv3.ModRevision(c.key), "=", c.changed))...).
		Then(clientv3.OpPut(c.key, c.record.String(), clientv3.WithLease(lease))).Commit()
	return err == nil && resp.Succeeded, err
}

// leave deletes a claim, unless it is gone or has another lease now. The lease is then the
// caller's.
func (d *Driver) leave(ctx context.Context, t tie, also ...clientv3.Op) (bool, error) {
	resp, err := d.client.Txn(ctx).
		If(clientv3.Compare(clientv3.LeaseValue(t.key), "=", t.lease)).
		Then(append(also, clientv3.OpDelete(t.key))...).Commit()
	return err == nil && resp.Succeeded, err
}

// drop deletes a claim, and revokes its lease.
func (d *Driver) drop(ctx context.Context, t tie, also ...clientv3.Op) error {
	done, err := d.leave(ctx, t, also...)
	switch {
	case err != nil:
		return err
	case !done:
		return driver.ErrNotHeld
	}
	_ = d.revoke(ctx, t.lease) // It would end by itself, but TTLs can be long.
	return nil
}

// bury leaves a tombstone for a token.
func (d *Driver) bury(ctx context.Context, l lock, token string) error {
	lease, err := d.grant(ctx, retention)
	if err == nil {
		_, err = d.client.Put(ctx, l.dead+token, "", clientv3.WithLease(lease))
	}
	return err
}
