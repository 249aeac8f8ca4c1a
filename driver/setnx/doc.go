// Package setnx keeps mutexes in the form that the documentation of Redis gives for a
// lock on one server, so that a Go service can share a lock with programs that know
// nothing of holdfast:
//
//	locks := holdfast.Open(setnx.New(rdb))
//
// # Format
//
// The key is the name of the lock as it is. It is a string, the token of the holder,
// and lives as long as the lease:
//
//	SET name token NX PX milliseconds                                   acquire
//	if GET name == token then PEXPIRE name milliseconds (in a script)   renew
//	if GET name == token then DEL name (in a script)                    release
//
// This is "Correct implementation with a single instance" in [Distributed Locks with
// Redis] and the pattern of [SET]. Whoever follows it takes part: redsync with one pool,
// bsm/redislock, redis-py's Lock, node-redlock with one client, and many a script of a
// few lines. Redisson does not (its locks are hashes; we are refused with WRONGTYPE), nor
// does anything that deletes the key without comparing.
//
// The key lives TTL/20 longer than the TTL, within 5 ms and half a second, so that a
// holder here stops to trust its lease before anybody else can get it. Others need not
// do the same.
//
// One more key is written, and only now and then: holdfast:settled:{name} token, for a
// minute, if a token was given up while an ask of it might still arrive. Acquiring looks
// at it in the same script, or a straggler would take the lock with nobody to release it.
// Nobody else needs to know of it. It begins apart from the lock, so an ACL must allow
// the pattern holdfast:settled:*, too. On a Cluster the braces put both keys in one slot;
// a name with a closing brace but without a hash tag, such as "a}b" or "{}", cannot be
// put in braces and is refused there with CROSSSLOT. While a slot moves to another node,
// Redis refuses scripts with two keys (TRYAGAIN), and nobody here can acquire until it has
// moved. A renewal has one key, and so has a release unless an ask went unanswered.
//
// # What it does not promise
//
// There is no queue: who waits asks again after 50 to 150 ms, nobody is woken, and a
// program that polls faster, or locks again at once, gets the lock more often. There are no fences
// ([github.com/holdfast-go/holdfast/driver.Grant] has 0), no other kinds than Mutex, and
// nothing to inspect or to force. Exclusion is as good as that of the other programs:
// one that never sets a TTL blocks all for ever if it crashes, one that deletes without
// comparing frees what is ours. As with every lock on one Redis, a failover can lose it.
// Where all programs can use holdfast, use its own protocol instead.
//
// [Distributed Locks with Redis]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
// [SET]: https://redis.io/docs/latest/commands/set/
package setnx
