package redisson

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// retention is for how long a token that was given up is remembered, if an ask of it may
// still arrive.
const retention = time.Minute

// Driver keeps mutexes, and readers and writers, on Redis. See the package for how.
type Driver struct {
	rdb      redis.UniversalClient
	form     Form
	turn     time.Duration // of a FairLock
	prefix   string
	publish  string // the command, PUBLISH or SPUBLISH
	listener *listener
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Confirmer = (*Driver)(nil)
	_ driver.Forcer    = (*Driver)(nil)
	_ driver.Inspector = (*Driver)(nil)
	_ driver.Lister    = (*Driver)(nil)
	_ driver.Router    = (*Driver)(nil)
)

// Option changes a Driver.
type Option interface{ apply(*Driver) }

type optionFunc func(*Driver)

func (f optionFunc) apply(d *Driver) { f(d) }

// WithPrefix sets what comes before the name of a lock in its key, as a NameMapper of the
// Java programs may set it. The default is the empty prefix.
func WithPrefix(prefix string) Option {
	return optionFunc(func(d *Driver) { d.prefix = prefix })
}

// WithShardedPubSub tells of releases by SPUBLISH, and listens by SSUBSCRIBE. It uses one
// connection for each node that has a lock which somebody waits for. Redisson does so on a
// Cluster of Redis 7 or later since its version 3.22.0, unless its shardedSubscriptionMode
// is OFF. If the two sides differ, waiters hear of no release of the other, and find out by
// asking; exclusion does not depend on it. The default is PUBLISH and SUBSCRIBE.
func WithShardedPubSub() Option {
	return optionFunc(func(d *Driver) { d.publish = "SPUBLISH" })
}

// New returns a driver that sends its commands through rdb, with rdb's hooks and
// limits, and does not close it.
//
// It panics if rdb is nil or a [redis.Ring], or if an option makes no sense. A Ring moves names
// to other servers when one fails, and then two holders would have the same lock.
func New(rdb redis.UniversalClient, opts ...Option) *Driver {
	redisscript.Require("redisson", rdb)
	d := &Driver{rdb: rdb, publish: "PUBLISH", turn: defaultTurn}
	for _, o := range opts {
		o.apply(d)
	}
	switch {
	case d.form < Lock || d.form > FairLock:
		panic("holdfast: redisson: WithMutex: there is no such form")
	case d.turn < time.Millisecond:
		panic("holdfast: redisson: WithFairLockWaitTimeout: less than a millisecond")
	}
	d.listener = newListener(rdb, d.publish == "SPUBLISH")
	return d
}

// Timeout implements [driver.Bounded]: it is the ReadTimeout of the client.
func (d *Driver) Timeout() time.Duration { return redisscript.Timeout(d.rdb) }

func (d *Driver) key(name string) string { return d.prefix + name }

// channel is where Redisson tells that a lock is free.
func (d *Driver) channel(k driver.Kind, name string) string {
	if k == driver.RWMutex {
		return "redisson_rwlock:" + tagged(d.key(name))
	}
	return "redisson_lock__channel:" + tagged(d.key(name))
}

// channelOf is where a token hears of that: for a FairLock each waiter has a channel.
func (d *Driver) channelOf(k driver.Kind, name, token string) string {
	if d.form == FairLock {
		return d.channel(k, name) + ":" + token
	}
	return d.channel(k, name)
}

// tagged is a key in what Redisson makes of it.
func tagged(key string) string {
	if strings.Contains(key, "{") {
		return key
	}
	return "{" + key + "}"
}

func (d *Driver) settled(name string) string {
	return redisscript.Beside("holdfast:redisson:settled:", d.key(name))
}

func (d *Driver) ownerKeys(name string) []string {
	return []string{d.key(name), d.settled(name), redisscript.Beside("holdfast:redisson:holds:", d.key(name))}
}

// field is an owner in the lock. There is no space in a token, nor in what Redisson calls
// a thread, so none of them is taken for another.
func field(owner string) string { return "owner " + owner }

