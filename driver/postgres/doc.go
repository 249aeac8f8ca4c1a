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
// releases a lock makes the first waiter the holder, and tells it with NOTIFY. All leases of a
// client are renewed together, up to 256 in one query.
//
// A grant and a renewal wait for the disk. Steps whose loss in a crash costs no more than time do
// not: to join the queue, to be refused, and to release a lock that nobody waits for, if
// it had less than a minute left.
//
// A client takes connections from the pool for as long as a query takes, and once it has had to
// wait keeps one more, of its own, to LISTEN. Give it a pool of its own of 2 to 8 connections. If
// it shares the pool with transactions that wait for locks, those can have all of it, and
// the holder has none to release with.
//
// PostgreSQL commits transactions with a NOTIFY one at a time, and rouses every listening session of
// the database for each. Some hundreds of clients that wait at the same time are fine, thousands are
// not. Like every queue in PostgreSQL it is slowed down by transactions that stay open for long:
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
// # Poolers
//
// No lock is tied to a session, so the pool may connect to a PgBouncer in any mode, with a
// [pgx.QueryExecMode] that it allows. LISTEN needs a session: in transaction mode give the driver a
// direct connection with [WithListenConfig], or waiters ask every 50 to 250 ms instead.
//
// # Fencing
//
// A transaction in the same database can do better than to compare fences. It begins with
//
//	SELECT holdfast.fenced('orders:42', 1789000000000000) -- the name, and Lease.Fence()
//
// or holdfast.fenced(name, fence, 'rwmutex') or 'semaphore'. That fails unless the lock is held
// with that fence, and from then on nobody else gets the lock until the transaction has ended,
// even if the lease ends before, or is taken by force. So a process that is paused between the
// check and the commit does no damage. Renewals are not held up by it. Others wait for it,
// so such a transaction should be short, and its holder should release the lock after it.
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
//     happen, and none is made without the news of it (7).
//   - A waiter whose client has gone is passed over: its listening session has ended, as
//     pg_stat_get_activity tells. That is asked only of sessions that have lately been heard (7).
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
// It is no [driver.Router], since one server keeps all locks. It is no [driver.Uptimer], which
// package redlock needs of its nodes. The error of a lock that is taken does not name the holder.
package pgdriver
