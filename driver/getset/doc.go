// Package getset keeps mutexes in the form that Redis documented before it had SET with
// NX and PX (2.6.12), and that is still found in many a code base, most of them in Java.
// It is for sharing a lock with such a program until that can be changed:
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
// that write seconds, or anything behind the number, do not fit: a value that is not a
// decimal number is refused with WRONGTYPE, and one in seconds counts as long past.
//
// Here each of these steps is one script, by the clock of the server. GET and GETSET
// become one, so none of ours is a late writer (see below), and the release compares:
// it deletes only what this token wrote. Others cannot tell the difference.
//
// Two keys of our own stand beside the lock, of which nobody else needs to know:
// holdfast:getset:{name} says which token wrote which value, since the value is only a time,
// and two programs may write the same one. So a token is good in every process, and an
// answer that was lost can be asked for again. holdfast:settled:{name} token, for a
// minute, says that a token was given up while an ask of it might still arrive. An ACL
// must allow the pattern holdfast:*, too. On a Cluster the braces put all keys in one
// slot; a name with a closing brace but without a hash tag, such as "a}b" or "{}", cannot
// be put in braces and is refused there with CROSSSLOT. While a slot moves to another
// node, scripts with several keys may be refused (TRYAGAIN), renewals among them.
//
// What we write has a TTL of a minute after the end of the lease, so that nothing stays in
// Redis. It does not take part in the protocol, which has none: a key that went at the end
// of the lease could go between GET and GETSET of another.
//
// # What it does not promise
//
// The old protocol has flaws that one side alone cannot mend. What they mean for who
// uses this driver:
//
//   - Clocks. The others compare the end of our lease with their own clocks. One that is
//     ahead by more than TTL/20 (at least 5 ms, at most half a second, by which a lease
//     lasts longer than we trust it) takes the lock from us while we trust it: two hold
//     it. One that is behind waits longer than it must. In the same way we judge their
//     leases by the clock of the server. Keep all clocks together with NTP, and the TTL
//     long against what they differ. Among our own processes there is but one clock, and it
//     must not be set forward.
//   - Late writers. Two others see that a lease is past; one takes the lock, and the
//     GETSET of the other, who loses, still overwrites the time. If the winner is ours,
//     its time has gone. We cannot tell a late writer from a new holder and believe the
//     worse: the lease counts as lost ([driver.ErrNotHeld]) at the next renewal, and the
//     lock is free again when the late writer's time is past. If that is earlier than
//     ours, because its leases are shorter, it may be given away while we still trust it,
//     so let all programs use leases of the same length.
//   - Slow deleters. One that looks at its clock, is held up beyond the end of its lease
//     and then deletes, deletes the lock of the next holder. If that is ours, a third may
//     get it at once, and we learn of it with the next renewal. Our own release never
//     deletes what is not ours, nor what is past.
//   - Nothing else than exclusion: no queue (who waits asks again after 50 to 150 ms), no
//     fences ([driver.Grant] has 0), no other kinds than Mutex, nothing to inspect or force.
//
// If the others can be changed, go to driver/setnx, or to the own protocol of holdfast.
//
// [SETNX]: https://redis.io/docs/latest/commands/setnx/
package getset