// Acquire implements [driver.Driver]. It answers Granted or Busy, or Queued or Full if a Mutex is a
// [FairLock].
func (d *Driver) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if err := d.valid(r); err != nil {
		return driver.Grant{}, err
	}
	c, err := redisscript.Run(ctx, d.rdb, d.acquireCall(r))
	if err != nil {
		return driver.Grant{}, err
	}
	status, left, text, err := c.Asked("redisson") // of the holder, or the fence
	if err != nil {
		return driver.Grant{}, err
	}
	channel, after := d.channelOf(r.Kind, r.Name, r.Token), redisscript.Remaining(left)
	switch {
	case status == 0:
		d.listener.leave(channel, r.Token)
		return driver.Grant{}, fmt.Errorf("%w: the token was released before", driver.ErrNotHeld)
	case status == 1:
		d.listener.leave(channel, r.Token)
		return granted(r, text)
	case status != 3 && r.Wait && r.Wake != nil && !d.listener.wait(channel, d.Node(r.Kind, r.Name), r):
		after = redisscript.RetryAfter(r, after, redisscript.Poll)
	}
	answer := map[int64]driver.Status{3: driver.Full, 4: driver.Queued}[status]
	return driver.Grant{Status: cmp.Or(answer, driver.Busy), RetryAfter: after, Holder: text}, nil
}

// Renew implements [driver.Driver]. All leases go in one pipeline.
func (d *Driver) Renew(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	var calls []redisscript.Call
	var which []int
	for i, l := range leases {
		if !d.knows(l.Kind) {
			errs[i] = redisscript.Unsupported("redisson", l.Kind)
			continue
		}
		calls, which = append(calls, d.renewCall(l)), append(which, i)
	}
	for j, c := range redisscript.RunAll(ctx, d.rdb, calls) {
		errs[which[j]] = c.Renewed()
	}
	return errs
}

// Confirm implements [driver.Confirmer] with the command WAIT, as Redisson does after each
// command, or WAITAOF for disks. It needs a [redis.Client], including one for failover, or a
// [redis.ClusterClient], and occupies a connection meanwhile.
func (d *Driver) Confirm(ctx context.Context, l driver.Lease, c driver.Confirmation) error {
	if !d.knows(l.Kind) {
		return redisscript.Unsupported("redisson", l.Kind)
	}
	return redisscript.Confirm(ctx, d.rdb, d.renewCall(l), (*redisscript.Command).Renewed, c)
}

// Release implements [driver.Driver].
func (d *Driver) Release(ctx context.Context, l driver.Lease) error {
	if !d.knows(l.Kind) {
		return redisscript.Unsupported("redisson", l.Kind)
	}
	d.listener.leave(d.channelOf(l.Kind, l.Name, l.Token), l.Token)
	return held(d.answer(ctx, d.releaseCall(l)))
}

// ForceRelease implements [driver.Forcer], with what forceUnlock of Redisson does. Nobody
// tells the holder: holdfast finds out when it renews, and Redisson when it unlocks.
func (d *Driver) ForceRelease(ctx context.Context, k driver.Kind, name string) error {
	if !d.knows(k) {
		return redisscript.Unsupported("redisson", k)
	}
	return held(d.answer(ctx, d.forceCall(k, name)))
}

// Inspect implements [driver.Inspector]. A holder is shown as its field: the token of an
// acquisition here, and <uuid>:<thread> of a program in Java, followed by how often it holds.
// All tokens of an owner are shown.
func (d *Driver) Inspect(ctx context.Context, k driver.Kind, name string) (driver.Info, error) {
	if !d.knows(k) {
		return driver.Info{Name: name}, redisscript.Unsupported("redisson", k)
	}
	switch {
	case k == driver.RWMutex:
		return d.inspectRW(ctx, name)
	case d.form == FairLock:
		return d.inspectFair(ctx, name)
	}
	info, err := redisscript.Inspect(ctx, d.rdb, name, d.inspectCall(k, name))
	if d.form == FencedLock {
		number(info.Holders)
	}
	return info, err
}

// List implements [driver.Lister] with SCAN, on all masters of a Cluster, for which the user
// needs that right. Each hash with one field, whose value is a number from 1 on, is a mutex, and each
// with the field "mode" of read or write an RWMutex. A [FairLock] that nobody holds is not named,
// although some may wait for it.
func (d *Driver) List(ctx context.Context, prefix string, f func(k driver.Kind, name string) error) error {
	shelf := redisscript.Shelf{Prefix: d.prefix, Type: "hash", Kinds: d.kinds(), Inspect: d.inspectCall}
	return shelf.List(ctx, d.rdb, prefix, f)
}

// held is what came of a script that answers 0 for not held.
func held(n int64, err error) error {
	if err == nil && n == 0 {
		err = driver.ErrNotHeld
	}
	return err
}

// Node implements [driver.Router].
func (d *Driver) Node(_ driver.Kind, name string) string {
	return redisscript.Node(d.rdb, d.key(name))
}

// Close implements [driver.Driver]. It ends the subscriptions.
func (d *Driver) Close() error {
	d.listener.close()
	return nil
}

func (d *Driver) valid(r *driver.Request) error {
	if !d.knows(r.Kind) {
		return redisscript.Unsupported("redisson", r.Kind)
	}
	return r.Check()
}
