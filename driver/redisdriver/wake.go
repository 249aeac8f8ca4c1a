package redisdriver

import (
	"crypto/rand"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// wakes is where news for waiters comes in: one channel and one subscription for
// the whole client, however many locks it waits for. The subscription is made when
// somebody first has to wait, and before the store learns that they do: from then on
// a client that nobody can hear is one that has gone.
//
// Nothing else depends on it. While it is broken, or if the user of the client may not
// subscribe at all, or scripts not publish, waiters ask every 50 to 250 ms instead.
type wakes struct {
	rdb    redis.UniversalClient
	base   string // of all keys and channels
	prefix string // of all wake channels
	id     string // of this client; its channel is prefix + id
	secret string // with which news for it is sealed

	reached, heeding string // how others reach it, without and with notices

	mu      sync.Mutex
	tokens  map[string]*watch
	waiting int           // tokens that were last answered Queued
	live    bool          // the subscription is acknowledged
	changes int           // how often live has changed
	mute    bool          // the server passes no news on, or not to us, until a ping comes in
	heard   time.Time     // when the last of our own pings came in
	hears   bool          // one did on this subscription
	deaf    int           // subscriptions in a row that were made, and heard none
	pings   uint64        // that were sent
	pinged  uint64        // the last of them that came in
	idle    bool          // nobody waits, so there are no pings
	stir    chan struct{} // ends that; has room for one
	first   chan struct{} // closed when the first subscription is there, or has failed
	once    sync.Once     // closes first
	stop    func()        // ends the listener, nil if none was started
	stopped chan struct{} // closed when it has ended
	closed  bool
	reports []func(reason string)
}

// watch is what the client knows of one token.
type watch struct {
	key   any // of the lock of which it was first heard, as an argument: a string
	said  any // the token, the same
	wake  func(driver.Grant)
	heeds bool // wants to hear when it is wanted

	// The rest is guarded by wakes.mu.
	sent    bool   // an ask may have reached Redis
	waited  bool   // it was queued once, so others want the lock, too
	queued  bool   // last answered Queued
	asking  int32  // asks under way
	granted uint64 // the ask that the last grant rests on, 0 for none
	place   *place // nil if it has none; there may be very many that have none
}

// place is one in the queue of a lock.
type place struct{ birth, number int64 }

func (t *watch) token() string { return t.said.(string) }

func newWakes(rdb redis.UniversalClient, base string) *wakes {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	w := &wakes{rdb: rdb, base: base, prefix: base + "wake:", id: hex.EncodeToString(id[:]), secret: rand.Text(), tokens: map[string]*watch{},
		first: make(chan struct{}), stir: make(chan struct{}, 1)}
	w.reached = w.id + "." + w.secret
	w.heeding = w.reached + "!"
	return w
}

// client is how other clients reach this request, - for not at all. See script/lib/record.lua.
func (w *wakes) client(r *driver.Request) string {
	switch {
	case r.Wake == nil:
		return nobody
	case r.Notice:
		return w.heeding
	}
	return w.reached
}

func unheeded(driver.Grant) {}

// expect makes ready for news of the token, of which an ask is about to be sent.
func (w *wakes) expect(r *driver.Request) *watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.tokens[r.Token]
	if t == nil {
		t = &watch{key: lockAt(w.base, r.Kind, r.Name).key, said: r.Token, wake: r.Wake, heeds: r.Notice}
		if t.wake == nil {
			t.wake = unheeded
		}
		w.tokens[r.Token] = t
	}
	t.asking++
	return t
}

// failed notes that an ask came to nothing that we know of. reached says whether it may
// have reached Redis, over that nobody will ask again with this context. If there is
// nothing to wait for any more, the token is forgotten: a release that knows nothing of
// it asks Redis.
func (w *wakes) failed(t *watch, reached, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.asking--
	t.sent = t.sent || reached
	if t.asking == 0 && !t.queued && t.granted == 0 && (reached || over) && w.tokens[t.token()] == t {
		delete(w.tokens, t.token())
	}
}

// forget ends the news of a token, and returns what was known of it. sent is whether an ask of
// it may have reached Redis, or may yet: true if nothing is known.
func (w *wakes) forget(token string) (t *watch, sent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t = w.tokens[token]
	if t == nil {
		return nil, true
	}
	w.wait(t, false)
	delete(w.tokens, token)
	return t, t.sent || t.asking > 0
}

// granted notes that a token waits no more. It still wants to hear of a loss.
func (w *wakes) granted(t *watch, ask uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.asking--
	t.sent = true
	w.served(t, ask)
}

