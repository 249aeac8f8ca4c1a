package redisdriver

import (
	"context"
	"errors"
	mathrand "math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// While anybody waits, the subscription must hear a message that we send ourselves
// every second. Two are missed before it is given up: go-redis would not notice a
// connection that is open but dead.
const (
	pingEvery  = time.Second
	pingMissed = 2500 * time.Millisecond

	// A server that is known not to pass pings on is tried less often, in case that was
	// mended. Waiters poll meanwhile, so nothing depends on it.
	muteRest   = 9 // ticks of pingEvery between two pings
	muteMissed = 30 * time.Second

	// A waiter goes without a subscription if there is no answer by then.
	prepareTimeout = 500 * time.Millisecond
)

// tried reports whether a subscription has been made, or found impossible.
func (w *wakes) tried() bool {
	select {
	case <-w.first:
		return true
	default:
		return false
	}
}

// prepare makes the first subscription and waits until there is one, or none to be had.
func (w *wakes) prepare(ctx context.Context) {
	w.mu.Lock()
	if w.stop == nil && !w.closed {
		ctx, cancel := context.WithCancel(context.Background())
		w.stop, w.stopped = cancel, make(chan struct{})
		go w.listen(ctx)
	}
	w.mu.Unlock()
	select {
	case <-w.first:
	case <-ctx.Done():
	case <-time.After(prepareTimeout):
		// The confirmation may be lost, and nobody looks for it while nobody waits. The wrong
		// version had every ask of a lock that lingers wait as long again. If that is longer
		// than the TTL, each grant is over before it is known.
		w.once.Do(func() { close(w.first) })
	}
}

// listen keeps a subscription until the client is closed.
func (w *wakes) listen(ctx context.Context) {
	defer close(w.stopped)
	for pause := 50 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 5*time.Second) {
		began := time.Now()
		silent := w.subscribe(ctx)
		w.report(ctx, silent)
		w.alive(false)
		if time.Since(began) > time.Minute {
			pause = 50 * time.Millisecond
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + mathrand.N(pause)):
		}
	}
}

