// Package holdfast gives the locks of package sync to programs that run as many processes,
// on the Redis they already have.
//
//	locks := holdfast.New(rdb)
//	mu := locks.Mutex("orders:42")
//
//	mu.Lock()
//	defer mu.Unlock()
//
// [Mutex] has one holder at a time, [RWMutex] one writer or many readers, and [Semaphore]
// as many holders as its permits allow. They have the methods of their models in sync and
// golang.org/x/sync/semaphore, and methods that return a [Lease].
//
// # A lock is a lease
//
// No lock between processes can be held without a time limit. A process can be paused, cut
// off or killed while it holds a lock, and the other processes must go on. So the store
// grants a lock for a limited time, the TTL, and the holder renews it every TTL/3. If the
// holder cannot renew it, the lease ends. First the holder stops trusting it. A little
// later it ends in the store, which then grants the lock to the next waiter.
//
//	          Lease                   Release
//	(free) ----------> held, renewed ----------> (free)
//	                        |
//	                        | not renewed in time, or taken away
//	                        v
//	                      lost: Context ends with cause ErrLost
//
// Lock and Unlock hide that, as sync does; they fit where a lost lock is a nuisance. Where
// a lost lock would do damage, use [Mutex.Lease] or [Mutex.Do]. Pass on the context of the
// lease, which ends when the lease is lost:
//
//	err := mu.Do(ctx, func(ctx context.Context) error {
//		return rebuild(ctx) // ctx ends with cause ErrLost if the lock is lost
//	})
//
// # Fencing
//
// A context cannot reach a process that is paused. The process may wake up long after its
// lease has ended, between a check and a write, and write nevertheless. Only the resource
// can refuse that write. Each lease has a fence, a number larger than that of every earlier
// lease on the lock. A resource that remembers the largest fence it has seen can refuse
// smaller ones.
//
//	db.ExecContext(lease.Context(), `UPDATE orders SET state = $1, fence = $2
//		WHERE id = 42 AND fence <= $2`, state, lease.Fence())
//
// A write that comes late changes no row, which is no error for the database: look at
// RowsAffected. The packages fence/sqlfence, fence/redisfence and fence/httpfence do that for databases, for
// Redis and for requests, by the context alone.
//
// # Promises
//
//  1. At most one holder trusts its lease at a time. For an RWMutex, that is one writer
//     without readers, or any number of readers. For a Semaphore, it is holders of no more
//     permits than the limit. This requires that the clocks of holder and server advance
//     at the same rate within 1 %. It also requires that the server's clock is not set
//     forward by more than the grace, TTL/20 within 5 and 500 ms. The clocks of clients
//     may show any time. A client's clock that is set forward can cost leases, see below.
//  2. A holder that crashes keeps the lock from others for no longer than TTL + grace +
//     one heartbeat of TTL/3. So does a waiter that crashes just as it is granted the
//     lock. A waiter that crashed before delays nobody if Redis knows of the crash. Redis
//     knows when the waiter's connection for messages is closed, or at the latest 2/3 TTL
//     after the waiter last asked. On a Cluster only the node that has that connection
//     knows. The first waiter is told when to look at the lock. If that waiter crashes
//     together with the holder before it looks, the next waiter looks at its own
//     heartbeat, within TTL/3.
//  3. As long as nothing fails, waiters are served in the order in which they came. Nobody
//     overtakes the first one, be it a writer among readers or a large request among small
//     ones. Goroutines of one client that want a lock exclusively take turns: the lock
//     passes from one to the next before other clients get it. A turn lasts for 32 holds,
//     or for 1 ms if those take less, and for TTL/4 at most; for longer only while nobody
//     else waits. If the message is lost that somebody does, that shows at the next renewal
//     or after 8,192 holds. Readers may join an existing read lease within the same bounds.
//     [WithStrictFIFO] switches both off. After a failure every waiter that lives is served.
//  4. If a lease is lost, its context ends, with cause [ErrLost], before another lease on
//     the lock can be granted.
//  5. Fences of one name strictly increase, including over restarts of Redis and failovers
//     that lost data. This has two conditions. The clock of the server that gives the next
//     fence is not behind that of the server that gave the last one. The failover takes
//     longer than a millisecond. No fence is ahead of the server's clock unless that clock
//     was set back. The clock may be set back by up to a minute, but not just when data
//     are lost. After a [Mutex.ForceUnlock], a [Mutex.Steal] or a failover, the process that
//     lost the lock may use smaller fences until it hears of the loss.
//  6. After [Client.Close] no goroutine is left, but those that the program has in Lock. One minute after its last use a lock
//     leaves nothing in Redis. A holder that crashes uses the lock until its lease ends. A
//     waiter that crashes uses it until 2/3 of its TTL after it last asked. If the last
//     users of an RWMutex or Semaphore all crash, the longest lease or wait counts that
//     began while it was in use.
//
// # What it does not promise
//
// Promises 1 and 4 do not hold when Redis loses data:
//
//   - a failover to a replica that had not received the grant
//   - an eviction (use maxmemory-policy noeviction)
//   - FLUSHALL
//   - a restart without persistence
//
// Nor do they hold when somebody calls [Mutex.ForceUnlock] or [Mutex.Steal]. The old holder finds
// out when it renews, within TTL/3. Even then its fence is smaller than that of the new holder.
// [WithReplicas] makes it less likely that a failover loses a grant, and [WithFsync] that a
// restart does.
//
// If the old master lives on after a failover, a client may not hear of the switch. It then
// renews at the old master, and finds out nothing. There are two holders until the old
// master is made a replica. Sentinel does that when it has been able to reach the old
// master for about 10 s after the switch. Set
//
//	min-replicas-to-write 1
//	min-replicas-max-lag 1
//
// on all servers. Then an old master without replicas refuses renewals, with NOREPLICAS,
// within about 2 s of losing the last replica. The old holder loses its lease no later than
// a TTL after that. The price is that a master whose replicas are down grants no locks:
// waiters keep waiting, and leases end.
//
// A paused process cannot see its own pause, see Fencing. After its machine was suspended,
// [Lease.Err] and [GuardHook] look at the wall clock and see at once that a lease is over.
// The context of the lease ends within 5 s.
//
// A wall clock that is set forward while a lease is held looks the same, as NTP may do
// after boot. If the jump is longer than what is left of the lease, the lease is lost
// although nobody else could get the lock. The error says that the clock may have been the
// cause. A clock that is set back changes nothing.
//
// # Redis
//
// The package needs Redis 6.2 or later, or Valkey. A user of Redis needs these rights,
// where holdfast is the prefix of the keys:
//
//	~holdfast:* &holdfast:* +eval +evalsha +time +mget +exists +set +del +hmget +hget
//	+hgetall +hset +hdel +pttl +pexpireat +publish +subscribe +unsubscribe +pubsub|numsub
//
// Without the last four everything works, but waiters poll: they ask every 50 to 250 ms.
// Waiters also poll where their scripts may not publish, or where messages do not arrive, as
// with some hosted servers. The log says so once. If the user of a holder may not publish and
// theirs may, they hear of a release with their next heartbeat, within TTL/3: so all users of a
// lock need the same rights. The command
// holdfast ls also needs +scan, [WithReplicas] +wait, and [WithFsync] +waitaof.
//
// On a Cluster the user also needs +cluster|slots, +command and +restore, on every node.
// Without +command go-redis asks for it in vain, again and again. Without +restore, a lock
// whose first waiter comes just while its slot moves to another node can be lost.
//
// Behind a proxy that spreads keys over several servers, use [WithPipelining](false).
//
// On a Cluster, a lock is served again as soon as a replica has replaced a dead master, or
// another node owns the slot. A waiter whose client still listens at the node that the lock
// has left can be passed over, until it asks again within TTL/3.
package holdfast
