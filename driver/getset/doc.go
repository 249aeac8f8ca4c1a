// Package getset keeps mutexes in the form that Redis documented before it had SET with NX
// and PX (2.6.12). Many programs still use that form, most of them in Java. Use the driver
// to share a lock with such a program until that program can be changed:
//
//	locks := holdfast.Open(getset.New(rdb))
//
// # Format
//
// The key is the name of the lock as it is. It is a string, the decimal number of
// milliseconds since 1970 at which the lease ends:
//
//	SETNX name now+lease+1                    1: acquired
//	GET name                                  not yet past: busy
//	GETSET name now+lease+1                   the answer is what GET saw: acquired
//	DEL name, if the own lease is not past    release
//
// This is "Design pattern: Locking with SETNX" of [SETNX], there with seconds. Programs
// that write seconds, or anything behind the number, do not fit. A value that is not a
// decimal number is refused with WRONGTYPE. A value in seconds counts as long past.
//
// In this driver each of these steps is one script, by the clock of the server. GET and
// GETSET become one, so no process of ours is a late writer, see below. The release
// compares: it deletes only what this token wrote. Other programs cannot tell the
// difference.
//
// Two keys of our own stand beside the lock; other programs need not know of them.
// holdfast:getset:{name} says which token wrote which value, since the value is only a
// time, and two programs may write the same one. So a token is good in every process, and
// an ask whose answer was lost can be repeated. holdfast:settled:{name} token, for a
// minute, says that a token was given up while an ask of it might still arrive.
//
// An ACL must also allow the pattern holdfast:*. On a Cluster the braces put all keys in
// one slot. A name with a closing brace but without a hash tag, such as "a}b" or "{}",
// cannot be put in braces. There such a name is refused with CROSSSLOT. While a slot moves
// to another node, scripts with several keys may be refused (TRYAGAIN), including renewals.
//
// Each key that this driver writes has a TTL of a minute after the end of the lease, so that nothing
// stays in Redis. That TTL takes no part in the protocol, which has none. If the key went
// at the end of the lease, it could go between GET and GETSET of another program.
//
// # What it does not promise
//
// The old protocol has flaws that one side alone cannot mend. For users of this driver they
// mean:
//
//   - Clocks. The other programs compare the end of our lease with their own clocks. A
//     clock that is ahead by more than the grace takes the lock from us while we trust it:
//     two hold it. The grace is TTL/20, at least 5 ms and at most half a second, by which a
//     lease lasts longer than we trust it. A program whose clock is behind waits longer
//     than it must. In the same way we judge their leases by the clock of the server. Keep
//     all clocks together with NTP, and the TTL long against their differences. Our own
//     processes share one clock, the server's, and it must not be set forward.
//   - Late writers. Two other programs see that a lease is past, and one takes the lock.
//     The GETSET of the other, which loses, still overwrites the time. If the winner is
//     ours, its time has gone. We cannot tell a late writer from a new holder, and assume
//     the worse. At the next renewal the lease counts as lost ([driver.ErrNotHeld]). The
//     lock is free again when the late writer's time is past. That may be earlier than our
//     time if its leases are shorter. Then the lock may be given away while we still trust
//     it, so let all programs use leases of the same length.
//   - Slow deleters. A program looks at its clock, is held up beyond the end of its lease
//     and then deletes the lock of the next holder. If that holder is ours, a third may get
//     the lock at once, and we learn of it with the next renewal. Our own release never
//     deletes what is not ours, nor what is past.
//   - Nothing but exclusion. There is no queue: a waiter asks again after 50 to 150 ms.
//     There are no fences ([driver.Grant] has 0), no kinds but Mutex, and nothing to
//     force. Inspect shows the time left, and the token of a holder here; of another
//     program it shows the end of its lease, which is all that is there. List needs the right
//     to SCAN, on all masters of a Cluster, and takes each string of digits for a lock that
//     is a time to come.
//
// If the other programs can be changed, use driver/setnx, or the own protocol of holdfast.
//
// [SETNX]: https://redis.io/docs/latest/commands/setnx/
package getset