func (w *wakes) onReconnect(f func(reason string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reports = append(w.reports, f)
}

// report tells of a subscription that is lost, if there was one.
func (w *wakes) report(ctx context.Context, silent bool) {
	w.mu.Lock()
	was, reports := w.live, w.reports
	w.mu.Unlock()
	if !was || ctx.Err() != nil {
		return
	}
	reason := "error"
	if silent {
		reason = "silent"
		w.unheard()
	}
	for _, f := range reports {
		f(reason)
	}
}

// unheard notes that a subscription has ended in silence. Should it have heard no ping at
// all, nor the one before it, then the connections are well: the server does not pass on
// what a script publishes, or not to us.
func (w *wakes) unheard() {
	w.mu.Lock()
	if !w.hears {
		w.deaf++
	}
	lasts := w.deaf >= 2
	w.mu.Unlock()
	if lasts {
		w.hush()
	}
}

// hush notes that news does not get through, and will not unless somebody mends that. Every
// waiter is made to ask, and is told to poll from then on, until a ping is heard.
func (w *wakes) hush() {
	w.mu.Lock()
	was, reports := w.mute, w.reports
	w.mute = true
	if !was {
		w.rouse()
	}
	w.mu.Unlock()
	if was {
		return
	}
	for _, f := range reports {
		f("mute")
	}
}

// refused reports whether a server said no to this, and not only for now. One that lets nobody
// in, as while a password is rotated, has nothing against news.
func refused(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && !errors.Is(redisscript.Classify(err), driver.ErrTransient) &&
		!redis.HasErrorPrefix(err, "NOAUTH") && !redis.HasErrorPrefix(err, "WRONGPASS")
}

// subscribe makes one subscription and passes its messages on until it breaks. It
// reports whether that was because our own pings were not heard.
func (w *wakes) subscribe(ctx context.Context) (silent bool) {
	ps := w.rdb.Subscribe(ctx)
	var pinging sync.WaitGroup
	var unheard atomic.Bool
	defer func() {
		pinging.Wait()
		silent = unheard.Load()
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Receive does not look at its context. Closing is what wakes it.
	defer context.AfterFunc(ctx, func() { _ = ps.Close() })()
	defer func() { _ = ps.Close() }()

	w.mu.Lock()
	w.hears = false
	w.mu.Unlock()
	if err := ps.Subscribe(ctx, w.prefix+w.id); err != nil {
		redisscript.Rediscover(ctx, w.rdb, err)
		return false
	}
	subscribed := make(chan struct{}, 1)
	pinging.Go(func() {
		w.ping(ctx, subscribed, func() {
			unheard.Store(true)
			cancel()
		})
	})
	for {
		msg, err := ps.Receive(ctx)
		switch msg := msg.(type) {
		case *redis.Subscription:
			w.alive(true)
			select {
			case subscribed <- struct{}{}:
			default: // go-redis has made it again by itself
			}
		case *redis.Message:
			w.dispatch(msg.Payload)
		}
		if err != nil {
			if refused(err) {
				w.hush()
			}
			redisscript.Rediscover(ctx, w.rdb, err)
			return false
		}
	}
}

// alive notes that there is a subscription, or that one has ended, and makes every waiter ask when that
// changes: news may have been missed before it was there, or while it was broken.
func (w *wakes) alive(live bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// Last: a waiter that goes on because of it must not find that news may have been missed.
	defer w.once.Do(func() { close(w.first) })
	if live == w.live && !live {
		return
	}
	w.live, w.heard = live, time.Now()
	w.changes++
	w.rouse()
}

// rouse makes every waiter ask. The caller holds mu.
func (w *wakes) rouse() {
	for _, t := range w.tokens {
		if t.queued {
			t.wake(driver.Grant{Status: driver.Queued, Reconnect: true})
		}
	}
}

// ping publishes to ourselves, once there is a subscription and while anybody waits, and
// ends the subscription that does not hear it. Its ticker rests while nobody waits: a
// client that once waited should not wake its machine every second from then on.
func (w *wakes) ping(ctx context.Context, subscribed <-chan struct{}, end func()) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	w.mu.Lock()
	w.heard = time.Now() // nothing was missed yet: the subscription is new
	w.idle = false
	w.mu.Unlock()
	rest := 0 // ticks that pass without a ping while they are in vain
	for {
		first := false
		select {
		case <-ctx.Done():
			return
		case <-subscribed:
			first = true
		case <-w.stir:
			tick.Reset(pingEvery)
			continue
		case <-tick.C:
		}
		w.mu.Lock()
		mute, bound := w.mute, pingMissed
		if mute {
			bound = muteMissed
		}
		waiting, missed := w.waiting > 0, time.Since(w.heard) > bound
		if w.idle = !waiting; w.idle {
			tick.Stop() // until somebody stirs, which under mu cannot have been missed
		}
		w.mu.Unlock()
		switch {
		case waiting && missed:
			end()
			return
		case mute && rest > 0 && !first:
			rest--
		case waiting || first:
			w.publish(ctx)
			rest = muteRest
		}
	}
}

// publish sends a ping the way that news goes: from a script, of any node. The server may
// let a client publish but not its scripts, or pass on only what one node publishes. The
// wrong version sent the command PUBLISH, was heard, and waited for news that no script
// could send.
func (w *wakes) publish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pingEvery)
	defer cancel()
	key, ping := w.nextPing()
	_, err := redisscript.Run(ctx, w.rdb, pingScript.one.Call("wake", 2, key).With(w.prefix+w.id, ping))
	if err == nil {
		return
	}
	w.mu.Lock()
	w.heard = time.Now() // It was not the subscription that failed, or not it alone.
	w.mu.Unlock()
	// An error that may pass does not count: if the server is overloaded, thousands of waiters
	// that begin to poll are the last thing that it needs.
	if refused(err) {
		w.hush()
	}
}

// nextPing returns what to say next, and the key that says which node of a Cluster is to say it.
// There is never anything in that.
func (w *wakes) nextPing() (key, ping string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pings++
	number := strconv.FormatUint(w.pings, 10)
	return w.prefix + w.id + ":" + number, w.seal("ping " + number)
}

func (w *wakes) close() {
	w.mu.Lock()
	w.closed = true
	stop, stopped := w.stop, w.stopped
	w.mu.Unlock()
	if stop != nil {
		stop()
		<-stopped
	}
}
