// Package etcddriver keeps locks in etcd, for locks whose loss would do damage: etcd does not
// forget what it has granted, whichever of its members fails, as long as a majority lives.
//
//	client, err := clientv3.New(clientv3.Config{
//		Endpoints:            []string{"a:2379", "b:2379", "c:2379"},
//		DialKeepAliveTime:    3 * time.Second,
//		DialKeepAliveTimeout: time.Second,
//	})
//	…
//	locks := holdfast.Open(etcddriver.New(client))
//
// It takes etcd 3.5.13 or later, or 3.4.31. In earlier ones a leader that was replaced can
// revoke leases that are alive ([etcd #15247]). It is tested with 3.7. With authentication the user needs the right
// to read and write all keys that begin with the prefix.
//
// # Protocol
//
// Each acquisition, known by its token, has a lease of etcd and a claim: a key attached to that
// lease.
//
//	holdfast/lock/<kind>/<name>/<limit>/<token>   a claim: who, shared or not, how much
//	holdfast/dead/<kind>/<name>/<token>           a token that was given up, for a minute
//	holdfast/forced/<kind>/<name>/<token>         one that ForceUnlock or Steal has ended, for a minute
//
// Nobody grants. The claims on a lock form a queue, ordered by the revisions that created them.
// Those hold the lock that came first, as many as fit within the limit: one for a [Mutex], a
// writer or any number of readers, permits of a [Semaphore]. A claim that holds the lock goes on
// to, since others only come behind it, leave, or become smaller. So a claim that disappears is
// all that a release, a crash and a hand-over consist of.
//
// An acquisition is one transaction, which makes the claim unless it exists or its token is dead,
// and reads all claims. A repeat finds the claim, with the same fence. A release is one
// transaction, which deletes the claim; the lease is kept for the next acquisition with that TTL.
// If an ask of the token may still be under way, the release first leaves a tombstone, and
// revokes the lease. A request that does not wait and cannot have the lock writes nothing.
//
// A driver keeps up to 64 leases without a claim, for half their TTL after their last use. Those
// that are left it revokes when it is closed; those of a process that dies end within their TTL.
//
// A claim that enters beside another of its owner, or takes over the hold of another token, has
// the place of that one in the queue. This happens in one transaction, which finds that the
// other is still there.
//
// A thief takes the place of the last holder, before all that wait, in one transaction that deletes
// the claims of the holders. It finds that none has come or changed since the thief looked, and that
// the last holder is still there. Its own tombstone is made with its claim, so it steals once.
//
// What a holder says of itself, such as a note of package deadlock or the traceparent of a sampled
// trace, stands in its claim. To write it is one more write, with the first renewal that says it.
//
// A waiter watches one claim: the last of those before it beside which it does not fit. When
// that claim has gone the waiter reads the queue once more, since others may be ahead still,
// and its own claim may have ended meanwhile. The mutex of etcd's package concurrency once left
// that out ([etcd #11456]). So a release is news for one waiter, or for all readers that it
// lets in. Only a small request for a semaphore must watch all claims. A watch begins with what comes
// next, and the waiter then looks whether the claim went before. (A watch from an earlier revision
// is served every 100 ms only, so the mutex of concurrency hands over some 20 times a second
// between two clients.) The heartbeat of a waiter finds what a broken watch has missed.
//
// The package concurrency has one lease for each session, and releases by the name of a key:
// a repeated release can end the next hold of that session ([etcd #22082]). Here each
// acquisition has a key of its own, and one lease never has two claims. A lease serves another
// acquisition only once all requests of the earlier one were answered: of the others one may
// arrive late, and finds its lease gone.
//
// # Trust
//
// The client counts its trust from before it sent a request; etcd counts the lease from when
// the leader carried the request out. So the lease lasts longer than the trust: up to a second
// by rounding up, half a second until the leader notices that it has expired, and one round of
// consensus. While there is no leader no lease ends, and a new leader gives each lease its
// whole TTL again, and the election timeout. So a lease can outlive a dead holder by the time
// of an election and another TTL.
//
// A lease that is granted is subject to consensus, but a renewal is not: the leader does it in
// memory. A leader that was paused, or cut off, could answer a renewal that its successor does
// not know of. Here a renewal counts only if a linearizable read that follows it has the same
// term: a majority then still followed that leader. If not, the renewal is repeated. The lease of
// an acquisition that had another claim before is renewed like that, beside the transaction.
//
// All renewals of a driver go over one stream, since a client with a password authenticates for
// each stream that it opens. Answers come in the order of the requests, so each proves its own
// request and no later one. A stream that is silent for a second is replaced. Between client and
// etcd there must be no etcd grpc-proxy: it answers renewals by itself, with what it has seen before.
//
// No clock is compared with another: neither the wall clocks of clients nor those of members
// matter to who holds a lock. All must advance at the same rate within 1 %.
//
// Two holders are possible only if etcd loses data: members that lose their disks, or a backup
// that is restored. Restore it with etcdutl snapshot restore --bump-revision --mark-compacted,
// so that fences increase.
//
// # Limits
//
//   - The TTL is at least 2 s, and is rounded up to a second. An etcd with a longer election
//     timeout has a longer least TTL, 3/2 of that timeout, and keeps leases for so long.
//   - A waiter that crashed can keep its place for its TTL and up to 2 s, instead of 2/3 TTL.
//   - A fence is the revision of the claim times 1,048,576. The numbers up to the next revision
//     are for the hands through which one hold passes, within a process or by Client.Attach.
//     The new fence of a reader, or of permits, that were attached to is larger than the old
//     one, but not than those of others that hold the lock at that time.
//   - Fences of etcd do not compare with those of Redis and PostgreSQL, which are times. If locks
//     move from one to another, what the guards remember must be removed: see docs/migration.md.
//   - Each cycle is two writes by consensus, and a third if the driver has no lease with that TTL.
//     Each waiter and each heartbeat reads the claims on the lock, some 250 bytes each. That is
//     for hundreds of processes on one lock.
//   - Inspect shows when a holder came, by the clock of its machine, and the time left in
//     whole seconds.
//
// These are refused, with an error that matches [errors.ErrUnsupported]: Semaphore.Resize, since
// the limit is that of the claims that are there; and WithReplicas, for which etcd has no need.
// Nor is the driver one for package redlock: it does not raise fences.
//
// [Mutex]: https://pkg.go.dev/github.com/holdfast-go/holdfast#Mutex
// [Semaphore]: https://pkg.go.dev/github.com/holdfast-go/holdfast#Semaphore
// [etcd #11456]: https://github.com/etcd-io/etcd/issues/11456
// [etcd #15247]: https://github.com/etcd-io/etcd/issues/15247
// [etcd #22082]: https://github.com/etcd-io/etcd/issues/22082
package etcddriver
