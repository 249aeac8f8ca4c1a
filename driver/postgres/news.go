package pgdriver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// While anybody waits, a client sends itself news so often, and must hear it within that
	// time. Not more often: PostgreSQL rouses every backend of the database that listens to
	// anything for each notification. A grant that is not heard is found by a heartbeat.
	pingEvery   = 5 * time.Second
	pingTimeout = 2500 * time.Millisecond

	// Where no news comes in, a subscription is tried less often, in case that was mended.
	muteRest = 30 * time.Second

	// A waiter goes without a subscription if there is none by then.
	prepareTimeout = 500 * time.Millisecond
)

// news is where news for waiters comes in: one channel, and one connection that listens to it,
// for the whole client, however many locks it waits for. The subscription is made when
// somebody first has to wait, and before the server learns that they do.
//
// A subscription counts as live from the moment that it has heard a ping, which goes the way
// that all news goes. That it was made proves nothing: a pooler has the next statement sent to
// another session. Nothing else depends on it: while it is not live, waiters ask every 50 to
// 250 ms instead.
type news struct {
	connect func(context.Context) (*pgx.Conn, error)
	ping    func(ctx context.Context, client string) error
	session func(context.Context) (uint32, error) // of the pool that ran a statement: its backend
	id      string                                // of this client; its channel is holdfast_<id>

	mu      sync.Mutex
	tokens  map[string]*token
	waiting int           // tokens that were last answered Queued
	live    bool          // the subscription has heard a ping
	number  int32         // its session's, while it is live
	changes int           // how often live has changed
	mute    bool          // no news comes in until somebody mends that
	deaf    int           // subscriptions in a row that heard nothing
	stir    chan struct{} // tells that somebody waits; has room for one
	first   chan struct{} // closed when the first subscription is live, or has failed
	once    sync.Once     // closes first
	stop    func()        // ends the listener, nil if none was started
	stopped chan struct{} // closed when it has ended
	closed  bool
	reports []func(reason string)
}

func newNews(ping func(context.Context, string) error) *news {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return &news{
		ping: ping, id: hex.EncodeToString(id[:]), tokens: map[string]*token{},
		first: make(chan struct{}), stir: make(chan struct{}, 1),
	}
}

// tried reports whether a subscription has been made, or found impossible.
func (n *news) tried() bool {
	select {
	case <-n.first:
		return true
	default:
		return false
	}
}

// prepare makes the first subscription and waits until there is one, or none to be had.
func (n *news) prepare(ctx context.Context) {
	n.mu.Lock()
	if n.stop == nil && !n.closed {
		ctx, cancel := context.WithCancel(context.Background())
		n.stop, n.stopped = cancel, make(chan struct{})
		go n.listen(ctx)
	}
	n.mu.Unlock()
	select {
	case <-n.first:
	case <-ctx.Done():
	case <-time.After(prepareTimeout):
	}
}

var (
	errSilent = errors.New("pgdriver: a ping was not heard")
	errUntied = errors.New("pgdriver: a pooler has statements of one connection run in several sessions")
)

// listen keeps a subscription until the client is closed.
func (n *news) listen(ctx context.Context) {
	defer close(n.stopped)
	for pause := 50 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 5*time.Second) {
		began := time.Now()
		err := n.subscribe(ctx)
		if ctx.Err() == nil {
			n.lost(err)
		}
		n.alive(false, 0)
		switch {
		case n.isMute():
			pause = muteRest
		case time.Since(began) > time.Minute:
			pause = 50 * time.Millisecond
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + mathrand.N(pause)):
		}
	}
}

// subscribe makes one subscription and passes its news on until it breaks.
func (n *news) subscribe(ctx context.Context) error {
	conn, err := n.connect(ctx)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	var pinging sync.WaitGroup
	defer func() {
		end(nil)
		pinging.Wait()
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
	if err := conn.QueryRow(ctx, "SELECT holdfast.hear()").Scan(&number); err != nil {
		return err
	}
	heard := make(chan struct{}, 1)
	pinging.Go(func() { n.pings(ctx, heard, number, end) })
	for {
		note, err := conn.WaitForNotification(ctx)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return err
		}
		if note.Payload != "ping" {
			n.hear(note.Payload)
			continue
		}
		select {
		case heard <- struct{}{}:
		default:
		}
	}
}

// tied fails if a pooler gives the connection another session for each transaction. LISTEN and a
// lock would stay behind in one of them, which others use.
//
// Such a pooler hands out the session that was last in use. So the wrong version, which asks
// this connection twice, sees the same one; a statement of the pool in between shows it.
func (n *news) tied(ctx context.Context, conn *pgx.Conn) error {
	var first uint32
	for range 3 {
		var here uint32
		if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&here); err != nil {
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

// pings sends pings, at once and then while anybody waits, and ends the subscription when one
// is not heard.
func (n *news) pings(ctx context.Context, heard <-chan struct{}, number int32, end func(error)) {
	for {
		bounded, cancel := context.WithTimeout(ctx, pingTimeout)
		err := n.ping(bounded, n.id)
		// A ping that cannot be sent says nothing of the subscription, unless the server will
		// not send any: then it sends no news either.
		if err != nil && !errors.Is(err, driver.ErrTransient) {
			end(err)
		}
		if err == nil {
			select {
			case <-heard:
				n.alive(true, number)
			case <-bounded.Done():
				end(errSilent)
			}
		}
		cancel()
		pause := pingEvery
		if err != nil {
			pause = time.Second
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		for !n.awaited() {
			select {
			case <-ctx.Done():
				return
			case <-n.stir:
			}
		}
	}
}

func (n *news) awaited() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.waiting > 0
}

func (n *news) isMute() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mute
}

// lost notes why a subscription has ended, or could not be made, and tells of it if it was
// live. If the server refuses it, or two in a row have heard nothing at all, no news will come
// in unless somebody mends that. Then every waiter is made to ask, and polls.
func (n *news) lost(err error) {
	n.mu.Lock()
	reason := ""
	switch silent := errors.Is(err, errSilent); {
	case n.live && silent:
		reason = "silent"
	case n.live:
		reason = "error"
	case silent:
		n.deaf++
	}
	if (n.deaf >= 2 || refused(err) || errors.Is(err, errUntied)) && !n.mute {
		n.mute = true
		reason = "mute"
	}
	reports := n.reports
	n.mu.Unlock()
	if reason == "" {
		return
	}
	for _, f := range reports {
		f(reason)
	}
}

// refused reports whether a server said no to this, and not only for now. One that lets nobody
// in, as while a password is rotated, has nothing against news.
func refused(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && !passes(answer.Code) && answer.Code[:2] != "28"
}

// alive notes that the subscription is live, or has ended, and makes every waiter ask when
// that changes: news may have been missed before it was there, or while it was broken.
func (n *news) alive(live bool, number int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	// Last: a waiter that goes on because of it must not find that news may have been missed.
	defer n.once.Do(func() { close(n.first) })
	if live {
		n.deaf, n.mute = 0, false
	}
	if live == n.live {
		return
	}
	n.live, n.number = live, number
	n.changes++
	for _, t := range n.tokens {
		if t.queued {
			t.wake(driver.Grant{Status: driver.Queued, Reconnect: true})
		}
	}
}

func (n *news) onReconnect(f func(reason string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reports = append(n.reports, f)
}

func (n *news) close() {
	n.mu.Lock()
	n.closed = true
	stop, stopped := n.stop, n.stopped
	n.mu.Unlock()
	if stop != nil {
		stop()
		<-stopped
	}
}
