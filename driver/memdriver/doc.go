// Package memdriver keeps locks in memory, for the unit tests of programs that use
// holdfast:
//
//	store := memdriver.New()
//	web, worker := holdfast.Open(store), holdfast.Open(store)
//
// All clients of one store see the same locks, as processes with one Redis do. A client
// that is closed does not close the store for the others.
//
// It keeps the whole contract of package driver: all kinds of lock, the queue and its news,
// fences, owners, and all abilities on a lease. As the contract allows, it tells nobody of
// the end of a lease: a waiter finds out by asking. It starts no goroutine and counts time
// by [time.Now], so in a bubble of testing/synctest its leases end in virtual time. Fences
// count up from 1 over all locks of the store; a client may reserve several at a time.
//
// In a bubble, Close each client before the bubble ends, or it panics for the goroutines that
// are left. A Redis inside the process, such as miniredis, is no store for a bubble unless its
// connections stay inside, too.
//
// It cannot fail. No answer is late or lost, and nothing outlives the process. A test of what a
// program does in an outage wraps it, see the example.
//
// Its source is the contract of package driver in as few lines as we could find.
package memdriver