// served notes that a token has left the queue: it must not come back to its place, should
// it ask again when its lease is over. The caller holds mu.
func (w *wakes) served(t *watch, ask uint64) {
	t.granted = max(t.granted, ask)
	t.place = nil
	w.wait(t, false)
}

// seat returns the place of a token in the queue, 0 if it never had one, and the number of
// changes of the subscription so far: an ask is about to be sent.
func (w *wakes) seat(t *watch) (at place, changes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.place != nil {
		at = *t.place
	}
	return at, w.changes
}

// queued notes that a token waits in a place, as the answer to an ask, and says when it
// should ask again. changes is what seat returned before the ask was sent, n the time in
// ms that the script named, 0 for none.
func (w *wakes) queued(t *watch, ask uint64, changes int, at place, n int64) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.asking--
	t.sent = true
	// The answer may be late: the token may have been granted the lock since, or
	// released.
	if ask > t.granted && w.tokens[t.token()] == t {
		t.place = &at
		t.waited = true
		w.wait(t, true)
	}
	after := time.Duration(n) * time.Millisecond
	if poll := 50*time.Millisecond + mathrand.N(200*time.Millisecond); (!w.live || w.mute) && (after == 0 || poll < after) {
		after = poll
	}
	// A grant may have been pushed since the script ran, when nobody listened. What
	// makes the waiters ask then, see alive, does not know of one whose answer is under way.
	if changes != w.changes {
		after = time.Millisecond
	}
	return after
}

// wait sets whether a token waits. The caller holds mu.
func (w *wakes) wait(t *watch, waits bool) {
	switch {
	case waits && !t.queued:
		if w.waiting++; w.waiting == 1 {
			w.heard = time.Now() // nobody listened for pings until now
			if w.idle {
				w.idle = false
				select {
				case w.stir <- struct{}{}:
				default:
				}
			}
		}
	case !waits && t.queued:
		w.waiting--
	}
	t.queued = waits
}

// seal returns a message with news. Its last line proves that the news is of somebody that may
// run scripts on our locks, or our own: see publish in script/lib/queue.lua.
func (w *wakes) seal(news string) string {
	sum := sha1.Sum([]byte(w.secret + news + w.secret))
	return news + "\n" + hex.EncodeToString(sum[:])
}

// dispatch passes on what a message says, a line for each token it is about: "granted
// token ask fence fences [tag]", "ask token", "lost token", "wanted token" or, about none,
// "ping number". It ignores a message without our seal: anybody may publish on our channel
// that has the right to that, and to nothing else.
//
// Such a stranger cannot keep a message from coming, but can say it again, at any time. So all
// news is such that it does no harm then: a token that was lost stays lost, and to ask once more
// costs a call. Old grants and pings are told from new ones by their numbers.
func (w *wakes) dispatch(payload string) {
	news := payload[:max(0, strings.LastIndexByte(payload, '\n'))]
	if subtle.ConstantTimeCompare([]byte(payload), []byte(w.seal(news))) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for line := range strings.Lines(news) {
		w.news(strings.Split(strings.TrimSuffix(line, "\n"), " "))
	}
}

func (w *wakes) news(word []string) {
	switch {
	case word[0] == "ping" && len(word) == 2:
		if n, err := strconv.ParseUint(word[1], 10, 64); err == nil && n > w.pinged {
			w.heard, w.hears, w.deaf, w.mute, w.pinged = time.Now(), true, 0, false, n
		}
	case word[0] == "granted" && (len(word) == 5 || len(word) == 6):
		ask, err1 := strconv.ParseUint(word[2], 10, 64)
		fence, err2 := strconv.ParseInt(word[3], 10, 64)
		fences, err3 := strconv.ParseInt(word[4], 10, 64)
		// A grant that rests on no later ask than the last one is known.
		if t := w.tokens[word[1]]; t != nil && errors.Join(err1, err2, err3) == nil && ask > t.granted {
			w.served(t, ask)
			g := driver.Grant{Status: driver.Granted, Ask: ask, Fence: fence, Fences: fences}
			if len(word) == 6 {
				g.HolderTag = fit(word[5])
			}
			t.wake(g)
		}
	case word[0] == "ask" && len(word) == 2:
		if t := w.tokens[word[1]]; t != nil {
			t.wake(driver.Grant{Status: driver.Queued})
		}
	case word[0] == "lost" && len(word) == 2:
		if t := w.tokens[word[1]]; t != nil {
			t.wake(driver.Grant{Status: driver.Lost})
		}
	case word[0] == "wanted" && len(word) == 2:
		if t := w.tokens[word[1]]; t != nil && t.heeds {
			t.wake(driver.Grant{Status: driver.Wanted})
		}
	}
}

// wanted notes that a renewal found somebody waiting.
func (w *wakes) wanted(token string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.news([]string{"wanted", token})
}
