// Package setnx keeps mutexes in the form that the documentation of Redis gives for a lock
// on one server. So a Go service can share a lock with programs that know nothing of
// holdfast:
//
//	locks := holdfast.Open(setnx.New(rdb))
//
// # Format
//
// The key is the name of the lock as it is. It is a string, the token of the holder, and
// lives as long as the lease:
//
//	SET name token NX PX milliseconds                                   acquire
//	if GET name == token then PEXPIRE name milliseconds (in a script)   renew
//	if GET name == token then DEL name (in a script)                    release
//
// This is "Correct implementation with a single instance" in [Distributed Locks with Redis]
// and the pattern of [SET]. Every program that follows it takes part: redsync with one
// pool, bsm/redislock, redis-py's Lock, node-redlock with one client, and many short
// scripts. Redisson does not: its locks are hashes, and we are refused with WRONGTYPE. Nor
// does anything that deletes the key without comparing.
//
// The key lives TTL/20 longer than the TTL, within 5 ms and half a second. So a holder here
// stops trusting its lease before anybody else can get it. Other programs need not do the
// same.
//
// One more key is written only if a token was given up while an ask of it might still
// arrive: holdfast:settled:{name} token, for a minute. Acquiring looks at it in the same
// script. Otherwise a straggler would take the lock with nobody to release it. Other
// programs need not know of it. It does not begin with the name of the lock, so an ACL must
// also allow the pattern holdfast:settled:*.
//
// On a Cluster the braces put both keys in one slot. A name with a closing brace but
// without a hash tag, such as "a}b" or "{}", cannot be put in braces. There such a name is
// refused with CROSSSLOT. While a slot moves to another node, Redis refuses scripts with
// two keys (TRYAGAIN), and nobody here can acquire until it has moved. A renewal has one
// key, and so has a release unless an ask went unanswered.
//
// # What it does not promise
//
// There is no queue: a waiter asks again after 50 to 150 ms, see [WithPoll], and nobody is woken. A
// program that polls faster, or locks again at once, gets the lock more often. There are no fences
// ([github.com/holdfast-go/holdfast/driver.Grant] has 0), no kinds but Mutex, and nothing
// to force. Inspect shows the token of the holder and the time left: the key has no more.
// List needs the right to SCAN, on all masters of a Cluster. Nothing tells a lock from another
// string, so it takes every string for one that begins with the prefixes of driver and call.
//
// Exclusion is as good as that of the other programs. If one that never sets a TTL crashes,
// it blocks all others for ever. One that deletes without comparing frees our lock. As with
// every lock on one Redis, a failover can lose the lock. Where all programs can use
// holdfast, use its own protocol instead.
//
// [Distributed Locks with Redis]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
// [SET]: https://redis.io/docs/latest/commands/set/
package setnx
