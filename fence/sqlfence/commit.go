package sqlfence

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/internal/session"
)

// ErrUnknown is matched by the error of a commit that was sent, and of which nobody can tell here
// whether it was carried out: the connection broke, or there was no answer within 10 s of
// the end of the context (11 s if the driver does not heed it). All other errors of a commit with a lease say that it was not.
var ErrUnknown = errors.New("sqlfence: it is unknown whether the transaction was committed")

// commitPatience is how long a commit may go on when its context has ended.
const commitPatience = 10 * time.Second

// lifetime is the context of a transaction for the driver. It ends with that of the program, but not
// while a commit is under way: drivers would give up what the database carries out.
//
// The wrong version hands the driver the context of the lease. A process that is stopped, and goes on
// with a commit, sends it before it sees that its lease has ended, and then does not wait for the answer.
type lifetime struct {
	context.Context // with the values of outer
	end             context.CancelFunc
	outer           context.Context
	detach          func() bool // from outer; false if that has ended
}

func newLifetime(outer context.Context) *lifetime {
	inner, end := context.WithCancel(context.WithoutCancel(outer))
	return &lifetime{inner, end, outer, context.AfterFunc(outer, end)}
}

// Err returns why the context has ended.
func (l *lifetime) Err() error {
	if err := l.outer.Err(); err != nil && l.Context.Err() != nil {
		return err
	}
	return l.Context.Err()
}

// close forgets the context of the program.
func (l *lifetime) close() {
	l.detach()
	l.end()
}

// commit commits a transaction that has leases, and tells what came of it.
func (c *conn) commit(t driver.Tx, l *lifetime) error {
	defer l.end()
	_, over := fence.Of(l.outer) // The lease may know it before its context has ended.
	if !l.detach() {
		over = session.EndOf(l.outer)
	}
	if over != nil {
		if t.Rollback() != nil {
			c.broken = true
		}
		return fmt.Errorf("sqlfence: rolled back before the commit: %w", over)
	}
	err := c.await(t, l)
	if err == nil || !errors.Is(err, errNoAnswer) && c.answered(err) {
		return err
	}
	c.broken = true
	if errors.Is(err, driver.ErrBadConn) { // database/sql would repeat what may have been carried out.
		return fmt.Errorf("%w: %v", ErrUnknown, err)
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

// errNoAnswer is what came of a commit that its driver did not give up when its context had ended.
var errNoAnswer = errors.New("no answer came, and the driver waits on")

// await commits, and waits for the answer until the context of the program has ended for commitPatience,
// and a second more for a driver that gives up then. Not all do: that of MySQL waits for as long as the
// network leaves it, unless it has a readTimeout.
func (c *conn) await(t driver.Tx, l *lifetime) error {
	outcome := make(chan error, 1)
	go func() { outcome <- t.Commit() }()
	select {
	case err := <-outcome:
		return err
	case <-l.outer.Done():
	}
	select {
	case err := <-outcome:
		return err
	case <-time.After(commitPatience):
	}
	l.end()
	select {
	case err := <-outcome:
		return err
	case <-time.After(time.Second):
	}
	c.busy = outcome
	return errNoAnswer
}

// answered reports whether an error of a commit is the answer of the database, which has not
// carried it out then. Drivers have many errors, but after an answer the connection goes on.
func (c *conn) answered(err error) bool {
	if state, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		switch s := state.SQLState(); {
		case strings.HasPrefix(s, "08"), strings.HasPrefix(s, "57P"), s == "40003":
			return false // The connection ends, perhaps after the commit.
		case s != "":
			return true
		}
	}
	pinger, ok := c.Conn.(driver.Pinger)
	if !ok || errors.Is(err, driver.ErrBadConn) || !c.IsValid() ||
		strings.Contains(err.Error(), "Lost connection") { // of a ProxySQL to its server
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitPatience)
	defer cancel()
	return pinger.Ping(ctx) == nil
}
