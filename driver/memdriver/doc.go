// Package memdriver keeps locks in memory, for the unit tests of programs that use
// holdfast:
//
//	store := memdriver.New()
//	web, worker := holdfast.Open(store), holdfast.Open(store)
//
// All clients of one store see the same locks, as processes with one Redis do. A client
// that is closed does not close the store for the others.
//
// It keeps the whole contract of package driver: all kinds of lock, the queue and the news
// of it, fences, owners, and what can be done to a lease. That the end of a lease is told
// to nobody is part of that: who waits finds out by asking, as a client does. It starts no
// goroutine and counts time by [time.Now], so in a bubble of testing/synctest its leases
// end in virtual time. Fences count up from 1 over all locks of the store; a client may
// reserve several at a time.
//
// What it cannot do is fail. No answer is late or lost, and nothing outlives the process.
//
// It is also the contract in as few lines as we could find: read claim.go first.
package memdriver
