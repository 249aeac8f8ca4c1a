package pgdriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
)

// A caller waits for a third of the TTL that its call is about, so that a lease survives one that is
// not answered. These are the bounds of that. The longer one is also for calls about no TTL, and for
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
	beforeClose, onNotice, shouldPing := c.BeforeClose, c.ConnConfig.OnNotice, c.ShouldPing
	c.ShouldPing = func(ctx context.Context, p pgxpool.ShouldPingParams) bool {
		d.asks(p.Conn)
		if shouldPing != nil {
			return shouldPing(ctx, p)
		}
		return p.IdleDuration > leastTime // As are all others when a call is late, and its server may have gone.
	}
	c.BeforeClose = func(conn *pgx.Conn) {
		if beforeClose != nil {
			beforeClose(conn)
		}
		if conn.IsClosed() { // It was broken, or silent. pgx would wait up to 15 s for its end.
			if d.silent(conn) {
				d.pool.Reset() // It is not the only one, if its server has gone.
			}
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
	hasten(c.ConnConfig)
	own, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		panic("pgdriver: " + err.Error()) // It was good enough for the pool that we were given.
	}
	return own
}

// hasten bounds the making of a connection, which by itself takes minutes where nobody answers, and
// has a context end a call or a wait at once.
func hasten(c *pgx.ConnConfig) {
	// Others may leave a call without an end, or have the server cancel the next one.
	c.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: conn.Conn()}
	}
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

// lastAnswer is the note of a connection about the answers before something was sent on it.
const lastAnswer = "holdfast: last answer"

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
// that is given up is one to be made again. It ends after mostTime. That cancels it at the
// server, so that calls which wait for a standby do not pile up there.
//
// News is a convenience. Where the server refuses it, and so undoes the function, the same call is
// made again without.
func (d *Driver) call(ctx context.Context, ttl time.Duration, into []any, sql string, args ...any) error {
	return d.query(ctx, timeFor(ttl), func(ctx context.Context, conn *pgx.Conn, mode pgx.QueryExecMode) error {
		row := func(sql string) error {
			return conn.QueryRow(ctx, sql, append([]any{mode}, args...)...).Scan(into...)
		}
		if until := d.quiet.Load(); until != nil && time.Now().Before(*until) {
			return row(quietly(sql))
		}
		err := row(sql)
		if !refusesNews(err) {
			return err
		}
		refusal := err
		if err = row(quietly(sql)); err == nil {
			d.suspendNews(ctx, conn, mode, refusal)
		}
		return err
	})
}

var firstArgument = regexp.MustCompile(`\$1::\w+(\[\])?`)

// quietly has a call send no news, see tell.sql: its first argument is evaluated before the function
// begins. The setting ends with the transaction, so a pooler takes it to nobody else.
func quietly(sql string) string {
	at := firstArgument.FindStringIndex(sql)
	if at == nil {
		return sql
	}
	return sql[:at[0]] + "CASE WHEN set_config('holdfast.quiet', 'on', true) = 'on' THEN " + sql[at[0]:at[1]] + " END" + sql[at[1]:]
}

// suspendNews has calls go without news for a while, since the server refuses it. The listener looks
// soon whether it still does.
func (d *Driver) suspendNews(ctx context.Context, conn *pgx.Conn, mode pgx.QueryExecMode, refusal error) {
	// The server shortens its queue when it is asked for the usage, or when it takes something in. The
	// wrong version does not ask, and a queue that is full stays so after its cause has gone.
	var usage float64
	err := conn.QueryRow(ctx, queueUsage, mode).Scan(&usage)
	if err == nil && usage < fullQueue && outOfRoom(refusal) {
		return // The next call tells again.
	}
	until := time.Now().Add(pace.Ping)
	d.quiet.Store(&until)
	d.listener.doubt.Store(true)
}

// queueUsage is how much of the queue of all notifications is in use, from 0 to 1. At fullQueue
// there is no room, but for a rest of what the server can count to.
const (
	queueUsage = "SELECT pg_notification_queue_usage()"
	fullQueue  = 0.99
)

// goesOn is the error of a call that is late, and ends with its context.
type goesOn struct {
	*storeError
	call context.Context
}

