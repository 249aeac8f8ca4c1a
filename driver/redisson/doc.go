// Package redisson keeps mutexes in the form of Redisson's RLock. So a Go service can share
// a lock with Java programs that know nothing of holdfast:
//
//	locks := holdfast.Open(redisson.New(rdb), holdfast.WithTTL(30*time.Second))
//
// # Format
//
// The format is that of RLock, from [RedissonLock.java] and [RedissonBaseLock.java] as of
// 4.7, and the same since 3.11 at least. The key is the name of the lock as it is:
//
//	name                                a hash with one field, the holder, and how often
//	                                    it holds; lives as long as the lease
//	redisson_lock__channel:{name}       gets the message 0 when the lock has become free
//
// (If the name has an opening brace in it, nothing is put in braces.)
//
// In Redisson the holder is a thread, <uuid of the client>:<id of the thread>, and a thread
// that has the lock gets it again. A program that runs several requests on one thread, or
// one request on several, has to think of that. Here the holder is one acquisition, its
// token. Nothing is done on behalf of a goroutine or of a client, so nobody shares a lock
// by accident. No name of a holder here is that of a thread of Java. To let a caller enter
// again, say on whose behalf, with holdfast.WithOwner. Then the field is "owner " and that
// text, and the tokens of that owner are counted.
//
// The TTL is that of the lock or client, and it is renewed every TTL/3. Redisson's watchdog
// does so with 30 seconds (lockWatchdogTimeout). The key lives TTL/20 longer than the TTL,
// within 5 ms and half a second. So a holder here stops trusting its lease before anybody
// else can get it. Redisson does not do that, nor does it tell a holder of a loss.
//
// Since 3.24.1 Redisson unlocks idempotently by a key of its own,
// redisson_unlock_latch:{name}:<request>. Nobody reads the latch of another, so this driver
// has none: its token has that role, including when it acquires.
//
// Two more keys are ours, in the slot of the lock. Other programs need not know of them:
//
//	holdfast:redisson:settled:{name}    for a minute: tokens that were given up while an
//	                                    ask of theirs might still arrive, or by force
//	holdfast:redisson:holds:{name}      while an owner holds: its tokens, and the end of
//	                                    the lease of each
//
// They do not begin with the name of the lock. So an ACL must also allow the pattern
// holdfast:redisson:*, and the channels redisson_lock__channel:*. An acquisition names the
// holder in the way if the user has HLEN and HKEYS. Inspect needs HLEN, HGETALL and ZRANGE.
//
// # Waiting
//
// There is no queue. A waiter subscribes to the channel, on one connection for all locks of
// a client. It asks again
//
//   - when the lock is released
//   - when the rest of the lease in the way has passed, for nobody tells of the end of a
//     lease
//   - every third of its own TTL
//   - whenever the subscription was made or lost
//
// Until there is a subscription, it asks every 100 ms. All waiters are told at once, and
// the first to ask has the lock, which may be the caller that has just released it.
// RedissonFairLock has the same hash and a queue of its own. The two exclude each other,
// but a lock released here wakes no waiter there.
//
// On a Cluster of Redis 7 or later, Redisson since 3.22.0 tells of releases by SPUBLISH:
// see [WithShardedPubSub].
//
// # What it does not promise
//
// There are no fences ([github.com/holdfast-go/holdfast/driver.Grant] has 0). RFencedLock
// has them, in another layout. There are no kinds but Mutex. RLock says of its holder no more
// than an id and how often it holds, and that is what Inspect shows. Exclusion is as good as that of the other
// programs. A lock that Redisson took for a fixed time is free after it, even if its holder
// still works. Its forceUnlock asks nobody.
//
// Where there are replicas, Redisson waits for one of them after each command (WAIT). It
// gives back a lock that no replica has. Here holdfast.WithReplicas does that; without it a
// failover can lose a lock.
//
// On a Cluster, a name with a closing brace but without a hash tag, such as "a}b" or "{}",
// is refused with CROSSSLOT. Redisson cannot unlock a name with an opening brace but no
// hash tag, such as "a{b". While a slot moves to another node, Redis refuses scripts with
// two keys (TRYAGAIN), and nobody here can acquire until it has moved. A renewal has one
// key, and so has a release unless an ask went unanswered or there is an owner.
//
// [RedissonLock.java]: https://github.com/redisson/redisson/blob/master/redisson/src/main/java/org/redisson/RedissonLock.java
// [RedissonBaseLock.java]: https://github.com/redisson/redisson/blob/master/redisson/src/main/java/org/redisson/RedissonBaseLock.java
package redisson
