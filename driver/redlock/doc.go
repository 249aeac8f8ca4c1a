// Package redlock keeps locks on a majority of independent Redis servers. So a lock
// outlives the loss of any minority of them. [Distributed Locks with Redis] calls the
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
// the TTL ([WithTimeout]). It has the lock as soon as a majority grants it, and if there is
// validity left. Validity is the TTL, less the age of the oldest ask among these votes,
// less a margin for drift (TTL/100 + 2 ms). Otherwise the acquisition gives back what it
// has on every node, including nodes that did not answer, in the background if need be. An
// ask that is then still on its way takes nothing when it arrives, or is released again. Any two majorities have
// a node in common, and no node grants a lock to two. A renewal also needs a majority.
//
// A node that is down or frozen costs its timeout at most. While it owes an answer, it
// costs nothing, and gets no more than 64 calls. If its client has ContextTimeoutEnabled,
// calls end with the timeout; otherwise they end with the client's ReadTimeout.
//
// # Waiting
//
// Where the nodes have queues, a waiter queues on each of them. A release wakes the waiter:
// the nodes push their votes to it. Waiters that come at the same time can split the votes.
// Then all give way that do not have the vote of the first node. So the order of service is
// first come, first served as a rule, not always. Where the nodes have no queue, a waiter
// asks again at random times.
//
// Votes are split more often where each of the nodes that are left has to agree: if as many are away as can be, or if a client
// has watched the nodes for less than [WithDelayedRestart] says. 24 clients at three servers, with 1 ms of work
// each, had the lock 30 to 50 times a second then, and 400 times otherwise. Where calls give up sooner than a crowd
// can be served, nobody may get the lock while that lasts.
//
// # Fences
//
// Nodes have fences of their own, of which each reserves a range with its vote. A fence is
// handed out only when a majority has reserved it. If the ranges have no number in common,
// the largest of those that they begin with is written to a majority first, with one more
// request to each node. So fences increase from one holder to the next even if no two holders
// have the same majority. Readers that hold at the same time have different fences, but in no
// particular order. Nodes without fences (setnx), or without [FenceRaiser], make a lock without fences.
//
// Of the numbers in common, the fence is the first number of the first node, if a majority has it,
// else that of the next. Inspect goes by the same rule. A node that votes when the fence has been
// told is moved to it, or out of its way.
//
// Fences of redisdriver are the time of the server's clock in µs, and a range is the last
// millisecond at most, on the first node a quarter of it. So there is no second request as long
// as the clocks of a majority differ by less than that, unless nobody has used the lock for a
// minute.
//
// If nodes have failed meanwhile, a token can get a larger fence than before. That happens
// when another process repeats it, or another token of its owner joins it.
//
// # Restarts
//
// A server that restarts without having kept everything has forgotten its votes, and could
// help to elect a second holder. So the vote of a server counts only when it has been
// running for longer than the longest TTL ([WithDelayedRestart]). By then whatever it
// forgot has ended.
//
// Before a vote counts, the server is asked how long it has been running ([Uptimer]), if any
// connection was made since the last time. That is enough, for a server that restarts breaks all
// connections. So clients must be connected to the server itself, or through something that
// ends a connection when the server does. An ACL has to allow +info and +ping.
//
// The uptime that a server tells is the difference of two times of day. A server that has
// restarted says that it is old if its clock is set forward afterwards, as by NTP after a
// boot. So a client believes only two clocks that nobody sets. One is its own monotonic
// clock, from its first answer of this run of the server, as told by run_id. The other is
// the time that the server's main thread has spent on the processor, which redis-server
// tells on Linux. An idle server needs some hours to spend 30 s.
//
// A client that was just started has not watched any server for long. It takes the word of
// servers that say they are old, but supposes that a minority of all servers may be wrong.
// So as many of the votes of such servers do not count. Hence the client has a lock at once
// if all servers vote for it. If one of three does not, because it is down or was restarted
// itself, the client must first watch the others. That takes as long as WithDelayedRestart
// says. A program that tries once and ends never watches a server for that long. While one
// of three is down, it gets no lock before the others have spent that time on the
// processor.
//
// It does not matter why a server is young. When all are started together, nobody gets a
// lock for that long, 30 s by default. A restart of everything costs an outage, where it
// would otherwise cost a second holder. The delay does not help against data lost without a
// restart, such as by FLUSHALL, an eviction, or a virtual machine that is set back.
//
// # Other implementations
//
// Over nodes of driver/setnx, the format is that of redsync, node-redlock and the rest.
// Locks exclude each other if the nodes and the name (prefix) are the same, and the TTL on
// their side is no longer than WithDelayedRestart. They do not delay restarts.
//
// # What it promises, and what not
//
// There is at most one holder within its validity, even if any minority of the nodes stops,
// freezes, or loses its memory in a restart. It does not matter what their clocks show
// after that. The promise rests on clocks that advance at the same rate within 1 %, on all
// nodes and on the client. A server clock that is set forward ends leases early on that
// node. If their holders had no vote to spare, there can be second holders. Fences also
// increase over restarts without persistence if the clocks of nodes differ by less than the
// delay.
//
// A holder that is paused, by its garbage collector or the hypervisor, does not notice that
// its validity has passed. Nor does a write that is held up on its way. This is the subject
// of [How to do distributed locking]. [Is Redlock safe?] replies that the time is checked
// after the votes are in. So it is here, but no lock can do so after its work is done. Both
// agree that only the resource can refuse what comes late. If a second holder would do
// damage, let the resource compare the fence. Unlike Redlock there, redlock here has one.
//
// Semaphores are refused with [errors.ErrUnsupported]. Permits cannot be counted on each
// node separately: 3 nodes with 2 permits each have 6 votes, enough for 3 majorities of 2.
// [github.com/holdfast-go/holdfast/driver.Attacher] and
// [github.com/holdfast-go/holdfast/driver.Resizer] are refused, too. Two that attach at the
// same time might both get less than a majority.
//
// # Cost, and when to use it
//
// An acquisition is one request to each node, in parallel. That is one round trip, or two if
// the nodes have no fence in common. A hand-over to a waiter is a push, and then a round trip
// if they have none; renewal and release are one round trip. Acquisition and release wait for
// the first node, if it works, and as many others as make a majority. The next call on the lock
// waits for what they have left behind, node by node. They wait for all nodes that work if the
// fence depends on them, or if the holder had to wait, so that waiters keep their order.
//
// One server, with its data on disk, is simpler, faster and, with the fence, as safe; when
// it is down, that is an outage. A server with replicas can lose a grant in a failover.
// Redlock avoids both, with N servers that have nothing in common.
//
// [Distributed Locks with Redis]: https://redis.io/docs/latest/develop/use/patterns/distributed-locks/
// [How to do distributed locking]: https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html
// [Is Redlock safe?]: https://antirez.com/news/101
package redlock