// callFor is call for one lock, whose row may be locked for long, as by a transaction that somebody
// has left open. Such calls have half of the connections, those included that go on without their
// callers. The wrong version let waiters that ask again and again have all, and leases on other locks
// were not renewed.
func (d *Driver) callFor(ctx context.Context, k driver.Kind, name string, ttl time.Duration, into []any, sql string, args ...any) error {
	id := lock{k, name}
	g := d.gates.enter(id, max(1, int(d.pool.Stat().MaxConns())/2))
	leave := func() { d.gates.leave(id, g) }
	select {
	case g.calls <- struct{}{}:
	case <-ctx.Done():
		leave()
		return unsent(ctx.Err())
	case <-time.After(timeFor(ttl)):
		leave()
		return classify(fmt.Errorf("no answer within %v to the calls before: %w", timeFor(ttl), context.DeadlineExceeded))
	}
	err := d.call(ctx, ttl, into, sql, args...)
	end := func() {
		<-g.calls
		leave()
	}
	if late, ok := errors.AsType[*goesOn](err); ok {
		context.AfterFunc(late.call, end)
	} else {
		end()
	}
	return err
}

type lock struct {
	kind driver.Kind
	name string
}

// gates are for locks with calls under way.
type gates struct {
	mu  sync.Mutex
	all map[lock]*gate
}

type gate struct {
	calls chan struct{} // one for each that is under way
	users int           // calls that wait, or are under way
}

// enter returns the gate of a lock, for so many calls at a time.
func (s *gates) enter(id lock, room int) *gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.all[id]
	if g == nil {
		if s.all == nil {
			s.all = map[lock]*gate{}
		}
		g = &gate{calls: make(chan struct{}, room)}
		s.all[id] = g
	}
	g.users++
	return g
}

// leave takes the gate away with the last that uses it.
func (s *gates) leave(id lock, g *gate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.users--; g.users == 0 {
		delete(s.all, id)
	}
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

// query has f use a connection, and waits for that no longer than limit.
//
// A call that is late may have lost its server, or the server is slow. The wrong version closed
// the connection of each late call: the slow server had to make new ones, each for the price of
// many calls, and got slower. Now the call goes on without its caller, and its answer frees the
// connection. That is closed only when nothing has come for mostTime. The caller asks again on
// another one, which is tried first (see callers) if it is from before the call.
func (d *Driver) query(ctx context.Context, limit time.Duration, f func(context.Context, *pgx.Conn, pgx.QueryExecMode) error) error {
	conn, err := d.connection(ctx)
	if err != nil {
		return unsent(err)
	}
	late := fmt.Errorf("no answer within %v: %w", limit, context.DeadlineExceeded)
	bounded, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), max(limit, mostTime), late)
	d.asks(conn.Conn())
	answer := make(chan error, 1)
	go func() {
		defer cancel()
		err := d.ask(bounded, late, conn.Conn(), f)
		conn.Release() // first: the caller's next call finds it
		answer <- err
	}()
	if limit >= mostTime {
		return <-answer
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-answer:
		return err
	case <-timer.C:
		return &goesOn{classify(late), bounded}
	}
}

// asks notes on a connection which answer was the last before something is sent on it.
func (d *Driver) asks(conn *pgx.Conn) { conn.PgConn().CustomData()[lastAnswer] = d.answers.Load() }

// silent reports whether nothing was answered, on any connection, since something was sent on
// this one.
func (d *Driver) silent(conn *pgx.Conn) bool {
	return conn.PgConn().CustomData()[lastAnswer] == d.answers.Load()
}

// ask has f use the connection. The error late is for an answer that has not come when ctx ends.
func (d *Driver) ask(ctx context.Context, late error, conn *pgx.Conn, f func(context.Context, *pgx.Conn, pgx.QueryExecMode) error) error {
	err := f(ctx, conn, pgx.QueryExecMode(d.mode.Load()))
	if unprepared(err) {
		// A pooler has sent the statement to another session than the one that prepared it. So it
		// will be with the next ones, and one that is not prepared takes little longer.
		d.mode.Store(int32(pgx.QueryExecModeExec))
		err = f(ctx, conn, pgx.QueryExecModeExec)
	}
	marks := conn.PgConn().CustomData()
	_, lone := marks[unconfirmed]
	delete(marks, unconfirmed)
	if !conn.IsClosed() {
		d.answers.Add(1)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return classify(late)
	case err != nil:
		if ofSession(err) {
			d.afresh()
		}
		e := classify(err)
		// The schema is restored, perhaps, or an operator tries a setting. It was otherwise before.
		e.transient = e.transient || d.served.Load() && ofDatabase(err)
		return e
	case lone:
		return &storeError{err: errUnconfirmed, transient: true}
	}
	d.served.Store(true)
	return nil
}

// afresh has the driver make its connections again, as those there are lead to a standby, or began
// with settings with which no call can be carried out. Either may have been over for long, and each call on
// such a connection would be refused for as long as that lives. It is done once in leastTime: meanwhile
// the next ones may lead to the same place.
func (d *Driver) afresh() {
	last, now := d.refreshed.Load(), time.Now()
	if (last == nil || now.Sub(*last) >= leastTime) && d.refreshed.CompareAndSwap(last, &now) {
		d.pool.Reset()
	}
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
