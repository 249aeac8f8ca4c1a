// Package redisdriver keeps locks on one Redis deployment: a server, a Sentinel
// group or a Cluster, Redis 6.2 or later, or Valkey.
//
// A lock is one key, <prefix>:2:<kind>:<name>, so it needs no hash tag on a Cluster and keeps
// working while its slot moves. The key has two forms, as the locks of monitors have (Bacon,
// Konuru, Murthy, Serrano: Thin Locks, 1998):
//
//   - thin, a string, while nobody waits and nothing else must be remembered. To take it and
//     to give it up are one read and one write each. script/thin_acquire.lua explains it.
//   - fat, a hash, from the moment that somebody waits, several hold it, or there is an owner,
//     a tombstone or a limit that was set. It becomes thin again when it is free. HGETALL
//     shows an operator all of it; script/lock.lua explains its fields.
//
// Every change is one Lua script that uses the server's clock. It loads the lock into a
// table, changes that, and saves what has changed. Channels are called
// <prefix>:2:wake:<client>, as are the keys, never written to, that say from where a client
// pings itself. Programs of format 1 would not see these locks. An upgrade of a fleet that
// had it would take the locks of both formats for a while, 1 before 2.
//
// While many callers are under way, locks on a single server are taken, given up and renewed
// many in one call, see [holdfast.WithPipelining].
//
// # How long a lock stays
//
// One minute after its last use a lock leaves nothing in Redis; see [WithRetention]. A holder
// that crashes has used it until its lease ends, and a waiter that crashes until 2/3 of its
// TTL after it last asked. If those that use an RWMutex or a Semaphore last all crash, the
// longest lease or wait counts that began while somebody used it, even if it was given up.
//
// # Fences
//
// Fences are the time of the server's clock in µs, or numbers that it has shown since the last
// one was given, but none older than 1,024 µs. So they increase although the key is lost, or
// an older state of it comes back in a failover, as long as that takes longer and the clock
// that gives the next one is not behind the one that gave the last. While the key is there
// its server's clock may be set back: numbers go on one by one.
//
// # Grant by push
//
// Waiters do not race for a lock that was freed. The script that releases it makes
// the first waiter the holder, with that waiter's token and TTL, and publishes
// "granted <token> <ask> <fence> <fences>" on the channel of the waiter's client. Handing a
// lock over takes one trip to Redis and one from it.
//
// Why may the waiter act on a message that can be late, doubled or lost?
//
//   - It counts its trust from the time it sent the ask that the message names, not
//     from when the message came. The server handled that ask before it granted,
//     and gave the full TTL when it granted, so the lease on the server lasts at
//     least until that moment plus TTL, however late the message is. A message
//     later than that is worthless and ignored.
//   - It need not come. A waiter asks again every third of its TTL, and the answer
//     to a token that holds the lock is the grant.
//   - It cannot be somebody else's. The token is the acquisition.
//
// The wrong version counts from the newest ask. A waiter that was cut off, whose
// grant expired and went to another, may have asked again just before the old
// message gets through, and then trusts it while the other holds the lock.
//
// # Rules
//
// The tests and the scripts cite these by number. Each has a test that fails without it.
//
// Trust, which is the holder's side:
//
//  1. A holder believes for TTL - (TTL/100 + 2 ms), counted from the moment at which it sent
//     the ask that its grant names. A grant that comes later than that is dropped.
//  2. A waiter that has not asked for 2/3 of its TTL is granted nothing. So a pushed grant
//     leaves at least a third of the TTL, and the holder renews at once if much is used up.
//  3. Every answer "you hold it" moves the end of the lease to now + TTL + grace, and never
//     back; grace is TTL/20 within 5 and 500 ms. Nothing revives a lease that has expired.
//  4. Trust ends also by the wall clock, which sees what the monotonic clock sleeps through.
//     The TTL stands beside the end of a lease, and no lease has more left than TTL + grace,
//     so a clock that was set back blocks nobody.
//
// Idempotence:
//
//  5. go-redis repeats no command of ours; we repeat them, and know of each attempt. A release
//     leaves a tombstone if any ask of its token is unanswered, also after a hold that
//     succeeded: a late heartbeat would take the lock for nobody.
//  6. A token is never used again, also not by a copy of the process. The tokens of an owner
//     are fields that expire one by one, not a count. A partial release says what stays.
//
// Grants:
//
//  7. A script writes first and publishes last, and ignores a PUBLISH that is refused. A
//     waiter whose client nobody hears is passed over, and keeps its place.
//  8. Every script that changes the head of the queue, the weight in use or the limit grants
//     what can be granted then, to 64 waiters at most, and says whether there is more.
//  9. An attempt that does not wait serves the queue first, and leaves no record.
//  10. A place is a number of one fat life of the lock. Numbers never go back in that life, and
//     a waiter that was dropped returns to its place.
//
// The key:
//
//  11. Its life is only ever lengthened by what others count on, and the first write of a
//     release, a renewal and a heartbeat is one that a full memory allows.
//  12. A fence is larger than all before it, and never ahead of the clock: the numbers of a
//     grant lie between the last one given and now in µs. A key that is not known gives one.
//
// Liveness:
//
//  13. Nobody is told when a lease expires: the waiter that is next knows the time, and asks
//     then. Every heartbeat finds a grant whose message was lost, every new subscription has
//     all waiters ask, and a ping through a script finds one that is dead. Where no news
//     comes in, waiters ask every 50 to 250 ms.
//  14. A waiter that gives up says so with a context of its own, and Close withdraws all
//     waiters before it unsubscribes.
//
// [holdfast.WithPipelining]: https://pkg.go.dev/github.com/holdfast-go/holdfast#WithPipelining
package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// Driver keeps locks on Redis.
type Driver struct {
	rdb       redis.UniversalClient
	group     *group
	prefix    string
	retention time.Duration
	wakes     *wakes
	uptime    *redisscript.Uptime
	onCluster bool

	channels, keeps any // as arguments: what channels begin with, and the retention
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Inspector  = (*Driver)(nil)
	_ driver.Lister     = (*Driver)(nil)
	_ driver.Forcer     = (*Driver)(nil)
	_ driver.Downgrader = (*Driver)(nil)
	_ driver.Resizer    = (*Driver)(nil)
	_ driver.Confirmer  = (*Driver)(nil)
	_ driver.Router     = (*Driver)(nil)
	_ driver.Extender   = (*Driver)(nil)
	_ driver.Batcher    = (*Driver)(nil)
	_ driver.Notifier   = (*Driver)(nil)
	_ driver.Reporter   = (*Driver)(nil)
)

