// Package redisdriver keeps locks on one Redis deployment: a server, a Sentinel
// group or a Cluster, Redis 6.2 or later, or Valkey.
//
// A lock is one key, <prefix>:2:<kind>:<name>, so it needs no hash tag on a Cluster and keeps
// working while its slot moves. The key has two forms, as the locks of monitors have (Bacon,
// Konuru, Murthy, Serrano: Thin Locks, 1998):
//
//   - thin, a string, while nobody waits and nothing else must be remembered. To take it and
//     to give it up are one read and one write each. script/short/acquire.lua does it.
//   - fat, a hash, from the moment that somebody waits, several hold it, or there is an owner,
//     a tombstone or a limit that was set. It becomes thin again when it is free. HGETALL
//     shows an operator all of it; script/lib/lock.lua explains its fields.
//
// Every change is one Lua script that uses the server's clock. It loads the lock into a
// table, changes that, and saves what has changed. Channels are called
// <prefix>:2:wake:<client>, as are the keys, never written to, that say from where a client
// pings itself. Programs of format 1 would not see these locks. An upgrade of a fleet that
// had it would take the locks of both formats for a while, 1 before 2.
//
// Callers gather while a call is under way, and locks on a server, or on a node of a Cluster, are
// taken, given up and renewed many in one call, see [holdfast.WithPipelining].
//
// # How long a lock stays
//
// One minute after its last use a lock leaves nothing in Redis; see [WithRetention]. A holder
// that crashes has used it until its lease ends, and a waiter that crashes until 2/3 of its
// TTL after it last asked. If those that use an RWMutex or a Semaphore last all crash, the
// longest lease or wait counts that began while somebody used it, even if it was given up.
//
// A lease of a lock that nobody else has wanted counts until it would have ended, also if it was released before or
// after that, unless its TTL is above a minute: to ask for the time, and to move the end of the key, is a seventh of
// what Redis does for a lock.
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
//   - It cannot be somebody else's. The token is the acquisition, and the message ends with
//     a seal that nobody can make who does not know a secret of the client. See publish in
//     script/lib/queue.lua.
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
//     waiter whose client was heard and is not any more is dropped when it is its turn.
//  8. Every script that changes the head of the queue, the weight in use or the limit grants
//     what can be granted then, to 64 waiters at most, and says whether there is more.
//  9. An attempt that does not wait serves the queue first, and leaves no record.
//  10. A place is a number of one fat life of the lock. Numbers never go back in that life, and
//     a waiter that was dropped returns to its place. So does the token after one that was granted
//     the lock and lost it unheard, see [driver.Unheard].
//
// The key:
//
//  11. Its life is only ever lengthened by what others count on. A release, a renewal and a heartbeat
//     write behind a command that Redis allows with its memory full, since it refuses the rest alone.
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
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/news"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// Driver keeps locks on Redis.
type Driver struct {
	rdb       redis.UniversalClient
	groups    *groups
	prefix    string
	retention time.Duration
	channel   *channel
	news      *news.Hub[tokenArgs]
	silence   *silence
	uptime    *redisscript.Uptime
	onCluster bool

	commands     redis.UniversalClient          // rdb, for all but pipelines
	requestTexts [2]atomic.Pointer[requestText] // the last, of holders of all and of some
	looking      chan struct{}                  // has one for each that looks at a lock and shares no call

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
	_ driver.Batcher    = (*Driver)(nil)
	_ driver.Prompter   = (*Driver)(nil)
	_ driver.Notifier   = (*Driver)(nil)
	_ driver.Reporter   = (*Driver)(nil)
	_ driver.Attacher   = (*Driver)(nil)
	_ driver.Bounded    = (*Driver)(nil)
	_ driver.Explainer  = (*Driver)(nil)
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
	d := &Driver{rdb: rdb, prefix: "holdfast", retention: time.Minute, looking: make(chan struct{}, lookers)}
	for _, o := range opts {
		o.apply(d)
	}
	_, d.onCluster = rdb.(*redis.ClusterClient)
	d.groups, d.silence = newGroups(rdb), newSilence(rdb)
	d.channel = newChannel(rdb, d.prefix+format)
	d.news = news.New(d.channel, pace, d.channel.tokenArgs)
	d.commands = within(rdb, false, answerTimeout)
	d.uptime = redisscript.NewUptime(rdb)
	d.channels, d.keeps = d.channel.prefix, redisscript.Millis(d.retention)
	return d
}

// Node implements [driver.Router].
func (d *Driver) Node(k driver.Kind, name string) string {
	if _, ok := d.rdb.(*redis.ClusterClient); !ok {
		return "" // and no key is made for that
	}
	return redisscript.Node(d.rdb, d.lock(k, name).key.(string))
}

// Batch implements [driver.Batcher].
func (d *Driver) Batch(on bool) { d.groups.off.Store(!on) }

// Explain implements [driver.Explainer]: it says so if others have all connections.
func (d *Driver) Explain() error { return d.silence.explain() }

// Timeout implements [driver.Bounded]: it is the ReadTimeout of the client.
func (d *Driver) Timeout() time.Duration { return redisscript.Timeout(d.rdb) }

// OnReconnect implements [driver.Reporter].
func (d *Driver) OnReconnect(f func(reason string)) { d.news.OnReconnect(f) }

// Close implements [driver.Driver]: it ends the subscription.
func (d *Driver) Close() error {
	d.news.Close()
	d.silence.close()
	return nil
}

// String says where Redis is.
func (d *Driver) String() string {
	switch rdb := d.rdb.(type) {
	case *redis.ClusterClient:
		return "Redis Cluster at " + strings.Join(rdb.Options().Addrs, ", ")
	case *redis.Client:
		return "Redis at " + rdb.Options().Addr
	}
	return "Redis"
}
