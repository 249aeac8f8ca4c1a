// Package redisson keeps mutexes in the form of Redisson's RLock, and readers and writers in that
// of its RReadWriteLock. So a Go service can share a lock with Java programs that know nothing of
// holdfast:
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
// holdfast:redisson:*, and the channels redisson_lock__channel:*. Waiters need PING, by which the
// connection for news shows that it lives. A script does not undo what it has written if
// a later command is refused, so the user needs all rights that docs/operations.md lists.
//
// # Readers and writers
//
// The format is that of RReadWriteLock, from [RedissonReadLock.java] and [RedissonWriteLock.java]
// as of 4.7:
//
//	name                                 a hash. Its field "mode" is read or write. All others are
//	                                     holders, <uuid>:<thread> of readers and
//	                                     <uuid>:<thread>:write of a writer, with how often each
//	                                     holds; lives as long as the longest lease
//	{name}:<uuid>:<thread>:rwlock_timeout:<n>
//	                                     a string, for the nth hold of a reader; lives as long as
//	                                     the lease
//	redisson_rwlock:{name}               gets 0 when the last reader has left, 1 when the writer has
//
// Here the holder is the token again. Readers come in beside readers, whoever waits: nothing keeps
// a stream of them from starving a writer. A thread of Java may read while it writes, and goes on
// reading; here nobody does. A reader that crashed is forgotten when the next one leaves, or with
// the hash.
//
// A watchdog of Java that renews a reader lets the hash end after its own 30 seconds, also if a
// reader here has longer. So a longer TTL is worth nothing beside Java: use its 30 seconds.
//
// The keys of readers begin with a brace. So an ACL must also allow the names of the locks after one,
// as {app:* beside app:*, and the channels redisson_rwlock:*. An acquisition names the holder in the
// way if the user has HRANDFIELD.
//
// As in Redisson, a name is that of an RLock or of an RReadWriteLock, not of both: they are one
// key. Here the second of them is refused with WRONGTYPE, or finds the lock taken, and ForceUnlock
// of one kind leaves a lock of the other kind alone, with WRONGTYPE, and a hash that is no lock, too.
// In Redisson an RReadWriteLock does not see that an RLock of its name is held.
//
// # Fences
//
// With [WithMutex] and [FencedLock] a Mutex is an RFencedLock, from [RedissonFencedLock.java] as of
// 4.7: an RLock, and one key more.
//
//	redisson_lock_token:{name}           a number, without a TTL: how often the lock was acquired
//
// Each grant counts, and the count is its fence. So a guard that has seen fences of getToken or
// lockAndGetToken goes on with those of Go, and back. A thread of Java that enters again counts, too.
// Here a repeated ask does not, and the tokens of an owner share one fence.
//
// The counter is as safe as its key. A failover that loses grants loses their numbers, and gives
// them again; so does somebody who deletes the key, as RFencedLock.delete does, or a server that
// evicts it. (Fences of the own protocol of holdfast increase nevertheless.) A program that takes
// the lock as an RLock is kept out, and has no number. An ACL must also allow the pattern
// redisson_lock_token:*.
//
// # Waiting
//
// There is no queue but that of a [FairLock]. A waiter subscribes to the channel, on one connection
// for all locks of a client. It asks again
//
//   - when the lock is released
//   - when the rest of the lease in the way has passed, for nobody tells of the end of a
//     lease
//   - every third of its own TTL
//   - whenever the subscription was made or lost
//
// Until there is a subscription, it asks every 100 ms. All waiters are told at once, and
// the first to ask has the lock, which may be the caller that has just released it.
// A lock of another [Form] has the same hash. They exclude each other, but a lock that is released
// by a program that takes it as an RLock wakes no waiter of an RFairLock.
//
// On a Cluster of Redis 7 or later, Redisson since 3.22.0 tells of releases by SPUBLISH:
// see [WithShardedPubSub].
//
// # A queue
//
// With [WithMutex] and [FairLock] a Mutex is an RFairLock, from [RedissonFairLock.java] as of 4.7:
// an RLock, a queue, and a channel for each waiter.
//
//	redisson_lock_queue:{name}           a list of those that wait
//	redisson_lock_timeout:{name}         a zset: when each of them loses its place if it is the first
//	redisson_lock__channel:{name}:<uuid>:<thread>
//	                                     gets 0 when the lock is free and it is the turn of that waiter
//	holdfast:redisson:waits:{name}       ours, a zset: when a waiter here has been silent for too long
//
// The first of the queue has a turn of 5 minutes, see [WithFairLockWaitTimeout], to take a free lock.
// Each place is a turn later than the one before. A waiter that takes the lock or gives up takes its turn
// out of the times of all behind it. So the time of a waiter cannot be that of a heartbeat, and a
// waiter of Java that has died keeps a free lock from the others until its turn has passed.
//
// Here a waiter asks every third of its TTL, and for a free lock when the turn of the first waiter has
// passed. Each ask counts its time anew, from the turns of all before it, so it keeps its place however
// long the holder renews. Redisson does not do that: if a
// lock is held for longer than a turn, a thread of Java that waits goes to the end of the queue.
// What a waiter here has asked last is in a key that Java does not read. After 2/3 of its TTL another
// waiter of ours drops it. If only threads of Java wait it costs them its turn.
//
// Order is kept among Go and Java as well as Redisson keeps it. Its tryLock with a time to wait
// counts turns of that length. If that is longer than a turn, it takes more out of the times of the
// others than they have, until they ask again. Times are compared with the clocks of the Java
// programs, which must agree to within a part of a turn.
//
// As in Redisson the queue and its times have no TTL. Entries of waiters that have died are dropped
// when the lock is used again. An ACL must also allow redisson_lock_queue:* and
// redisson_lock_timeout:*.
//
// # What it does not promise
//
// Only a [FencedLock] has fences; else [github.com/holdfast-go/holdfast/driver.Grant] has 0. There
// is no Semaphore. RLock says of its holder no more
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
// [RedissonReadLock.java]: https://github.com/redisson/redisson/blob/master/redisson/src/main/java/org/redisson/RedissonReadLock.java
// [RedissonWriteLock.java]: https://github.com/redisson/redisson/blob/master/redisson/src/main/java/org/redisson/RedissonWriteLock.java
// [RedissonFencedLock.java]: https://github.com/redisson/redisson/blob/master/redisson/src/main/java/org/redisson/RedissonFencedLock.java
// [RedissonFairLock.java]: https://github.com/redisson/redisson/blob/master/redisson/src/main/java/org/redisson/RedissonFairLock.java
// [RedissonLock.java]: https://github.com/redisson/redisson/blob/master/redisson/src/main/java/org/redisson/RedissonLock.java
// [RedissonBaseLock.java]: https://github.com/redisson/redisson/blob/master/redisson/src/main/java/org/redisson/RedissonBaseLock.java
package redisson
