// Package zkdriver keeps locks in ZooKeeper, for locks whose loss would do damage: ZooKeeper does
// not forget what it has granted, whichever of its members fails, as long as a majority lives.
//
//	store := zkdriver.New([]string{"a:2181", "b:2181", "c:2181"})
//	locks := holdfast.Open(store)
//
// It takes ZooKeeper 3.5 or later, and is tested with 3.8. All members must have the same
// minSessionTimeout and maxSessionTimeout. With [WithAuth] the user needs the right to create nodes
// at the prefix, or above it as long as nobody has.
//
// # Protocol
//
// Each acquisition, known by its token, has a claim: an ephemeral sequential node.
//
//	/holdfast/lock/<kind>/<name>/c,<x or s>,<weight>,<limit>,<place>,<token>,<owner>,<number>
//	/holdfast/dead/<kind>,<name>,<token>     a token that was given up, for a minute
//	/holdfast/forced/<kind>,<name>,<token>   one that ForceUnlock has ended, for a minute
//
// Nobody grants. The claims on a lock form a queue, ordered by the numbers that ZooKeeper gives
// them. Those hold the lock that came first, as many as fit within the limit: one for a [Mutex], a
// writer or any number of readers, permits of a [Semaphore]. A claim that holds the lock goes on
// to, since others only come behind it, leave, or become smaller. So a claim that disappears is
// all that a release, a crash and a hand-over consist of. A reader of the queue may be told of an
// old one; it shows too many claims ahead, never too few.
//
// An acquisition is one write, which makes the claim, and three reads: of the names of all claims,
// of the own one, and of the tombstone that it may have. If the answer to the write is lost, the
// claim is found by the token in its name, and if there should be two the later one goes. A release
// is one write. If an ask of the token may still be under way, the release first leaves a tombstone.
// A request that does not wait and cannot have the lock writes nothing, and asks the leader before
// it says so.
//
// A claim that enters beside another of its owner does so in one step with the check that the other
// is there. One that takes over the hold of another token, becomes smaller, or moves to a session
// that lasts longer, is made anew, with the place of the old one, in one step with the end of that.
//
// The limit of a semaphore is what the node of the lock says. That node can be replaced only while
// it is empty. So claims that see each other have one limit in common. The node of a lock goes by
// itself, a minute or two after the last claim, for it is a container.
//
// A waiter watches one claim: the last of those before it beside which it does not fit. When
// that claim has gone the waiter reads the queue once more, since others may be ahead still,
// and its own claim may have ended meanwhile. So a release is news for one waiter, or for all
// readers that it lets in. Only a small request for a semaphore, and one with an owner, must watch
// all claims. The heartbeat of a waiter finds what a broken watch has missed.
//
// # Trust
//
// The lease of a claim is the session that made it. All claims of a driver with one TTL share a
// session, so ten thousand leases are one connection, and are renewed by one request. The timeout
// of a session is a second longer than the TTL. Whoever holds a lock trusts it by its own clock, for
// the TTL from before it sent the request, less a margin. So the session must last for the TTL from
// when the request was sent, at least.
//
// That a server answers does not show this. The leader alone counts how long a session lasts, and
// does not count anew when a request comes through another member. That member tells the leader
// whom it has heard of, when the leader asks it, twice a tick. A member that is cut off answers reads
// and pings for another syncLimit ticks, 10 s by default, while the leader lets the session end
// after 4 s. A write shows that the session was there, not how long it still has. (Wrong version: to
// count from when the last ping was sent, as a client does that only looks at the state of its
// connection. Such a client and the next holder believe that they hold the lock at the same time.)
//
// So a session is renewed by a handshake, once within the second that it lasts longer than the TTL,
// and only when something is asked for. The driver gives its connection up and makes another one,
// which takes 1 ms or 2. It waits for answers that are due, but for no more than 100 ms: what is not
// answered by then is asked again on the new connection. The member that this one leads to asks the
// leader whether the session is alive; with that the leader counts anew, before it answers. Then a
// write follows on that connection, or the renewal does not count: only a leader with a majority
// carries it out. If the member had got another leader in between, it would have dropped the
// connection. Whatever happens:
//
//   - A leader that was paused, or cut off, and replaced, may count anew in vain. It carries out no
//     write then. A member that follows it carries out none either.
//   - A leader that is elected later gives each session its whole timeout. It has a majority, and
//     at least one of that has seen the write, after the handshake began.
//   - A session that moves to another member does so by a handshake. A request that the earlier
//     member passes on later is refused, so no straggler of it makes a claim.
//   - A client that is paused trusts by a clock that goes on, from a time before the handshake. A
//     request of it that arrives late finds the session gone.
//   - A member that keeps sessions less long than the one before would shorten the session. Then the
//     driver takes the session for lost.
//   - A client that lives does not keep the claims of holders that have stopped renewing: their
//     session would. So the driver ends a claim itself, once its TTL has passed without a renewal.
//
// While there is no leader no session ends. So a lease can outlive a dead holder by the time of an
// election and another TTL.
//
// No clock is compared with another: neither the wall clocks of clients nor those of members
// matter to who holds a lock. All must advance at the same rate within 1 %.
//
// Two holders are possible only if ZooKeeper loses data: members that lose their disks, or a backup
// that is restored.
//
// # Limits
//
//   - The TTL is at least 2 s, and at most a second less than maxSessionTimeout, which is 40 s by
//     default. Longer ones are refused. A session lasts for minSessionTimeout at least, 4 s by
//     default; so does the lease of a client that has died.
//   - A lease of a client that has died lasts for its TTL and up to 4 s, from its death.
//   - A waiter that crashed can keep its place for that long, instead of 2/3 TTL.
//   - A fence is the number of the change that made the claim, its czxid, times 4096. The numbers up
//     to the next change are for the hands through which one hold passes, within a process or by
//     Client.Attach. The new fence of a reader, or of permits, that were attached to is larger than
//     the old one, but not than those of others that hold the lock at that time.
//   - Fences of ZooKeeper do not compare with those of other stores. If locks move from one to
//     another, what the guards remember must be removed: see docs/migration.md.
//   - Each waiter and each heartbeat reads the names of the claims on the lock, some 100 bytes each.
//     That is for hundreds of processes on one lock.
//   - Inspect shows when a holder came, by the clock of its machine. ZooKeeper tells nobody how long
//     a session still has, so the time left is always the whole TTL.
//   - A call fails, with the cause, once all servers were tried in vain: one a second, after the first
//     round. TryLease makes three attempts, so where connections are refused it takes some 2 s.
//   - [Driver.Close] leaves what is still held to the end of its session, as a crash does.
//
// These are refused, with an error that matches [errors.ErrUnsupported]: Semaphore.Resize, since
// the limit is that of the claims that are there; and WithReplicas, for which ZooKeeper has no need.
// Nor is the driver one for package redlock: it does not raise fences.
//
// [Mutex]: https://pkg.go.dev/github.com/holdfast-go/holdfast#Mutex
// [Semaphore]: https://pkg.go.dev/github.com/holdfast-go/holdfast#Semaphore
package zkdriver
