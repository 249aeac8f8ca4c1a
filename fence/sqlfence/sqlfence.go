// Package sqlfence has a database refuse what is written under a lease that is over: by
// PostgreSQL, MySQL, MariaDB or SQLite, with any driver of [database/sql], in one line.
//
//	db, err := sqlfence.Open("pgx", dsn, sqlfence.Postgres) // instead of sql.Open
//	err = sqlfence.Migrate(ctx, db, sqlfence.Postgres)      // once: makes the table holdfast_fence
//
//	err = mu.Do(ctx, func(ctx context.Context) error {
//		tx, err := db.BeginTx(ctx, nil) // fails with fence.ErrStale if another had the lock since
//		…
//		return tx.Commit()
//	})
//
// A transaction that is begun with a context that comes from a lease checks, as its first
// statement, whether the table has a larger fence of the lock. If so, the transaction is rolled
// back and the error matches [fence.ErrStale]. A fence that is not in the table yet is recorded
// before the transaction begins: once for a lease, in a short transaction of its own, and on
// the same connection. If ctx comes from several leases, each of them is checked. Statements
// without a lease in the context go to the driver as before.
//
// If the lease is known to be over, the database is not asked. A context that has ended is seen by
// database/sql, which returns context.Canceled from the methods of DB, Tx and Stmt; the cause of the
// context, [context.Cause], matches holdfast.ErrLost if the lease was lost. The methods of [database/sql.Conn] ask the
// guard first, and the error itself matches. So it does everywhere with a context that does not
// end, such as that of [context.WithoutCancel].
//
// # What it closes
//
// The transactions of one holder share the row with the fence until they end, and the next holder
// waits for all of them before it records its own. So transactions of different
// holders follow one another in the order of their fences: one that was paused in the middle
// either commits before the next holder's begins, or is refused. That holds at all levels of
// isolation; at the higher ones PostgreSQL may ask for the transaction to be repeated, as ever.
// The price is that the next holder waits for a transaction that is under way, even if its
// process is paused, as it does for a row that both change. Bound that wait with
// idle_in_transaction_session_timeout in PostgreSQL, innodb_lock_wait_timeout in MySQL, and
// the busy timeout in SQLite. In PostgreSQL it also waits for those that begin meanwhile: a
// program that does not know of its loss, and begins one before the last has ended, keeps it out.
//
// A holder does not wait for itself: it may write while it has rows open, beside a transaction, and
// from many goroutines, as without the guard. SQLite has one writer at a time, and a transaction
// with a lease is one from its beginning, unless it is read-only.
//
// Holders that share an RWMutex for reading do not wait for one another: their fences are
// compared with those of its writers only. The fence of a Semaphore is not checked. See package
// [fence].
//
// # What a commit says
//
// A commit that is sent is waited for, even if its context ends meanwhile, as when the process was stopped
// for longer than its lease:
//
//   - nil: it is committed, whether or not the lease has ended since. Do still returns an error that
//     matches holdfast.ErrLost then, as the lock was lost; keep the error of the commit if the
//     difference matters.
//   - an error that matches [ErrUnknown]: nobody can tell here, since the connection broke, or no answer came within
//     10 s of the end of the context. Look in the database before you repeat the work.
//   - any other error: it is not committed. If the lease is known to be over before the commit is sent, it is
//     rolled back instead; the error matches holdfast.ErrLost, or is that of the context.
//
// A transaction that was begun without a lease is committed by the driver as before.
//
// # What it cannot close
//
//   - A lease in the context of a statement, but not of its transaction, is checked before
//     that statement, each time. The transaction may have read before. If it is the first use of
//     the lease, its fence is recorded in that transaction, and until it ends all others wait,
//     other connections of the same holder included: so begin it with the lease.
//   - A read-only transaction is checked, but not recorded, and locks nothing.
//   - Transactions have to be begun with BeginTx. One that is begun by a statement of its own,
//     such as BEGIN, is not seen, and a statement with a lease in it breaks it up or fails.
//   - A statement that would end the transaction is refused once it has a lease, and the error
//     matches [errors.ErrUnsupported]: COMMIT, ROLLBACK, and in MySQL statements that commit
//     implicitly, such as CREATE TABLE. It is known by its first words. Statements of a procedure
//     are not seen, nor those after the first in one text, nor one within IF or CASE of MariaDB. In MySQL a
//     single statement of that kind, without a transaction, is checked just before; another holder
//     may come between.
//   - Where the database itself ends the transaction as a statement fails, as after a deadlock in
//     MySQL or an interrupt in SQLite, the next statement fails too, and nothing more is written.
//   - What must be the first statement of a transaction, such as SET TRANSACTION, comes too late
//     after the check. Use [sql.TxOptions].
//   - Of a prepared statement the execution is checked, not the preparation.
//   - What the driver connection does by itself, in [database/sql.Conn.Raw], is not checked.
//     Raw gets the connection of this package; [Unwrap] returns the driver's.
//
// # Single statements
//
// A statement outside of a transaction, a query included, since it may write, gets a
// transaction of its own: BEGIN, the check, the statement, COMMIT. Statements that cannot run in
// a transaction, such as VACUUM, need a context without a lease. While the rows of such
// a query are open its connection takes nothing else, which only a [database/sql.Conn]
// notices. The query is committed when its rows are closed, or rolled back if its context has
// ended before. Functions that tell of the statement before, such as ROW_COUNT() or changes(), tell
// of the check. In a transaction of one's own all of that costs only the check.
//
// A query that begins with SELECT only compares, as a shared row costs PostgreSQL a write. There the
// guard asks before the COMMIT whether the query wrote after all, by a function, and then
// checks again. A stale query of that kind fails when its rows are closed. Work that a function does
// in another database is not seen by that.
//
// # Table
//
// The user of the database needs the rights to SELECT, INSERT and UPDATE on holdfast_fence. It
// has a row for each lock that was used, and is never pruned. With the Redis driver fences are
// about microseconds since 1970, so old rows can be found by them and deleted. Without its row
// a lock refuses no holder until the next fence is recorded.
package sqlfence

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/internal/leasectx"
)