// Option changes a Driver.
type Option interface{ apply(*Driver) }

type optionFunc func(*Driver)

func (f optionFunc) apply(d *Driver) { f(d) }

// WithPrefix sets what all keys and channels begin with. Programs exclude each
// other only if they use the same prefix. It panics if prefix is empty, or could be taken
// for the beginning of a key of another prefix, as "a:2:mutex" could: its lock "x" would have
// the key of the lock "2:mutex:x" of the prefix "a". The default is "holdfast".
func WithPrefix(prefix string) Option {
	if prefix == "" {
		panic("redisdriver: empty prefix")
	}
	for _, k := range kinds {
		if part := format + string(k) + ":"; strings.Contains(prefix+":", part) {
			panic(fmt.Sprintf("redisdriver: prefix %q contains %q, so that keys of other prefixes could be the same", prefix, part))
		}
	}
	return optionFunc(func(d *Driver) { d.prefix = prefix })
}

// WithRetention sets how long a lock's key outlives its last use. Until then it
// remembers the last fence, in case the server's clock is set back, and the tokens
// that were released while an ask of theirs was on its way: an ask that is later than
// this takes the lock for a whole TTL, with nobody to release it. Only tests need less
// than some seconds. It panics if r is below 1 ms. The default is 1 minute.
func WithRetention(r time.Duration) Option {
	if r < time.Millisecond {
		panic("redisdriver: retention below 1 ms")
	}
	return optionFunc(func(d *Driver) { d.retention = r })
}

// New returns a driver that sends its commands through rdb, with rdb's hooks and
// limits, and does not close it.
//
// It panics if rdb is nil or a [redis.Ring]. A Ring moves names to other servers
// when one fails, and then two holders would have the same lock.
func New(rdb redis.UniversalClient, opts ...Option) *Driver {
	redisscript.Require("redisdriver", rdb)
	d := &Driver{rdb: rdb, prefix: "holdfast", retention: time.Minute}
	for _, o := range opts {
		o.apply(d)
	}
	_, d.onCluster = rdb.(*redis.ClusterClient)
	d.group = newGroup(d)
	d.wakes = newWakes(rdb, d.prefix+format+"wake:")
	d.uptime = redisscript.NewUptime(rdb)
	d.channels, d.keeps = d.wakes.prefix, redisscript.Millis(d.retention)
	return d
}

