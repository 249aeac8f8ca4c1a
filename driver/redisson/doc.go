// Package redisson keeps mutexes in the form of Redisson's RLock, so that a Go service
// can share a lock with Java programs that know nothing of holdfast:
//
//	locks := holdfast.Open(redisson.New(rdb), holdfast.WithTTL(30*time.Second))
//
// # Format
//
// It is that of RLock, from [RedissonLock.java] and [RedissonBaseLock.java] as of 4.7, and
// the same since 3.11 at least. The key is the name of the lock as it is:
//
//	name                                a hash with one field, the holder, and how often
//	                                    it holds; lives as long as the lease
//	redisson_lock__channel:{name}       gets the message 0 when the lock has become free
//
// (If the name has an opening brace in it, nothing is put in braces.) In Redisson the
// holder is a thread, <uuid of the client>:<id of the thread>, and a thread that has the
// lock gets it again. Whoever runs one request after another on one thread, or goes on with
// a request on another thread, has to think of that. Here the holder is one acquisition,
// its token. Nothing is done on behalf of a goroutine or of a client, so nobody has a lock
// by accident that somebody else took; and no name that one of us goes by is that of a
// thread of Java. Who wants to enter again says on whose behalf, with holdfast.WithOwner:
// then the field is "owner " and that text, and the tokens of that owner are counted.
//
// The TTL is that of the lock or client, and it is renewed every third of it. Redisson's
// watchdog does so with 30 seconds (lockWatchdogTimeout). The key lives TTL/20 longer
// than the TTL, within 5 ms and half a second, so that a holder here stops to trust its
// lease before anybody else can get it. Redisson does not do that, nor does it tell a
// holder of a loss.
//
// Redisson unlocks idempotently by a key of its own, redisson_unlock_latch:{name}:<request>,
// since 3.24.1. Nobody reads the latch of another, so there is none of ours: here the token
// has that role, also when acquiring.
//
// Two more keys are ours, in the slot of the lock. Nobody else needs to know of them:
//
//	holdfast:redisson:settled:{name}    for a minute: tokens that were given up while an
//	                                    ask of theirs might still arrive, or by force
//	holdfast:redisson:holds:{name}      while an owner holds: its tokens, and the end of
//	                                    the lease of each
//
// They begin apart from the lock, so an ACL must allow the pattern holdfast:redisson:*, too,
// and the channels redisson_lock__channel:*.
//
// # Waiting
//
// There is no queue. Who waits subscribes to the channel, on one connection for all locks
// of a client, and asks again when the lock is released, when what is left of the lease
// in the way has passed (the end of a lease is told by nobody), every third of its TTL,
// and whenever the subscription was made or lost. Until there is one it asks every 100 ms.
// All who wait are told at once; whoever comes first has the lock, so one who has just
// released it may have it again. RedissonFairLock has the same hash and a queue of its own:
// the two exclude each other, but a lock released here wakes nobody who waits there.
//
// On a Cluster of Redis 7 or later, Redisson since 3.22.0 tells of releases by SPUBLISH:
// see [WithShardedPubSub].
//
// # What it does not promise
//
// There are no fences ([github.com/holdfast-go/holdfast/driver.Grant] has 0). RFencedLock
// has, in a layout that this is not. There are no kinds but Mutex, and nothing to inspect:
// RLock says of its holder no more than an id. Where there are replicas, Redisson waits for
// one of them after each command (WAIT), and gives a lock back that none has; here that is
// up to holdfast.WithReplicas, and without it a failover can lose a lock. Exclusion is as
// good as that of the other programs: a lock that Redisson took for a fixed time is free
// then, whoever still works, and its forceUnlock asks nobody.
//
// On a Cluster, a name with a closing brace but without a hash tag, such as "a}b" or "{}",
// is refused with CROSSSLOT, and what has an opening brace but no hash tag, such as "a{b",
// cannot be unlocked by Redisson. While a slot moves to another node, Redis refuses scripts
// with two keys (TRYAGAIN), and nobody here can acquire until it has moved. A renewal has
// one key, and so has a release unless an ask went unanswered or there is an owner.
//
// [RedissonLock.java]: https://github.com/redisson/redisson/blob/master/redisson/src/main/java/org/redisson/RedissonLock.java
// [RedissonBaseLock.java]: https://github.com/redisson/redisson/blob/master/redisson/src/main/java/org/redisson/RedissonBaseLock.java
package redisson
