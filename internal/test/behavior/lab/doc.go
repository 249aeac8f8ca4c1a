// Package lab has what the tests of the library's behaviour are made with.
//
//   - A [Lab] is a server, a link to it that may fail, and clients on both ends of it.
//     [Everywhere] runs a test in one over miniredis, over a real Redis and in virtual
//     time. A call that waits for a lock is a [Pending].
//   - An [Arena] is where processes compete that can be suspended and killed. Each is a
//     [Contender], which carries out an [Order] and answers with a [Report].
//   - A [Play] is a store whose answers the test gives one by one, a [Puppet] one that
//     the test moves, and [Instant] one that grants everything.
//
// The servers and their faults are those of internal/test/redistest, the processes a crew of
// internal/test/crew. Package internal/test/referee judges who was inside of what a lock guards.
package lab
