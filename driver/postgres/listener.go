package pgdriver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/news"
)

// pace says how the subscription is kept, see [news.Hub]. That LISTEN was answered proves nothing:
// a pooler has the next statement sent to another session.
var pace = news.Pace{Ping: 5 * time.Second}

func nothing(*driver.Request) (none struct{}) { return }

// listener is where news for a client comes in: one channel, and one connection that listens to
// it. It implements [news.Transport].
type listener struct {
	connect func(context.Context) (*pgx.Conn, error)
	ping    func(ctx context.Context, client string) error
	session func(context.Context) (uint32, error) // of the pool that ran a statement: its backend
	id      string                                // of this client; its channel is holdfast_<id>

	asked atomic.Pointer[chan error]         // whether the session is still there, and news has room: for the answer
	look  atomic.Pointer[context.CancelFunc] // has Subscribe see that it was asked; nil until a ping was heard
	doubt atomic.Bool                        // news was refused, so the next ping goes the way of all news
}

func newListener() *listener {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return &listener{id: hex.EncodeToString(id[:])}
}

// client is what the server calls to wake this request, nil for nothing.
func (n *listener) client(r *driver.Request) *string {
	if r.Wake == nil {
		return nil
	}
	return &n.id
}

// Subscribe implements [news.Transport]. The session is the number of the one that listens.
func (n *listener) Subscribe(ctx context.Context, made func(int32), hear func(string)) error {
	conn, err := n.connect(ctx)
	if err != nil {
		return news.Unconnected{Err: err}
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(bounded)
	}()
	if err := n.tied(ctx, conn); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "LISTEN holdfast_"+n.id); err != nil {
		return err
	}
	var number int32
	if err := conn.QueryRow(ctx, "SELECT holdfast.hear()", pgx.QueryExecModeExec).Scan(&number); err != nil {
		return err
	}
	n.asked.Store(nil)
	defer n.look.Store(nil)
	made(number)
	return n.follow(ctx, conn, hear)
}

// follow passes on what the connection hears, and looks whether its session is there when it is asked.
func (n *listener) follow(ctx context.Context, conn *pgx.Conn, hear func(string)) error {
	for proved := false; ; {
		waiting, look := context.WithCancel(ctx)
		if proved {
			n.look.Store(&look)
		}
		var note *pgconn.Notification
		var err error
		if n.asked.Load() == nil {
			note, err = conn.WaitForNotification(waiting)
		}
		looks := waiting.Err() != nil // perhaps for what was answered before
		look()
		switch {
		case note != nil:
			proved = proved || note.Payload == "ping"
			hear(note.Payload)
		case ctx.Err() != nil:
			return ctx.Err()
		case n.asked.Load() != nil:
			if err := n.answer(ctx, conn, hear); err != nil {
				return err
			}
		case err != nil && !looks:
			return err
		}
	}
}

var errFull = errors.New("pgdriver: the queue of notifications is full")

// answer answers a ping by way of the session. It fails if that has gone.
func (n *listener) answer(ctx context.Context, conn *pgx.Conn, hear func(string)) error {
	asked := n.asked.Swap(nil)
	var usage float64
	err := conn.QueryRow(ctx, queueUsage, pgx.QueryExecModeExec).Scan(&usage)
	if _, refused := errors.AsType[*pgconn.PgError](err); err != nil && !refused {
		return err
	}
	if usage >= fullQueue {
		*asked <- errFull
		return nil
	}
	hear("ping")
	*asked <- nil
	return nil
}

// Ping implements [news.Transport]. The first ping of a subscription goes the way of all news, and so
// does the one after a refusal. Else it is enough that the session is there, and that the queue has
// room: what was heard once, it hears.
//
// PostgreSQL rouses every session of the database that listens to anything for each notification.
// The wrong version sends each ping as one, so 256 clients that wait rouse 256 sessions 51 times
// a second, which took a third of a core.
func (n *listener) Ping(ctx context.Context) error {
	if n.doubt.Swap(false) || n.look.Load() == nil {
		return n.ping(ctx, n.id)
	}
	answer := make(chan error, 1)
	n.asked.Store(&answer) // first: Subscribe looks at it after it has stored what ends its next wait
	if look := n.look.Load(); look != nil {
		(*look)()
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return nil // It was not heard.
	}
}

var errUntied = errors.New("pgdriver: a pooler has statements of one connection run in several sessions")

// tied fails if a pooler gives the connection another session for each transaction. LISTEN and a
// lock would stay behind in one of them, which others use.
//
// Such a pooler hands out the session that was last in use. So the wrong version, which asks
// this connection twice, sees the same one; a statement of the pool in between shows it.
func (n *listener) tied(ctx context.Context, conn *pgx.Conn) error {
	var first uint32
	for range 3 {
		var here uint32
		if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&here); err != nil {
			return err
		}
		if here == conn.PgConn().PID() {
			return nil // no pooler is between
		}
		other, err := n.session(ctx)
		if err != nil {
			return err
		}
		if first == 0 {
			first = here
		}
		if other == here || first != here {
			return errUntied
		}
	}
	return nil
}

// Refused implements [news.Transport]. A server that lets nobody in, as while a password is
// rotated, has nothing against news.
func (n *listener) Refused(err error) bool {
	var answer *pgconn.PgError
	return errors.Is(err, errUntied) || errors.Is(err, errFull) || refusesNews(err) ||
		errors.As(err, &answer) && !passes(answer.Code) && answer.Code[:2] != "28"
}