// format comes after the prefix in all keys and channels: the number of the format that
// they are in.
const format = ":2:"

// key returns the key of a lock. No two locks have the same: the kind begins where format
// and a kind come first in the key, and no prefix has that in it.
func (d *Driver) key(k driver.Kind, name string) string {
	return d.prefix + format + string(k) + ":" + name
}

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if err := valid(r); err != nil {
		return driver.Grant{}, err
	}
	if r.Notice && !d.wakes.tried() {
		d.wakes.prepare(ctx) // the notice may come as soon as the lock is held
	}
	t := d.wakes.expect(r)
	wait, seated := r.Wait && d.wakes.tried(), false
	for {
		birth, place, changes := d.wakes.seat(t)
		a, err := d.run(ctx, acquireScript, r.Kind, r.Name, r.Token, standing(r.Ask, birth, place), d.wish(r, wait))
		if err != nil {
			if seated {
				err = redisscript.Unknown(err) // by the run before
			}
			d.wakes.failed(t, !errors.Is(err, driver.ErrNotExecuted), ctx.Err() != nil)
			return driver.Grant{}, err
		}
		status, n, more := a.n[0], a.n[1], a.n[2] == 1
		switch {
		case status == acquireBuried:
			d.wakes.forget(r.Token)
			return driver.Grant{}, fmt.Errorf("%w: the token was released before", driver.ErrNotHeld)
		case status == acquireGranted:
			d.wakes.granted(t, r.Ask)
			if more {
				d.serve(ctx, r.Kind, r.Name)
			}
			return driver.Grant{Status: driver.Granted, Ask: r.Ask, Fence: n, Fences: a.n[3]}, nil
		case more: // the queue is long: the script serves it piecemeal
			seated = status == acquireQueued
		case status == acquireExceeded:
			d.wakes.forget(r.Token)
			return driver.Grant{}, redisscript.Refusal(fmt.Errorf("%w: %d of %d", driver.ErrLimitExceeded, r.Weight, n))
		case status == acquireConflict:
			d.wakes.forget(r.Token)
			return driver.Grant{}, redisscript.Refusal(fmt.Errorf("%w: %d, not %d", driver.ErrLimitConflict, n, r.Limit))
		case status == acquireQueued:
			after := d.wakes.queued(t, r.Ask, changes, a.n[3], a.n[4], n)
			return a.heldBy(driver.Grant{Status: driver.Queued, RetryAfter: after}), nil
		case r.Wait && !wait:
			d.wakes.prepare(ctx) // before the first wait
			wait = true
		default:
			d.wakes.forget(r.Token)
			return a.heldBy(driver.Grant{Status: driver.Busy, RetryAfter: time.Duration(n) * time.Millisecond}), nil
		}
	}
}

// heldBy adds to an answer who holds the lock: "tag", or "tag now" and what script/record.lua
// says of the grant.
func (a *answer) heldBy(g driver.Grant) driver.Grant {
	parts := strings.SplitN(a.text, " ", 8) // tag now fence numbers last since client text
	g.HolderTag = fit(parts[0])
	if len(parts) == 8 {
		g.Holder, g.HeldFor = parts[7], max(0, millis(parts[1]).Sub(millis(parts[5])))
	}
	return g
}

// Release implements [driver.Driver].
func (d *Driver) Release(ctx context.Context, l driver.Lease) error {
	if sent := d.wakes.forget(l.Token); !sent && !l.Unsettled {
		return driver.ErrNotHeld // no ask reached Redis, nor will one
	}
	status, err := d.untilDone(ctx, releaseScript, l.Kind, l.Name, l.Token, parting(l))
	if err != nil {
		return err
	}
	if status == statusNeither {
		return driver.ErrNotHeld
	}
	return nil
}

// ForceRelease implements [driver.Forcer].
func (d *Driver) ForceRelease(ctx context.Context, k driver.Kind, name string) error {
	a, err := d.run(ctx, forceScript, k, name, nobody)
	if err != nil {
		return err
	}
	if a.n[1] == 1 {
		d.serve(ctx, k, name)
	}
	if a.n[0] == statusNeither {
		return driver.ErrNotHeld
	}
	return nil
}

