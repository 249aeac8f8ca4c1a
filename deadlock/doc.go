// Package deadlock finds locks that wait for each other in a circle, across processes, and ends
// the circle.
//
//	locks := holdfast.New(rdb)
//	locks.AddHook(deadlock.New(locks))
//
// One process holds a and waits for b, another one holds b and waits for a: both wait for ever.
// With the hook the one that began to wait last gets an [*Error] from its Lease or Do, which matches
// [holdfast.ErrDeadlock] and tells who waits for whom. The others go on once it has given back what
// it holds.
//
//	err := locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
//		return locks.Mutex("b").Do(ctx, move) // ctx knows that a is held
//	})
//
// # What it sees
//
// A hook sees the waiting of calls whose context comes from a lease: from [holdfast.Lease.Context],
// [holdfast.Lease.WithContext], the context that Do passes on, or that of [holdfast.All]. Lock and
// its like have no context, so they are invisible. All that wait must have the hook, and what they
// hold and want must be of the client that it was made for.
//
// It sees [holdfast.Mutex] and [holdfast.RWMutex]. Semaphores are left out: anybody can give a
// permit back, so who waits for one waits for nobody in particular. Leases made
// [holdfast.WithoutRenewal] are left out, too. They end by themselves, and with them the circle.
//
// The store must show what holders say of themselves: Redis, PostgreSQL, etcd and memory do, and
// redlock over Redis. On any other nothing is found, and the log says so once.
//
// # How it works
//
// After a pause, 1 s by default, a waiter notes beside each lock that it holds what it waits for.
// It renews the lease for that, and the note stands in the tag of the holder: [holdfast.Info] shows
// it, and so do holdfast inspect and ls. Then it follows the notes: who holds what I wait for, for
// what do these wait? It looks again every quarter of the pause at first, and later after an eighth
// of the time that it has waited for. Waits that are shorter than the pause cost nothing: no
// command, no allocation, no goroutine. Nor do those of contexts without leases.
//
// A lease has room for notes on about 20 locks, or on three with names of 200 bytes; those who wait for
// the same lock share a note. Where goroutines wait with one lease for more locks than that, the notes
// take turns, and a circle through one of them lasts longer: a few pauses with three times as many
// locks, minutes with ten times as many. A circle through a wait that has lasted for long ends after a
// quarter of that time or sooner.
//
// Each member sees the same waits, so all agree on who is the youngest, and only that one judges.
// Of equals it is the one with the larger random number. A circle needs all of its members to have
// renewed their notes since it was seen, see walk.go, so a note that has outlived its wait, or its
// process, makes no circle.
//
// A circle is told though some of its waits would have ended by themselves, such as with the
// deadline of their contexts. One report can come too late to be true: a goroutine waits with the
// context of a lease that
// another goroutine is about to release. There was a circle, but it would have opened by itself.
//
// The idea is that of databases, such as the deadlock_timeout of PostgreSQL; the walk is an
// edge-chasing in the AND model (Chandy, Misra, Haas: Distributed Deadlock Detection, ACM TOCS 1983)
// that reads a common store instead of sending messages.
package deadlock
