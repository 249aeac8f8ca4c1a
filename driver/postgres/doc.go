// Package pgdriver keeps locks in PostgreSQL 14 or later, behind the same face as on Redis:
//
//	err := pgdriver.Migrate(ctx, pool) // once, where your tables are migrated
//	locks := holdfast.Open(pgdriver.New(pool))
//
// It has all kinds of lock. The abilities of the Redis driver that it lacks are named at the end.
//
// # When to choose it
//
// Choose it where two holders would do damage, or where there is a PostgreSQL and no Redis.
// A lock that was granted is on disk, and with synchronous replication on a standby, before its
// holder hears of it: a crash or a failover loses no lock. And a transaction in the same
// database can count on a lock until its commit, see Fencing. Choose Redis for speed: it is 5 to
// 20 times faster, see the README, and many clients that wait cost it less.
//
// # What it costs
//
// To acquire a lock that is free is one query, and so is to release it. A waiter is one query
// when it comes, one each third of its TTL, and none when it is served: the transaction that
// releases a lock makes the first waiter the holder, and tells it with NOTIFY. With synchronous
// replication it is one when it is served, see there. All leases of a client are renewed
// together, up to 256 in one query.
//
// A grant and a renewal wait for the disk. Steps whose loss in a crash costs no more than time do
// not: to join the queue, to be refused, and to release a lock that nobody waits for, if
// it had less than a minute left.
//
// A client makes connections as the pool does that it is given, at most as many, and once it has
// had to wait one more, to LISTEN. It takes none of that pool, where transactions that wait for a
// lock could have all of them while its holder has none to release it with. 2 to 8 are enough.
//
// PostgreSQL commits transactions with a NOTIFY one at a time, and rouses every listening session of
// the database for each. A hand-over is one, and so is a first wait; to go on waiting is none. Some
// hundreds of clients that wait at the same time are fine, thousands are not. Like every queue in PostgreSQL it is slowed down by transactions that stay open for long:
// dead rows pile up until they end.
//
// # The schema
//
// [Migrate] makes the schema holdfast: one row of holdfast.lock for each lock, one row of
// holdfast.claim for each holder and waiter, and a function for each operation. A program needs
// these rights, here for a user called app:
//
//	GRANT USAGE ON SCHEMA holdfast TO app;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO app;
//	GRANT USAGE ON ALL SEQUENCES IN SCHEMA holdfast TO app;
//
// To look at a lock, SELECT * FROM holdfast.inspect('mutex', 'orders:42'). Within some five minutes
// of its last use a lock leaves nothing there, as long as any client is open.
//
// Connections must have the isolation level READ COMMITTED, which is the default of
// PostgreSQL, for statements outside of a transaction; others are refused. With
// synchronous_commit = off a crash can lose locks, and then there are two holders.
//
// # Synchronous replication
//
// Where synchronous_standby_names is set, a failover to such a standby makes no second holder:
// nothing is trusted before a standby has confirmed it. That holds even if the wait for the
// standby is cancelled, by pg_cancel_backend or otherwise. PostgreSQL then goes on with a
// warning. The driver hears the warning, and does not believe the answer. A waiter that is served
// asks once more, and so has a commit of its own to rely on. While no standby answers there are
// no grants and no renewals: leases are lost when their TTL is over.
//
// It does not hold for sessions with synchronous_commit = local or off, nor for a standby that is
// not among those names. Of several that are, promote one that all commits waited for: with
// FIRST 1 (a, b) or ANY 1 (a, b) another may lack the last grants, unless it is the one that is
// furthest ahead of all. To empty synchronous_standby_names ends the waits as if a standby had
// confirmed, so no standby from before may be promoted after that. With remote_write a standby whose
// machine crashes may forget.
//
// # A server that does not answer
//
// A call is given up after a third of the TTL, at least 0.5 s and at most 3 s. Its connection is
// kept if the answer still comes within 3 s of the call, and else closed; those that were idle
// meanwhile are tried before they are used. List may take a minute. To connect may take 3 s, unless connect_timeout says otherwise. So if the host of the server dies
// without a word, and its successor answers at the same address, a lease of 10 s is not lost. A
// LISTEN connection that is silent is found within 12 s; heartbeats do its work until then.
//
// For the server to notice a client whose host has died, and free what that one's transactions have
// locked, set tcp_user_timeout = 10s there, or tcp_keepalives_idle and its kin.
//
// # News that is refused
//
// PostgreSQL undoes a transaction whose NOTIFY it refuses: that of a user without the right to
// pg_notify, and every one while its queue of notifications is full, because a session that listens,
// of whatever program, stays in a transaction. Locks go on then. The driver makes the call
// again without news, and sends none for 5 s. A client that waits looks every 5 s how full
// the queue is, and while it is full asks every 50 to 250 ms. What is refused for another reason
// shows in no such look, so a hand-over is found by a heartbeat, after a third of the TTL at most.
//
// A full queue is not shortened when its cause has gone, but when somebody asks for
// pg_notification_queue_usage, as the driver does. In a schema older than version 7 the call fails,
// with an error that passes.
//
// # Poolers
//
// No lock is tied to a session, so the pool may connect to a PgBouncer in any mode. If prepared
// statements are lost on the way, as in transaction mode, the driver does without them from then
// on. LISTEN needs a session: in transaction mode give the driver a direct connection with
// [WithListenConfig], or waiters ask every 50 to 250 ms instead. The driver finds such a pooler
// by comparing backends, and sends it no LISTEN. In session mode keep
// server_reset_query = DISCARD ALL, the default: it shows that a waiter has gone. There each client
// connection keeps one of the server, so default_pool_size must be enough for all pools and one
// listener of each process: where the listeners have all, the calls get no answer.
//
// # Fencing
//
// A transaction in the same database can do better than to compare fences. It begins with
//
//	SELECT holdfast.fenced('orders:42', 1789000000000000) -- the name, and Lease.Fence()
//
// or holdfast.fenced(name, fence, 'rwmutex') or 'semaphore'. That fails unless the lock is held
// with that fence, and from then on nobody else gets the lock until the transaction has ended,
// even if the lease ends before, or is taken by force. Attach and Downgrade are retried until then.
// So a process that is paused between the check and the commit does no damage. Renewals are not
// held up by it. Others wait for it, so such a transaction should be short. Its holder must release
// the lock after it: within one client a released lock passes on without a word to the database.
//
// # Why a grant can be trusted
//
// The rules are those of package redisdriver, by the same numbers. These are the differences:
//
//   - Serial: each function begins with SELECT ... FOR UPDATE on the row of the lock, and reads the
//     clock once the row is its own. So a lease begins after the ask that it rests on was sent,
//     however long that had to wait (1, 2, 3).
//   - A reply that is lost after the commit: the next ask of the token finds its claim, and is
//     told the same grant. A function that fails has done nothing (5).
//   - Tombstones and places are rows of their own. A place is never used again, so a waiter that
//     was dropped returns to it (5, 10).
//   - A push: NOTIFY is sent when the transaction commits. Nobody hears of a grant that did not
//     happen, and none is made without the news of it (7). With synchronous replication the news
//     is to ask.
//   - A waiter whose client has gone is passed over: its listening session has ended, and
//     with it an advisory lock. That is asked only of sessions that have lately been heard (7).
//   - Fences are the server's time in µs, as on Redis, and the last one is in the row of the lock,
//     which stays for at least a minute after that (12).
//   - Failover: with synchronous replication the standby knows every grant; its clock takes over,
//     and must not be ahead of that of the primary by more than the grace. With
//     asynchronous replication a failover can lose grants, as on Redis.
//
// # What it lacks
//
// It is no [driver.Confirmer], so WithReplicas is refused: use synchronous_standby_names, which
// makes every commit wait for standbys. It is no [driver.Batcher], so WithPipelining does nothing.
// It is no [driver.Router], since one server keeps all locks. It cannot say for how
// long it has been running, which package redlock needs of its nodes.
package pgdriver
