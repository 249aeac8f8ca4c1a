// Package news is how the waiters of a client hear from a store: one subscription for the whole
// client, however many locks it waits for, and the tokens that news is for.
//
// Only speed depends on news. While none comes in, waiters ask every 50 to 250 ms instead, and
// a grant that was not heard is found by a heartbeat.
package news

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// Transport carries news from a store to one client.
type Transport interface {
	// Subscribe makes a subscription, calls made when the store has acknowledged it, and hear for
	// each piece of news, until it breaks or ctx ends. session is for [Hub.Place]. If there is no
	// connection for it, the error is [Unconnected].
	Subscribe(ctx context.Context, made func(session int32), hear func(line string)) error

	// Ping has the store send a ping the way that all news goes. [Hub.Hear] gets "ping" then.
	Ping(ctx context.Context) error

	// Refused reports whether err is a refusal that lasts until somebody mends it.
	Refused(err error) bool
}

// Pace is what differs between stores.
type Pace struct {
	// Ping is the time between two pings. Each must be heard within 2.5 s.
	Ping time.Duration

	// Acknowledged says that a subscription counts from its acknowledgement, instead of the
	// first ping. With a pooler in between, an acknowledgement proves nothing.
	Acknowledged bool
}

// prepareTimeout is when a waiter goes without a subscription, if there is none by then.
const prepareTimeout = 500 * time.Millisecond

// Hub keeps the subscription of a client, and the tokens that wait for news. A subscription is
// made when somebody first has to wait, and before the store learns of the wait: from then on
// a client that nobody can hear is one that has gone.
//
// X is what a driver keeps beside each token.
type Hub[X any] struct {
	transport Transport
	pace      Pace
	beside    func(*driver.Request) X

	mu         sync.Mutex
	tokens     map[string]*Token[X]
	waiting    int // tokens that were last answered Queued
	state      state
	session    int32         // of the subscription, while it counts
	changes    int           // how often it has begun or ceased to count
	mute       bool          // no news comes in until somebody mends that
	deaf       int           // subscriptions in a row that were not answered by a single ping
	failed     int           // subscriptions in a row that heard none, for whatever reason
	failing    time.Time     // when the first of these failed
	pinged     chan struct{} // a ping was heard; has room for one
	waiterCame chan struct{} // somebody waits; has room for one
	tried      chan struct{} // closed when the first subscription counts, has failed, or has had its time
	closeTried sync.Once     // closes tried
	stop       func()        // ends the listener, nil if none was started
	stopped    chan struct{} // closed when the listener has ended
	closed     bool
	reports    []func(reason string)
}

// New returns a Hub that subscribes when [Hub.Prepare] first asks for it. beside makes what the
// driver keeps beside the token of a request.
func New[X any](t Transport, p Pace, beside func(*driver.Request) X) *Hub[X] {
	return &Hub[X]{
		transport: t, pace: p, beside: beside, tokens: map[string]*Token[X]{},
		pinged: make(chan struct{}, 1), waiterCame: make(chan struct{}, 1), tried: make(chan struct{}),
	}
}

// OnReconnect has f called when a subscription that counted has ended: with "error", or with
// "silent" if a ping was not heard; and with "mute" when no news will come in until somebody
// mends it, then with "heard" once that is so.
func (h *Hub[X]) OnReconnect(f func(reason string)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reports = append(h.reports, f)
}

// Tried reports whether a subscription has been made, or found impossible, or has not been answered in time.
func (h *Hub[X]) Tried() bool {
	select {
	case <-h.tried:
		return true
	default:
		return false
	}
}

// Mute returns an error if no news comes in until somebody mends that.
func (h *Hub[X]) Mute() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mute {
		return errMute
	}
	return nil
}

var errMute = fmt.Errorf("news: none comes in: %w", errors.ErrUnsupported)

// Prepare makes the first subscription, and waits at most 500 ms until it counts or has failed.
func (h *Hub[X]) Prepare(ctx context.Context) {
	h.mu.Lock()
	if h.stop == nil && !h.closed {
		ctx, cancel := context.WithCancel(telemetry.Unasked(context.Background()))
		h.stop, h.stopped = cancel, make(chan struct{})
		go h.listen(ctx)
	}
	h.mu.Unlock()
	select {
	case <-h.tried:
	case <-ctx.Done():
	case <-time.After(prepareTimeout):
		// The acknowledgement may be lost, and nobody looks for it while nobody waits. The wrong
		// version had every ask of a lock that lingers wait as long again. If that is longer
		// than the TTL, each grant is over before it is known.
		h.closeTried.Do(func() { close(h.tried) })
	}
}

// Close ends the subscription.
func (h *Hub[X]) Close() {
	h.mu.Lock()
	h.closed = true
	stop, stopped := h.stop, h.stopped
	h.mu.Unlock()
	if stop != nil {
		stop()
		<-stopped
	}
}

// Known returns how many tokens there are, and whether a subscription counts.
func (h *Hub[X]) Known() (tokens int, counts bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.tokens), h.counts()
}