// serve goes on where a script stopped in the middle of a long queue: it releases a lease
// that nobody has.
func (d *Driver) serve(ctx context.Context, k driver.Kind, name string) {
	// If this fails, the heartbeats of the waiters take over.
	_, _ = d.untilDone(ctx, releaseScript, k, name, nobody, parting(driver.Lease{}))
}

// untilDone runs a script that answers {status, more} until there is no more to do,
// and returns its first status. Between two runs the lock is free, with a queue;
// should this process end here, the heartbeats of the waiters take over.
func (d *Driver) untilDone(ctx context.Context, s *script, k driver.Kind, name string, args ...any) (int64, error) {
	first, err := d.run(ctx, s, k, name, args...)
	if err != nil {
		return 0, err
	}
	for more := first.n[1]; more == 1; {
		again, err := d.run(ctx, s, k, name, args...)
		if err != nil {
			break // what was asked for is done
		}
		more = again.n[1]
	}
	return first.n[0], nil
}

// standing is which ask of a token this is, and the place that it was told to wait in.
func standing(ask uint64, birth, place int64) any {
	if ask == 1 && place == 0 {
		return newcomer
	}
	return fmt.Sprint(ask, birth, place)
}

var newcomer any = "1 0 0"

// wish is all else that a request says, in one text: see script/thin_acquire.lua.
func (d *Driver) wish(r *driver.Request, wait bool) string {
	b := make([]byte, 0, 128)
	for _, n := range [...]int64{redisscript.Millis(r.TTL), useful(r.Fences), bit(wait), weight(r), limit(r)} {
		b = append(strconv.AppendInt(b, n, 10), ' ')
	}
	b = append(append(b, d.wakes.client(r)...), ' ')
	b = append(append(b, owner(r)...), ' ')
	return string(append(b, r.Holder...))
}

// parting is what a release says of a lease, see script/thin_release.lua.
func parting(l driver.Lease) any {
	if !l.Unsettled && fit(l.HolderTag) == "" {
		return silently
	}
	return fmt.Sprint(bit(l.Unsettled), " ", tag(l.HolderTag))
}

var silently any = "0 " + nobody

// useful is how many fences to ask for. Those of a grant are from the last so many us, and a
// master that has lost what another gave must not give them again: a failover takes longer.
func useful(fences int64) int64 { return min(max(fences, 1), 1024) }

// Node implements [driver.Router].
func (d *Driver) Node(k driver.Kind, name string) string {
	if _, ok := d.rdb.(*redis.ClusterClient); !ok {
		return "" // and no key is made for that
	}
	return redisscript.Node(d.rdb, d.key(k, name))
}

// Batch implements [driver.Batcher].
func (d *Driver) Batch(on bool) { d.group.off.Store(!on) }

// OnReconnect implements [driver.Reporter].
func (d *Driver) OnReconnect(f func(reason string)) { d.wakes.onReconnect(f) }

// Close implements [driver.Driver]: it ends the subscription.
func (d *Driver) Close() error {
	d.wakes.close()
	return nil
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// nobody stands for no token, tag, client or owner in scripts and records.
const nobody = "-"

// tag is a holder's tag as an argument.
func tag(s string) any {
	if fit(s) == "" {
		return nobody
	}
	return s
}

// fit returns the tag, or nothing if it is none.
func fit(tag string) string {
	if tag == nobody || len(tag) > driver.MaxHolderTag || strings.ContainsFunc(tag, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return ""
	}
	return tag
}

// owner returns on whose behalf a request is made, without spaces.
func owner(r *driver.Request) string {
	if r.Kind == driver.Semaphore || r.Shared || r.Owner == "" {
		return nobody
	}
	return "=" + url.PathEscape(r.Owner)
}

// original undoes that.
func original(owner string) string {
	escaped, ok := strings.CutPrefix(owner, "=")
	if !ok {
		return ""
	}
	if name, err := url.PathUnescape(escaped); err == nil {
		return name
	}
	return escaped // of no client of ours
}

func valid(r *driver.Request) error {
	switch {
	case r.Kind != driver.Mutex && r.Kind != driver.RWMutex && r.Kind != driver.Semaphore:
		return redisscript.Unsupported("redisdriver", r.Kind)
	case r.Kind == driver.Semaphore && (r.Limit < 1 || r.Limit > driver.MaxLimit || r.Weight < 1):
		return redisscript.Refusal(fmt.Errorf("redisdriver: a weight of %d and a limit of %d", r.Weight, r.Limit))
	}
	return redisscript.Check("redisdriver", r)
}
