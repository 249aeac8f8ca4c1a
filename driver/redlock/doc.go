// Package redlock keeps locks on a majority of independent Redis servers, so that a lock
// outlives the loss of any minority of them: [Distributed Locks with Redis] calls the
// algorithm Redlock.
//
//	locks := holdfast.Open(redlock.New([]driver.Driver{
//		redisdriver.New(a), redisdriver.New(b), redisdriver.New(c),
//	}))
//
// Each server is a master of its own: no replicas of each other, no failover. All the rest
// of holdfast is as with one server: waiting, renewal, fences, readers and writers.
//
// # Algorithm
//
// An acquisition asks all nodes at the same time, each with a timeout that is small against
// the TTL ([WithTimeout]). It has the lock if a majority grants it, and if there is validity
// left: the TTL, less the time since the ask that the oldest of these votes rests on, less a
// margin for drift (TTL/100 + 2 ms). If not, it gives back what it has on every node, also on
// those that did not answer, in the background if need be, and so that an ask that is still
// on its way takes nothing when it arrives. Any two majorities have a node in common, and no
// node grants a lock to two. A renewal needs a majority, too.
//
// A node that is down, or frozen, costs its timeout at most, and while it owes an answer
// not even that. It gets no more than 64 calls then. If its client has ContextTimeoutEnabled,
// calls end with the timeout; else with the client's ReadTimeout.
//
// # Waiting
//
// Where the nodes have queues, a waiter queues on each of them, and a release wakes it: the
// nodes push their votes to it. Waiters that come at the same time can split the votes. Then
// those give way who do not have the vote of the first node; see wait.go. So the order of
// service is first come, first served as a rule, not always. Where the nodes have no queue,
// a waiter asks again at random times.
//
// # Fences
//
// Nodes have fences of their own. The largest of the majority is written to a majority, with
// one more request to each, before it is handed out; see fence.go for why they increase from
// one holder to the next even if no two have the same majority. Readers that hold at the
// same time have different fences, but in no particular order. Nodes without fences (setnx)
// make a lock without fences. A token that is repeated by another process, or joined by
// another of its owner, can get a larger fence than before if nodes have failed meanwhile.
//
// # Restarts
//
// A server that restarts without having kept everything has forgotten whom it voted for, and
// could help to elect a second holder. So the vote of a server counts only when it has been
// running for longer than the longest TTL ([WithDelayedRestart]): by then whatever it forgot
// has ended. Before a vote counts the server is asked how long it has been running, if any
// connection was made since it was asked last: a server that restarts breaks all it had. So
// clients must be connected to the server itself, or through something that ends a
// connection when the server does. An ACL has to allow +info and +ping.
//
// The uptime that a server tells is the difference of two times of day. A server that has
// restarted says that it is old if its clock is set forward afterwards, as by NTP after a
// boot. So a client believes only two clocks that nobody sets: its own monotonic clock, from
// the time when it first had an answer of this run of the server, as told by run_id; and the
// time that the server's main thread has spent on the processor, which redis-server tells on
// Linux. An idle one needs some hours to spend 30 s.
//
// A client that was just started has seen no server for long. It takes the word of those that
// say they are old, but supposes that a minority of all servers may be wrong: of the votes of
// such servers, as many do not count. So it has a lock at once if all servers vote for it.
// If one of three does not, because it is down or was restarted itself, the client has to
// see the others for as long as WithDelayedRestart says. A program that tries once and ends
// never sees a server for that long: while one of three is down, it gets no lock before the
// others have spent that time on the processor.
//
// It does not matter why a server is young. So when all are started together, nobody gets
// a lock for that long, 30 s by default: a restart of everything costs an outage, where it
// would else cost a second holder. It also does not help against data lost without a
// restart, such as by FLUSHALL, an eviction, or a virtual machine that is set back.
//
// # Other implementations
//
// Over nodes of driver/setnx, the format is that of redsync, node-redlock and the rest, and
// locks exclude each other: with the same nodes, the same name (prefix), and a TTL on their side
// that is no longer than WithDelayedRestart. They do not delay restarts.
//
// # What it promises, and what not
//
// There is at most one holder within its validity, though any minority of the nodes stops,
// freezes, or loses its memory in a restart, whatever their clocks show after that. It rests
// on clocks that advance at the same rate within 1 %, on all nodes and on the client. A server
// clock that is set forward ends leases early on that node: if their holders had no vote to
// spare, there can be second ones. Fences increase over restarts without persistence if,
// besides, clocks of nodes differ by less than the delay.
//
// A holder that is paused, by its garbage collector or the hypervisor, does not notice that
// its validity has passed; nor does a write that is held up on its way. This is what [How to
// do distributed locking] is about. [Is Redlock safe?] replies that the time is looked at after
// the votes are in, and so it is here, but no lock can do so after its work is done. Both
// agree that only the resource can refuse what comes late. If a second holder would do
// damage, let it compare the fence: that is what redlock has one for here, unlike there.
//
// Semaphores are refused with [errors.ErrUnsupported]. Permits cannot be counted on each node
// apart: 3 nodes with 2 permits each have 6 votes, enough for 3 majorities of 2. So are
// [github.com/holdfast-go/holdfast/driver.Attacher], as two that attach at the same
// time might both get less than a majority, and
// [github.com/holdfast-go/holdfast/driver.Resizer].
//
// # Cost, and when to use it
//
// An acquisition is one request to each node for the lock and one for the fence, both in
// parallel: two round trips to the slowest node that works. A hand-over to a waiter is a push
// and one round trip; renewal and release are one round trip.
//
// One server, with its data on disk, is simpler, faster and, with the fence, as safe; it is
// an outage when it is down. A server with replicas can lose a grant in a failover. Redlock
// is for those who want neither: N servers that have nothing in common.
//
// [Distributed Locks with Redis]: https://redis.io/docs/latest/develop/use/patterns/distributed-locks/
// [How to do distributed locking]: https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html
// [Is Redlock safe?]: https://antirez.com/news/101
package redlock
