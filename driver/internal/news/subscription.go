package news

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	heardWithin = 2500 * time.Millisecond
	pingAgain   = time.Second // after one that failed, and after a rest

	leastPause = 50 * time.Millisecond // between subscriptions
	mostPause  = 5 * time.Second

	// While no news comes in until somebody mends that, there is no subscription within rest of the
	// last, and none at all while nobody waits. A thousand clients that try every few seconds cost
	// the store as many handshakes, and a log of refusals shows nothing else.
	rest = 30 * time.Second

	// So many subscriptions that fail in a row, over heardWithin at least, are taken for a refusal if
	// the store answers otherwise. A proxy may hang up, or say what nobody has heard of.
	failures = 3
)

// state is what is known of the subscription.
//
//	         acknowledged         a ping is heard
//	absent ────────────────> made ────────────────> live
//	  ↑                       │                      │
//	  └───────────────────────┴──────────────────────┘
//	        it breaks, or a ping is not heard
type state int

const (
	absent state = iota
	made
	live
)

// counts reports whether news comes in, as far as is known. The caller holds mu.
func (h *Hub[X]) counts() bool {
	return h.state == live || h.state == made && h.pace.Acknowledged && !h.mute
}

// Unconnected is why a subscription was not even asked for, which says nothing of subscriptions.
type Unconnected struct{ Err error }

func (u Unconnected) Error() string { return "news: no connection: " + u.Err.Error() }

// Unwrap returns what is in the way.
func (u Unconnected) Unwrap() error { return u.Err }

// errSilent is why a subscription ends that does not hear a ping.
var errSilent = errors.New("news: a ping was not heard")

// listen keeps a subscription until the client is closed.
func (h *Hub[X]) listen(ctx context.Context) {
	defer close(h.stopped)
	defer h.become(absent, 0)
	for pause := leastPause; ctx.Err() == nil; pause = min(4*pause, mostPause) {
		began := time.Now()
		err := h.subscribe(ctx)
		if ctx.Err() != nil {
			return
		}
		mute := h.lost(err)
		if !mute && h.futile(ctx) {
			h.becomeMute()
			mute = true
		}
		if time.Since(began) > time.Minute {
			pause = leastPause
		}
		after := pause/2 + rand.N(pause/2)
		if mute {
			after = rest + rand.N(rest/4)
		}
		select {
		case <-ctx.Done():
		case <-time.After(after):
		}
		if mute {
			h.rest(ctx)
		}
	}
}

// rest returns when somebody waits, and reports whether nobody did.
func (h *Hub[X]) rest(ctx context.Context) (rested bool) {
	for ; ctx.Err() == nil && !h.awaited(); rested = true {
		select {
		case <-ctx.Done():
		case <-h.waiterCame:
		}
	}
	return rested
}

// futile reports whether subscriptions fail although the store answers. A store that does not answer
// says nothing of subscriptions: they are counted anew.
func (h *Hub[X]) futile(ctx context.Context) bool {
	h.mu.Lock()
	so := h.failed >= failures && time.Since(h.failing) >= heardWithin
	if so {
		h.failed = 0
	}
	h.mu.Unlock()
	if !so {
		return false
	}
	bounded, cancel := context.WithTimeout(ctx, heardWithin)
	defer cancel()
	err := h.transport.Ping(bounded)
	return err == nil || h.transport.Refused(err)
}

// subscribe makes one subscription and keeps it until it breaks or falls silent.
func (h *Hub[X]) subscribe(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	var pinging sync.WaitGroup
	defer func() {
		end(nil)
		pinging.Wait()
	}()
	begun := false
	err := h.transport.Subscribe(ctx, func(session int32) {
		h.become(made, session)
		if !begun { // a client library may make it anew by itself
			begun = true
			pinging.Go(func() { h.ping(ctx, end) })
		}
	}, h.Hear)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// ping sends pings, at once and then while anybody waits, and ends a subscription that does not
// hear one. It has no timer while nobody waits: a client that once had to wait should not wake
// its machine from then on.
func (h *Hub[X]) ping(ctx context.Context, end func(error)) {
	for {
		pause := h.pace.Ping
		select {
		case <-h.pinged: // late
		default:
		}
		bounded, cancel := context.WithTimeout(ctx, heardWithin)
		// A ping that cannot be sent says nothing of the subscription, unless the store refuses
		// all of them. Else an overloaded store would get thousands of waiters that poll.
		if err := h.transport.Ping(bounded); h.transport.Refused(err) {
			// The subscription stays: others must not take the client for one that has gone.
			h.becomeMute()
			pause = rest
		} else if err != nil {
			pause = pingAgain
		} else {
			select {
			case <-h.pinged:
			case <-bounded.Done():
				end(errSilent)
			}
		}
		cancel()
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			if !h.rest(ctx) {
				break
			}
			pause = pingAgain
		}
	}
}

