package pgdriver

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// With fewer before it, a waiter is better off with news: few sessions listen.
	longQueue = 8

	// awaitTime is how long a waiter may wait in the server. In one that answers, the turnstile
	// moves on or is left much earlier.
	awaitTime = 10 * time.Second
)

// crowd has waiters of long queues wait in the server, see await.sql. Each takes a connection of the
// pool for that, so that at most half of them are in use for it; others wait for news.
type crowd struct {
	slots   chan struct{}
	useless atomic.Bool // a pooler would give sessions away that the server needs
	ctx     context.Context
	stop    context.CancelFunc
	waiters sync.WaitGroup
}

func newCrowd(conns int) *crowd {
	c := &crowd{slots: make(chan struct{}, conns/2)}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

func (c *crowd) close() {
	c.stop()
	c.waiters.Wait()
}

// await has a token that was queued wait in the server, if there is a connection to spare.
func (d *Driver) await(r *driver.Request) {
	c := d.crowd
	if c.useless.Load() {
		return
	}
	select {
	case c.slots <- struct{}{}:
	default:
		return
	}
	kind, name, token := r.Kind, []byte(r.Name), r.Token
	c.waiters.Go(func() {
		defer func() { <-c.slots }()
		var news *string
		err := d.query(c.ctx, awaitTime, func(ctx context.Context, conn *pgx.Conn, mode pgx.QueryExecMode) error {
			ctx, cancel := context.WithCancel(ctx)
			defer context.AfterFunc(c.ctx, cancel)()
			var backend uint32
			err := conn.QueryRow(ctx, `SELECT backend, news FROM holdfast.await($1::text, $2::bytea, $3::text)`,
				mode, kind, name, token).Scan(&backend, &news)
			if err == nil && backend != conn.PgConn().PID() {
				c.useless.Store(true)
			}
			return err
		})
		switch {
		case err != nil:
			d.news.hear("ask " + token)
		case news != nil:
			d.news.hear(*news)
		}
	})
}
