// Package local is what a client knows of its locks: which goroutines of this process want a lock, and which
// of them hold it. It passes a lock from one to the next without the store.
//
// Goroutines that want one lock form a [lane], a cohort. Only its first goroutine is at the store (Dice, Marathe,
// Shavit: Lock Cohorting, PPoPP 2012). A [Grant] of the store passes from hand to hand for a [turn]. Then
// other processes get their turn. All that the store is told, and all that it tells, is about a grant. A [Hold] is
// what a caller has by it; callers that nobody can tell apart have one together.
//
// # From Lock to the store and back
//
// Mutex.Lock calls [Registry.Acquire]. There a goroutine first waits in its lane (waitTurn). Then it either
// has a grant that has passed to it, or it must go to the store with one that nobody has yet. The [token.Token]
// of that calls [driver.Driver.Acquire]. When the store has granted the lock, firstHold makes a hold and gives the
// grant to the Keeper, which renews it. The hold stays with the lock (keep).
//
// Unlock finds it there (TakeBack). If a goroutine waits that may go on with the grant, it gets it at once
// (passOn), as it does from a lease (leave). Else the hold ends, and the grant lingers, or is released at the
// store. Meanwhile Lock.next sends the first waiter to the store as soon as it can be foreseen that the grant
// will not do for it.
//
// A lost lease ends in [Grant.Lost]. The Keeper calls it, or the driver's Wake, or the first
// call that sees it by the clock (Hold.Err) or hears it from the store. Grant.Lost ends the
// holds, and so the contexts of the leases.
//
// # Locking
//
// All that is known of one lock name, and one owner, stands in one Lock, under one mutex. The order of all
// mutexes is
//
//	driver's own -> Lock.mu -> Token's, Keeper's, Registry.mu, those of the contexts
//	a Complaint's -> that of the session's outages
//
// No call of a driver, of a hook or of the user's is made under any of ours, nor of a method of their errors.
package local