// ErrStale is [fence.ErrStale].
var ErrStale = fence.ErrStale

// Open is [sql.Open] with [WrapConnector].
func Open(driverName, dataSourceName string, d Dialect) (*sql.DB, error) {
	db, err := sql.Open(driverName, dataSourceName)
	if err != nil {
		return nil, err
	}
	under := db.Driver()
	if err := db.Close(); err != nil { // it has no connections
		return nil, err
	}
	c := driver.Connector(dsn{under, dataSourceName})
	if dc, ok := under.(driver.DriverContext); ok {
		if c, err = dc.OpenConnector(dataSourceName); err != nil {
			return nil, err
		}
	}
	return OpenDB(c, d), nil
}

// OpenDB is [sql.OpenDB] with [WrapConnector].
func OpenDB(c driver.Connector, d Dialect) *sql.DB { return sql.OpenDB(WrapConnector(c, d)) }

// WrapConnector returns a connector whose connections check fences, for [sql.OpenDB]. All that
// the connections of c can do, these can do, too. The driver of the connector stays that
// of c. Wrappers that measure or trace can be on either side; outside, they do not see the
// statements of the checks. It panics if d is no dialect.
func WrapConnector(c driver.Connector, d Dialect) driver.Connector {
	return connector{c, d.statements(), &records{}}
}

// Migrate makes the table holdfast_fence unless it exists. [Dialect.Schema] has the
// statement, for migrations of one's own.
func Migrate(ctx context.Context, db *sql.DB, d Dialect) error {
	ctx = leasectx.Exempt(ctx) // there is nothing to check yet
	_, err := db.ExecContext(ctx, d.Schema())
	if err != nil && ctx.Err() == nil {
		// PostgreSQL fails if two make it at a time, but not if it is there.
		_, err = db.ExecContext(ctx, d.Schema())
	}
	return err
}

// Check checks and records the fences of the leases that ctx comes from, as a transaction
// does that is begun with ctx, and does nothing else. It is for what is written elsewhere, and
// closes less than a guard there: another holder may come between the check and the write. The
// error matches [errors.ErrUnsupported] if db is not guarded by this package.
func Check(ctx context.Context, db *sql.DB) (err error) {
	c, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.Raw(func(dc any) error {
		if _, ok := dc.(guarded); !ok {
			return errUnguarded
		}
		return nil
	}); err != nil {
		return err
	}
	tx, err := c.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	return tx.Commit()
}

var errUnguarded = fmt.Errorf("sqlfence: the database is not guarded: %w", errors.ErrUnsupported)

// Unwrap returns the connection of the driver, if driverConn is one of this package, and else
// driverConn itself.
//
//	err := conn.Raw(func(dc any) error {
//		return copyInto(sqlfence.Unwrap(dc).(*stdlib.Conn).Conn())
//	})
func Unwrap(driverConn any) any {
	if g, ok := driverConn.(guarded); ok {
		return g.unwrap()
	}
	return driverConn
}

type connector struct {
	driver.Connector
	sql     *statements
	records *records
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	under, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return newConn(under, c.sql, c.records), nil
}

// Close is called by [sql.DB.Close].
func (c connector) Close() error {
	if closer, ok := c.Connector.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// dsn is the connector of a driver that has none.
type dsn struct {
	driver driver.Driver
	name   string
}

func (d dsn) Connect(context.Context) (driver.Conn, error) { return d.driver.Open(d.name) }
func (d dsn) Driver() driver.Driver                        { return d.driver }
