package news

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Token is what a client knows of one acquisition.
type Token[X any] struct {
	Name   string
	Beside X

	wake func(driver.Grant)

	// The rest is guarded by Hub.mu.
	heeds      bool          // wants to hear when it is wanted
	sent       bool          // an ask may have reached the store
	waited     bool          // it was queued once, so others want the lock, too
	queued     bool          // last answered Queued
	asking     int32         // asks under way
	grantedAsk uint64        // the ask that the last grant rests on, 0 for none
	queuedAsk  uint64        // the last ask that was answered Queued: grants of earlier ones are over
	place      *driver.Place // where it waits, or did last; nil if nowhere: there may be very many of those
}

// Waited reports whether the token was queued once. It is for the release of a token, which the
// hub has forgotten.
func (t *Token[X]) Waited() bool { return t != nil && t.waited }

// Expect makes ready for news of a request's token, of which an ask is about to be sent.
func (h *Hub[X]) Expect(r *driver.Request) *Token[X] {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tokens[r.Token]
	if t == nil {
		t = &Token[X]{Name: r.Token, Beside: h.beside(r), wake: r.Wake, heeds: r.Notice}
		if t.wake == nil {
			t.wake = ignore
		}
		if at := r.Place; at.Number != 0 {
			t.place = &at
		}
		h.tokens[r.Token] = t
	}
	t.asking++
	return t
}

func ignore(driver.Grant) {}

// Failed notes that an ask came to nothing, as far as is known. reached says whether it may
// have reached the store, over that nobody will ask again with this context. If there is
// nothing to wait for any more, the token is forgotten: a release that knows nothing of it
// asks the store.
func (h *Hub[X]) Failed(t *Token[X], reached, over bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.asking--
	t.sent = t.sent || reached
	if t.asking == 0 && !t.queued && t.grantedAsk == 0 && (reached || over) && h.tokens[t.Name] == t {
		delete(h.tokens, t.Name)
	}
}

// Forget ends the news of a token, and returns what was known of it, or nil. sent is whether an
// ask of it may have reached the store, or may yet: true if nothing is known.
func (h *Hub[X]) Forget(name string) (t *Token[X], sent bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t = h.tokens[name]
	if t == nil {
		return nil, true
	}
	h.wait(t, false)
	delete(h.tokens, name)
	return t, t.sent || t.asking > 0
}

// Granted notes that a token waits no more, as the answer to an ask. It still wants to hear of
// a loss.
func (h *Hub[X]) Granted(t *Token[X], ask uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.asking--
	t.sent = true
	h.served(t, ask)
}

// Buried ends the news of a token that the store has buried, and is why its ask fails. The place is
// told although news of the grant may have come: too late, or nobody would have asked.
func (h *Hub[X]) Buried(t *Token[X]) error {
	h.Forget(t.Name)
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.place == nil {
		return driver.Unheard{}
	}
	return driver.Unheard{Place: *t.place}
}

// served notes that a token has left the queue. The caller holds mu.
func (h *Hub[X]) served(t *Token[X], ask uint64) {
	t.grantedAsk = max(t.grantedAsk, ask)
	h.wait(t, false)
}

// Place returns the place of a token in the queue, the session of the subscription if it counts,
// else 0, and the number of changes of the subscription so far: an ask is about to be sent.
func (h *Hub[X]) Place(t *Token[X]) (at driver.Place, session int32, changes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// If it asks again after a lease, it must not get its old place.
	if t.place != nil && (t.queued || t.grantedAsk == 0) {
		at = *t.place
	}
	if h.counts() {
		session = h.session
	}
	return at, session, h.changes
}

// Queued notes that a token waits in a place, as the answer to an ask, and says when it should
// ask again. changes is what [Hub.Place] returned before the ask was sent, after the time that
// the store named, 0 for none.
func (h *Hub[X]) Queued(t *Token[X], ask uint64, changes int, at driver.Place, after time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.asking--
	t.sent = true
	// The answer may be late: the token may have been granted the lock since, or released.
	if ask > t.grantedAsk && h.tokens[t.Name] == t {
		t.place = &at
		t.waited = true
		t.queuedAsk = max(t.queuedAsk, ask)
		h.wait(t, true)
	}
	if poll := 50*time.Millisecond + rand.N(200*time.Millisecond); !h.counts() && (after == 0 || poll < after) {
		after = poll
	}
	// A grant may have been told since the store answered, when nobody listened. Then set
	// has the waiters ask, but does not know of one whose answer is under way.
	if changes != h.changes {
		after = time.Millisecond
	}
	return after
}

// wait sets whether a token waits. The caller holds mu.
func (h *Hub[X]) wait(t *Token[X], waits bool) {
	switch {
	case waits && !t.queued:
		if h.waiting++; h.waiting == 1 {
			tell(h.waiterCame)
		}
	case !waits && t.queued:
		h.waiting--
	}
	t.queued = waits
}

func tell(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Hear passes on one piece of news: "granted token ask fence fences [tag]", "ask token [tag]",
// "lost token", "stolen token text", "wanted token" or, about none, "ping". The tag is the lock's holder's.
//
// News that is heard twice does no harm, as a stranger may be able to repeat it: a token that
// was lost stays lost, to ask once more costs a call, and a grant that rests on no later ask
// than the last one is known. One that rests on an earlier ask than one that was answered with a
// place in the queue is over.
func (h *Hub[X]) Hear(line string) {
	if line == "ping" {
		h.pong()
		return
	}
	word := strings.Split(line, " ")
	if len(word) < 2 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tokens[word[1]]
	switch {
	case t == nil:
	case word[0] == "granted" && (len(word) == 5 || len(word) == 6):
		ask, err1 := strconv.ParseUint(word[2], 10, 64)
		fence, err2 := strconv.ParseInt(word[3], 10, 64)
		fences, err3 := strconv.ParseInt(word[4], 10, 64)
		if errors.Join(err1, err2, err3) == nil && ask > t.grantedAsk && ask >= t.queuedAsk {
			h.served(t, ask)
			t.wake(driver.Grant{Status: driver.Granted, Ask: ask, Fence: fence, Fences: fences, HolderTag: tag(word[5:])})
		}
	case word[0] == "ask" && len(word) <= 3:
		t.wake(driver.Grant{Status: driver.Queued, HolderTag: tag(word[2:])})
	case word[0] == "lost" && len(word) == 2:
		t.wake(driver.Grant{Status: driver.Lost})
	case word[0] == "stolen":
		t.wake(driver.Grant{Status: driver.Lost, Holder: strings.Join(word[2:], " ")})
	case word[0] == "wanted" && len(word) == 2 && t.heeds:
		t.wake(driver.Grant{Status: driver.Wanted})
	}
}

// tag returns the tag that ends a piece of news, or nothing.
func tag(word []string) string {
	if len(word) == 0 {
		return ""
	}
	return Tag(word[0])
}

// Tag returns what a store says is a tag, or nothing if it is none.
func Tag(s string) string {
	if s == "-" || len(s) > driver.MaxHolderTag || strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return ""
	}
	return s
}

// Heed has a token hear from now on when it is wanted. The store is about to be asked for that.
func (h *Hub[X]) Heed(ctx context.Context, name string) {
	if !h.Tried() {
		h.Prepare(ctx)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.tokens[name]; t != nil {
		t.heeds = true
	}
}

// Wanted notes that a renewal found somebody waiting.
func (h *Hub[X]) Wanted(name string) { h.Hear("wanted " + name) }