// awaited reports whether anybody waits, and if not, has the next waiter tell waiterCame.
func (h *Hub[X]) awaited() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.waiterCame:
	default:
	}
	return h.waiting > 0
}

// lost notes why a subscription has ended, or was not made. It reports whether no news will
// come in until somebody mends that: if the store refuses, or if two subscriptions in a row
// have heard nothing at all. Then the connections are well, and what is published is not
// passed on. Of others see futile.
func (h *Hub[X]) lost(err error) (mute bool) {
	silent, refused := errors.Is(err, errSilent), h.transport.Refused(err)
	var reasons []string
	h.mu.Lock()
	switch {
	case refused || !h.counts():
	case silent:
		reasons = append(reasons, "silent")
	default:
		reasons = append(reasons, "error")
	}
	if silent && h.state == made {
		h.deaf++
	}
	if _, unconnected := errors.AsType[Unconnected](err); unconnected {
		h.failed = 0
	} else if h.state != live {
		if h.failed++; h.failed == 1 {
			h.failing = time.Now()
		}
	}
	h.set(absent, 0) // before mute: what does not count any more did until now
	if !h.mute && (refused || h.deaf >= 2) {
		h.mute = true
		reasons = append(reasons, "mute")
	}
	mute = h.mute
	h.mu.Unlock()
	h.report(reasons...)
	return mute
}

// report tells those who have asked for it.
func (h *Hub[X]) report(reasons ...string) {
	h.mu.Lock()
	reports := h.reports
	h.mu.Unlock()
	for _, reason := range reasons {
		for _, f := range reports {
			f(reason)
		}
	}
}

// becomeMute notes that no news will come in until somebody mends that.
func (h *Hub[X]) becomeMute() {
	h.mu.Lock()
	was := h.mute
	if !was {
		if h.counts() {
			h.askAll()
		}
		h.state, h.mute = min(h.state, made), true
		h.closeTried.Do(func() { close(h.tried) })
	}
	h.mu.Unlock()
	if !was {
		h.report("mute")
	}
}

// pong notes that a ping was heard.
func (h *Hub[X]) pong() {
	h.mu.Lock()
	again := false
	if h.state != absent {
		again = h.mute
		h.set(live, 0)
		tell(h.pinged)
	}
	h.mu.Unlock()
	if again {
		h.report("heard")
	}
}

// become sets the state of the subscription. When it begins or ceases to count, every waiter is
// made to ask: news may have been missed before it was there, or while it was broken.
func (h *Hub[X]) become(s state, session int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set(s, session)
}

// set is become for a caller that holds mu.
func (h *Hub[X]) set(s state, session int32) {
	did := h.counts()
	if h.state = s; s != live {
		h.session = session
	} else {
		h.deaf, h.failed, h.mute = 0, 0, false
	}
	if s == absent || h.counts() {
		// Last: a waiter that goes on because of it must not find that news may have been missed.
		defer h.closeTried.Do(func() { close(h.tried) })
	}
	if again := s == made && did; did == h.counts() && !again {
		return
	}
	h.askAll()
}

// askAll has every waiter ask, as the subscription begins or ceases to count. The caller holds mu.
func (h *Hub[X]) askAll() {
	h.changes++
	for _, t := range h.tokens {
		if t.queued {
			t.wake(driver.Grant{Status: driver.Queued, Reconnect: true})
		}
	}
}
