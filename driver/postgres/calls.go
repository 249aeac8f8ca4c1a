package pgdriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A call may take a third of the TTL that it is about, so that a lease survives one that is not
// answered. These are the bounds of that. The longer one is also for calls about no TTL, and for
// a connection.
const (
	leastTime = 500 * time.Millisecond
	mostTime  = 3 * time.Second
)

func timeFor(ttl time.Duration) time.Duration {
	if ttl == 0 {
		return mostTime
	}
	return min(max(ttl/3, leastTime), mostTime)
}

// callers makes the pool through which the driver calls: with the configuration of the given
// one, and connections of its own. On those of the program it could neither hear notices nor
// give up what has fallen silent. And transactions of the program that wait for a lock could
// have all of them, while its holder has none to release it with.
func (d *Driver) callers(pool *pgxpool.Pool) *pgxpool.Pool {
	c := pool.Config()
	c.MinConns, c.MinIdleConns = 0, 0
	if c.PingTimeout == 0 {
		c.PingTimeout = leastTime
	}
	beforeClose, onNotice := c.BeforeClose, c.ConnConfig.OnNotice
	c.BeforeClose = func(conn *pgx.Conn) {
		if beforeClose != nil {
			beforeClose(conn)
		}
		if conn.IsClosed() { // It was broken, or silent. pgx would wait up to 15 s for its end.
			d.pool.Reset() // It is not the only one, if its server has gone.
			// A PgBouncer cancels what the connection waits for only while that is there. Otherwise
			// its backend waits on, for a lock perhaps, beside those that the pooler knows of.
			select {
			case <-conn.PgConn().CleanupDone():
			case <-time.After(leastTime):
			}
			_ = conn.PgConn().Conn().Close()
		}
	}
	c.ConnConfig.OnNotice = func(conn *pgconn.PgConn, n *pgconn.Notice) {
		if n.Routine == "SyncRepWaitForLSN" { // The text depends on the language.
			conn.CustomData()[unconfirmed] = true
		}
		if onNotice != nil {
			onNotice(conn, n)
		}
	}
	// Others may leave a call without an end.
	c.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: conn.Conn()}
	}
	hasten(c.ConnConfig)
	own, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		panic("pgdriver: " + err.Error()) // It was good enough for the pool that we were given.
	}
	return own
}

// hasten bounds the making of a connection, which by itself takes minutes where nobody answers.
func hasten(c *pgx.ConnConfig) {
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = mostTime
	}
	dial, timeout := c.DialFunc, c.ConnectTimeout
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout) // also of the one that cancels a query
		defer cancel()
		return dial(ctx, network, addr)
	}
}

// unconfirmed marks a connection on which a commit did not wait for the standby to the end.
const unconfirmed = "holdfast: unconfirmed"

var errUnconfirmed = errors.New("the commit was not confirmed by a synchronous standby, since its wait was cancelled")

// call calls a function that is about a TTL, 0 for none, and scans the row that it returns.
//
// Whatever a client trusts rests on the answer to such a call, and never on news alone. With
// synchronous replication that is why a failover makes no second holder:
//
//   - An answer is believed when the server is ready for the next query: the transaction has
//     committed, and the standby has confirmed it. With it the standby has all that the
//     transaction saw, since that was written before.
//   - Anybody can end that wait: the context of a call (pgx sends a cancel request), an operator
//     with pg_cancel_backend. Then the server goes on as if the standby had confirmed it. It
//     only warns this client, whose answer is not believed. Others see what no standby has;
//     but their answers come with commits of their own.
//   - pg_terminate_backend, or a crash of the server, ends the connection before the answer.
//   - News needs no such wait, and its sender may not have had one. So where there are
//     synchronous standbys a waiter is not told that the lock is granted, but to ask.
//
// The wrong version only kept the contexts of callers from cancelling the calls. It did not help
// against operators, poolers and servers that shut down.
//
// A call that has begun does not end with ctx: nobody waits for it any more, but a connection
// that is given up is one to be made again. It ends when its time is over. That cancels it at
// the server, so that calls which wait for a standby do not pile up there.
func (d *Driver) call(ctx context.Context, ttl time.Duration, into []any, sql string, args ...any) error {
	return d.query(ctx, timeFor(ttl), func(ctx context.Context, conn *pgx.Conn, mode pgx.QueryExecMode) error {
		return conn.QueryRow(ctx, sql, append([]any{mode}, args...)...).Scan(into...)
	})
}

// rows calls row with each row that a query returns, scanned.
func (d *Driver) rows(ctx context.Context, limit time.Duration, into []any, row func() error, sql string, args ...any) error {
	return d.query(ctx, limit, func(ctx context.Context, conn *pgx.Conn, mode pgx.QueryExecMode) error {
		rows, err := conn.Query(ctx, sql, append([]any{mode}, args...)...)
		if err != nil {
			return err
		}
		_, err = pgx.ForEachRow(rows, into, row)
		return err
	})
}

// query has f use a connection, for no longer than limit.
func (d *Driver) query(ctx context.Context, limit time.Duration, f func(context.Context, *pgx.Conn, pgx.QueryExecMode) error) error {
	conn, err := d.connection(ctx)
	if err != nil {
		return unsent(err)
	}
	defer conn.Release()
	bounded, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	err = f(bounded, conn.Conn(), pgx.QueryExecMode(d.mode.Load()))
	if unprepared(err) {
		// A pooler has sent the statement to another session than the one that prepared it. So it
		// will be with the next ones, and one that is not prepared takes little longer.
		d.mode.Store(int32(pgx.QueryExecModeExec))
		err = f(bounded, conn.Conn(), pgx.QueryExecModeExec)
	}
	marks := conn.Conn().PgConn().CustomData()
	_, lone := marks[unconfirmed]
	delete(marks, unconfirmed)
	switch {
	case err != nil && bounded.Err() != nil:
		return classify(fmt.Errorf("%w: %w", context.Cause(bounded), err))
	case err != nil:
		return classify(err)
	case lone:
		return &storeError{err: errUnconfirmed, transient: true}
	}
	return nil
}

// connection takes a connection from the pool. A caller whose context ends leaves a ping of the
// pool to its own time: the connection may be sound.
func (d *Driver) connection(ctx context.Context) (*pgxpool.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), mostTime, fmt.Errorf("no connection within %v", mostTime))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	conn, err := d.pool.Acquire(bounded)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		err = ctx.Err()
	case bounded.Err() != nil:
		err = fmt.Errorf("%w: %w", context.Cause(bounded), err)
	}
	return conn, err
}
