package redisdriver

import (
	"context"
	mathrand "math/rand/v2"
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
	}
	for _, f := range reports {
		f(reason)
	}
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

	if err := ps.Subscribe(ctx, w.prefix+w.id, w.prefix+w.id+"!"); err != nil {
		redisscript.Rediscover(ctx, w.rdb, err)
		return false
	}
	pinging.Go(func() {
		w.ping(ctx, func() {
			unheard.Store(true)
			cancel()
		})
	})
	for {
		msg, err := ps.Receive(ctx)
		switch msg := msg.(type) {
		case *redis.Subscription:
			if msg.Count == 2 { // to both channels
				w.alive(true)
			}
		case *redis.Message:
			w.dispatch(msg.Payload)
		}
		if err != nil {
			redisscript.Rediscover(ctx, w.rdb, err)
			return false
		}
	}
}

// alive notes that there is a subscription, or that one has ended, and makes every waiter ask when that
// changes: news may have been missed before it was there, or while it was broken.
func (w *wakes) alive(live bool) {
	w.once.Do(func() { close(w.first) })
	w.mu.Lock()
	defer w.mu.Unlock()
	if live == w.live && !live {
		return
	}
	w.live, w.heard = live, time.Now()
	w.changes++
	for _, t := range w.tokens {
		if t.queued {
			t.wake(driver.Grant{Status: driver.Queued, Reconnect: true})
		}
	}
}

// ping publishes to ourselves and ends the subscription that does not hear it.
func (w *wakes) ping(ctx context.Context, end func()) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	w.mu.Lock()
	w.heard = time.Now() // nothing was missed yet: the subscription is new
	w.mu.Unlock()
	for first := true; ; first = false {
		w.mu.Lock()
		waiting, missed := w.waiting > 0, time.Since(w.heard) > pingMissed
		w.mu.Unlock()
		switch {
		case waiting && missed:
			end()
			return
		case waiting || first:
			w.publish(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (w *wakes) publish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pingEvery)
	defer cancel()
	err := w.rdb.Publish(ctx, w.prefix+w.id, "ping").Err()
	if err == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// It was not the subscription that failed, or not it alone.
	w.heard = time.Now()
	// Who may not publish gets no pushes from others of its kind either.
	w.mute = w.mute || redis.HasErrorPrefix(err, "NOPERM")
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
