package pgdriver

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// token is what the client knows of one acquisition.
type token struct {
	name  string
	wake  func(driver.Grant)
	heeds bool // wants to hear when it is wanted

	// The rest is guarded by news.mu.
	sent    bool   // an ask may have reached the server
	queued  bool   // last answered Queued
	asking  int32  // asks under way
	granted uint64 // the ask that the last grant rests on, 0 for none
	place   *int64 // in the queue, nil if it never had one
}

// client is what the server calls to wake this request, nil for nothing.
func (n *news) client(r *driver.Request) *string {
	if r.Wake == nil {
		return nil
	}
	return &n.id
}

// expect makes ready for news of the token, of which an ask is about to be sent.
func (n *news) expect(r *driver.Request) *token {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.tokens[r.Token]
	if t == nil {
		t = &token{name: r.Token, wake: r.Wake, heeds: r.Notice}
		if t.wake == nil {
			t.wake = func(driver.Grant) {}
		}
		n.tokens[r.Token] = t
	}
	t.asking++
	return t
}

// seat returns the place of a token in the queue, the number of the session that serves the channel if it
// surely does, and the number of changes of the subscription so far: an ask is about to be sent.
func (n *news) seat(t *token) (place *int64, listener *int32, changes int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.live {
		number := n.number
		listener = &number
	}
	return t.place, listener, n.changes
}

// failed notes that an ask came to nothing that we know of. reached says whether it may
// have reached the server, over that nobody will ask again with this context. If there is
// nothing to wait for any more, the token is forgotten: a release that knows nothing of
// it asks the server.
func (n *news) failed(t *token, reached, over bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t.asking--
	t.sent = t.sent || reached
	if t.asking == 0 && !t.queued && t.granted == 0 && (reached || over) && n.tokens[t.name] == t {
		delete(n.tokens, t.name)
	}
}

// forget ends the news of a token. It reports whether an ask of it may have reached the
// server, or may yet: true if nothing is known of it.
func (n *news) forget(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.tokens[name]
	if t == nil {
		return true
	}
	n.wait(t, false)
	delete(n.tokens, name)
	return t.sent || t.asking > 0
}

// granted notes that a token waits no more. It still wants to hear of a loss.
func (n *news) granted(t *token, ask uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t.asking--
	t.sent = true
	n.served(t, ask)
}

// served notes that a token has left the queue: it must not come back to its place, should
// it ask again when its lease is over. The caller holds mu.
func (n *news) served(t *token, ask uint64) {
	t.granted = max(t.granted, ask)
	t.place = nil
	n.wait(t, false)
}

// queued notes that a token waits in a place, as the answer to an ask, and says when it
// should ask again. changes is what seat returned before the ask was sent, after the time
// that the server named, 0 for none.
func (n *news) queued(t *token, ask uint64, changes int, place int64, after time.Duration) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	t.asking--
	t.sent = true
	// The answer may be late: the token may have been granted the lock since, or
	// released.
	if ask > t.granted && n.tokens[t.name] == t {
		t.place = &place
		n.wait(t, true)
	}
	if poll := 50*time.Millisecond + rand.N(200*time.Millisecond); !n.live && (after == 0 || poll < after) {
		after = poll
	}
	// A grant may have been told since the server answered, when nobody listened. Then alive
	// has the waiters ask, but does not know of one whose answer is under way.
	if changes != n.changes {
		after = time.Millisecond
	}
	return after
}

// wait sets whether a token waits. The caller holds mu.
func (n *news) wait(t *token, waits bool) {
	switch {
	case waits && !t.queued:
		if n.waiting++; n.waiting == 1 {
			select {
			case n.stir <- struct{}{}:
			default:
			}
		}
	case !waits && t.queued:
		n.waiting--
	}
	t.queued = waits
}

// hear passes on what a notification says: "granted token ask fence fences [tag]", "ask
// token [tag]", "lost token" or "wanted token".
func (n *news) hear(payload string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	word := strings.Split(payload, " ")
	if len(word) < 2 {
		return
	}
	t := n.tokens[word[1]]
	switch {
	case t == nil:
	case word[0] == "granted" && (len(word) == 5 || len(word) == 6):
		ask, err1 := strconv.ParseUint(word[2], 10, 64)
		fence, err2 := strconv.ParseInt(word[3], 10, 64)
		fences, err3 := strconv.ParseInt(word[4], 10, 64)
		if errors.Join(err1, err2, err3) == nil {
			n.served(t, ask)
			g := driver.Grant{Status: driver.Granted, Ask: ask, Fence: fence, Fences: fences}
			if len(word) == 6 {
				g.HolderTag = word[5]
			}
			t.wake(g)
		}
	case word[0] == "ask":
		g := driver.Grant{Status: driver.Queued}
		if len(word) == 3 {
			g.HolderTag = word[2]
		}
		t.wake(g)
	case word[0] == "lost":
		t.wake(driver.Grant{Status: driver.Lost})
	case word[0] == "wanted" && t.heeds:
		t.wake(driver.Grant{Status: driver.Wanted})
	}
}

// wanted notes that a renewal found somebody waiting.
func (n *news) wanted(name string) { n.hear("wanted " + name) }
