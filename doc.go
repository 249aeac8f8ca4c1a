// Package holdfast gives the locks of package sync to programs that run as many
// processes, on the Redis they already have.
//
//	locks := holdfast.New(rdb)
//	mu := locks.Mutex("orders:42")
//
//	mu.Lock()
//	defer mu.Unlock()
//
// [Mutex] has one holder at a time, [RWMutex] one writer or many readers, and
// [Semaphore] as many as its permits allow. They have the methods of their models in
// sync and golang.org/x/sync/semaphore, and beside these some that return a [Lease].
//
// # A lock is a lease
//
// No lock between processes is held for as long as one likes to believe. A process
// can be paused, cut off or killed while it holds one, and the others must go on. So
// the store grants a lock for a limited time, the TTL, and the holder renews it every
// TTL/3. If the holder cannot renew it, the lease ends: first for the holder, which stops
// trusting it, and a little later in the store, which then grants the lock to the next one.
//
//	          Lease                   Release
//	(free) ----------> held, renewed ----------> (free)
//	                        |
//	                        | not renewed in time, or taken away
//	                        v
//	                      lost: Context ends with cause ErrLost
//
// Lock and Unlock hide that, as sync does; they fit where a lost lock is a nuisance.
// Where it would do damage, use [Mutex.Lease] or [Mutex.Do] and pass on the context of
// the lease, which ends when the lease is lost:
//
//	err := mu.Do(ctx, func(ctx context.Context) error {
//		return rebuild(ctx) // ctx ends with cause ErrLost if the lock is lost
//	})
//
// # Fencing
//
// A context cannot reach a process that is paused. It may wake up long after its lease
// has ended, between a check and a write, and write nevertheless. Only the resource
// can refuse that: each lease has a fence, a number larger than that of every earlier
// lease on the lock, and a resource that remembers the largest it has seen refuses
// smaller ones.
//
//	db.ExecContext(lease.Context(), `UPDATE orders SET state = $1, fence = $2
//		WHERE id = 42 AND fence <= $2`, state, lease.Fence())
//
// The packages fence/sqlfence, fence/redisfence and fence/httpfence do that for databases, for
// Redis and for requests, by the context alone.
//
// # Promises
//
//  1. At most one holder believes in its lease at a time (or one writer and no reader
//     beside it, or holders of no more permits than the limit), provided that the
//     clocks of holder and server advance at the same rate within 1 %, and that the
//     server's clock is not set forward by more than the grace, TTL/20 within 5 and
//     500 ms. The clocks of clients may show any time; one that is set forward costs
//     leases, see below.
//  2. A holder that crashed, or a waiter that crashed just as it was granted the lock,
//     keeps it from the others for no longer than TTL + grace + one heartbeat of
//     TTL/3. A waiter that crashed before delays nobody, if Redis knows: if it has
//     closed the connection that the waiter was to be called on, or, at the latest,
//     2/3 TTL after the waiter last asked. On a Cluster only the node that has that
//     connection knows. A waiter that is next hears when to look at the lock; only if the
//     holder crashes together with the waiter before it does it wait for its own heartbeat,
//     a third of its TTL.
//  3. Waiters are served in the order in which they came, as long as nothing fails.
//     Nobody overtakes the first one, be it a writer among readers or a large request
//     among small ones. But goroutines of one client that want a lock for themselves
//     alone take turns: it passes from one to the next of them before others get it, for
//     32 holds, or for 1 ms if those take less, and for TTL/4 at most. Readers may join an
//     existing read lease within the same bounds. [WithStrictFIFO] switches both off.
//     After a failure every waiter that lives is served.
//  4. The context of a lease that is lost ends, with cause [ErrLost], before another
//     can be granted the lock.
//  5. Fences of one name strictly increase, also over restarts of Redis and failovers
//     that lost data, if the clock of the server that gives the next fence is not behind
//     that of the one that gave the last, and the failover takes longer than a millisecond.
//     No fence is ahead of the server's clock unless that was set back; it may be set back by
//     up to a minute, but not just when data are lost. After a [Mutex.ForceUnlock], or a
//     failover that it has not heard of, the process that lost the lock may go on to use
//     smaller fences until it hears of it.
//  6. After [Client.Close] no goroutine is left, and one minute after its last use a lock
//     leaves nothing in Redis. A holder that crashes has used it until its lease ends, a waiter
//     that crashes until 2/3 of its TTL after it last asked. If the last users of an RWMutex
//     or a Semaphore all crash, the longest lease or wait counts that began while it was in use.
//
// # What it does not promise
//
// Promises 1 and 4 do not hold when Redis loses data: a failover to a replica that had
// not received the grant, an eviction (use maxmemory-policy noeviction), FLUSHALL, a
// restart without persistence; nor when an operator calls [Mutex.ForceUnlock]. The old
// holder finds out when it renews, within TTL/3. Its fence is smaller than that of
// the new holder even then. [WithReplicas] makes it less likely that a failover loses a
// grant.
//
// If the old master lives on after a failover, a client that has not heard of the switch
// goes on to renew there, and finds out nothing. There are two holders until the old master
// is made a replica. Sentinel does that when it has been able to reach the old master for
// about 10 s after the switch. Set
//
//	min-replicas-to-write 1
//	min-replicas-max-lag 1
//
// on all servers. Then an old master without replicas refuses renewals, with NOREPLICAS,
// within about 2 s of losing the last one, and the old holder loses its lease no later than
// a TTL after that. The price is that a master whose replicas are down lends no locks:
// waiters go on to wait, and leases end.
//
// A paused process cannot see its own pause. See Fencing. After its machine was suspended,
// [Lease.Err] and [GuardHook] see at once that a lease is over, as the wall clock tells; its
// context ends within 5 s.
//
// A wall clock that is set forward while a lease is held looks the same. If it jumps by more
// than is left of the lease, as NTP may have it do after boot, the lease is lost although
// nobody else could get the lock. The error says that the clock may have been the cause. A
// clock that is set back changes nothing.
//
// # Redis
//
// It takes Redis 6.2 or later, or Valkey. A user of Redis needs these rights, where
// holdfast is the prefix of the keys:
//
//	~holdfast:* &holdfast:* +eval +evalsha +time +hmget +hget +hgetall +hset +hdel
//	+pttl +pexpire +publish +subscribe +unsubscribe +pubsub|numsub
//
// Without the last four all works, but waiters have to poll: they ask every 50 to 250 ms.
// So they do where a script may not publish, or nobody hears what it publishes, as with
// some hosted servers; the log says so once. [WithReplicas] needs +wait besides.
//
// On a Cluster a lock is served again as soon as a replica has replaced a master that has
// died, or its slot has another owner. A waiter whose client listens for news at the node
// that the lock has left can be passed over there, until it asks again within TTL/3.
package holdfast
