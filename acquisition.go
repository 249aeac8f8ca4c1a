package holdfast

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
)

const (
	// maxAsking is how many asks of one acquisition may be under way. A second one
	// gets through where the first hangs on a dead connection.
	maxAsking = 3
	// maxTries bounds how often TryLease repeats an ask that failed.
	maxTries = 3
	// maxLate bounds how many grants may come too late. Each keeps the lock from the
	// others for a TTL.
	maxLate = 10
)

var errTooSlow = errors.New("the store takes longer to answer than a lease lasts")

// acquisition is one attempt to get a lock, from the first ask to the grant or the
// end of patience.
type acquisition struct {
	c    *Client
	req  claim
	*bid // nil once the lock is held. That is guarded by mu for those who are not in run
	// open counts the asks of which it is not known whether the store has carried
	// them out or still will. As long as there are any, giving the token up must leave
	// a tombstone.
	open      atomic.Int32
	ceased    atomic.Bool // nobody wants the lock by this token any more
	settled   atomic.Bool // the release of its token is done
	straggled atomic.Bool // an ask has been answered since the token was given up

	// What follows is of the term, once the lock is granted.
	place int32    // in Client.terms, counted from 1; 0 if not there. Guarded by Client.mu
	cfg   *config  // as others on the same terms have it
	at    *doorway // where it passes from hand to hand; nil if it does not
	entry keepalive.Entry
	turn  turn
	fate  atomic.Pointer[error] // why it was lost; points to nil for no particular cause

	// leases are those on what was granted, of which there are several if they were
	// nested: the ones that are held, or else the one that was held last. Their ends are
	// guarded by mu, too.
	mu      sync.Mutex
	leases  []*Lease
	room    [1]*Lease // for most
	initial Lease     // which is the only one, mostly
	lowered bool      // a writer goes on as a reader
}

// claim is what of a request is still needed when it is granted.
type claim struct {
	Kind   driver.Kind
	Name   string
	Token  string
	Owner  string
	Shared bool
	Weight int64
}

// bid is what an acquisition needs until the lock is held. It belongs to the goroutine in
// run.
type bid struct {
	wait, notice  bool // as in the request
	fences, limit int64

	sent []time.Time // when the asks were sent; sent[0] is ask number first
	first,
	last uint64 // numbers of the oldest ask that is remembered, and of the newest

	asking  int               // asks that are not answered
	replies chan reply        // has room for all of them; nil before the first
	news    chan driver.Grant // see inbox
	due     time.Time         // when to ask again
	err     error             // why it takes so long: ErrLocked or an error of the store
	busy    bool              // the store has said ErrLocked
	wakeups Wakeups           // for hooks to see
	blocked []string          // carriers of holders that were in the way
	clean   bool              // the last answer left nothing behind in the store
	pause   time.Duration
	late    int  // grants that came too late to be of use
	loud    bool // say in the log why it takes so long: nobody gets an error

	// Room for what is sent first, which mostly is enough.
	firstAsk  driver.Request
	firstSent [1]time.Time
}

type reply struct {
	ask   uint64
	grant driver.Grant
	err   error
}

func newAcquisition(c *Client, want driver.Request, cfg *config) *acquisition {
	a := &acquisition{c: c, cfg: cfg}
	a.req = claim{want.Kind, want.Name, c.newToken(), want.Owner, want.Shared, want.Weight}
	a.bid = &bid{wait: want.Wait, notice: want.Notice, fences: want.Fences, limit: want.Limit, first: 1}
	a.sent = a.firstSent[:0]
	return a
}

// wake passes news on from the driver. If there is no room, the news that is in there
// makes the acquisition ask, and it learns everything then.
func (a *acquisition) wake(g driver.Grant) {
	switch g.Status {
	case driver.Lost:
		a.Lost(driver.ErrNotHeld)
	case driver.Wanted:
		a.wanted()
	default:
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.bid == nil {
			return
		}
		select {
		case a.inbox() <- g:
		default:
		}
	}
}

// inbox is where news goes, of which it has room for one. Most need none. The caller holds
// the acquisition's mu.
func (b *bid) inbox() chan driver.Grant {
	if b.news == nil {
		b.news = make(chan driver.Grant, 1)
	}
	return b.news
}

// won lets go of what a holder does not need: thousands of locks may be held for long. An
// ask that is still under way has its own hold on where its reply goes.
func (a *acquisition) won() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bid = nil
}

// run is the wait loop. It asks, and asks again every TTL/3, which is the heartbeat
// of a waiter, until the lock is granted or there is a reason to give up. After that
// somebody else may go on with it.
func (a *acquisition) run(ctx context.Context) (keepalive.Trust, int64, error) {
	var g driver.Grant
	var err error
	switch {
	case a.last > 0:
	case ctx.Done() == nil:
		// Nobody can call this off, so there is no need to wait for the answer on a
		// goroutine of its own; the detour would double the time a free lock takes.
		r, late := a.send(ctx, a.number())
		if late {
			a.straggle(ctx)
		}
		g, err = a.answer(r)
	default:
		a.ask(ctx)
	}
	for ; err == nil; g, err = a.event(ctx) {
		if g.Status == driver.Granted && ctx.Err() == nil {
			if trust, ok := a.trust(g.Ask); ok && trust.Left() > 0 {
				return trust, g.Fence, nil
			}
			// The news came so late that the lease it tells of is over, and somebody
			// else may hold the lock. Whether we do, a new ask will tell.
			if a.late++; a.late == maxLate {
				return keepalive.Trust{}, 0, errTooSlow
			}
			a.ask(ctx)
		}
	}
	return keepalive.Trust{}, 0, err
}

// event waits for the next thing to happen and returns what came of it: a grant, a
// reason to give up, or neither.
func (a *acquisition) event(ctx context.Context) (driver.Grant, error) {
	select {
	case r := <-a.replies: // a timer costs more than looking first
		return a.answer(r)
	default:
	}
	a.mu.Lock()
	news := a.inbox()
	a.mu.Unlock()
	timer := time.NewTimer(time.Until(a.due))
	defer timer.Stop()
	select {
	case r := <-a.replies:
		return a.answer(r)
	case g := <-news:
		a.noted(g)
		if g.Status != driver.Granted {
			a.ask(ctx)
		}
		return g, nil
	case <-timer.C:
		a.wakeups.Poll++
		a.ask(ctx)
		return driver.Grant{}, nil
	case <-ctx.Done():
		return driver.Grant{}, a.because(context.Cause(ctx))
	case <-a.c.closing.Done():
		return driver.Grant{}, ErrClosed
	}
}

func (a *acquisition) noted(g driver.Grant) {
	a.behind(g.Carrier)
	if g.Reconnect {
		a.wakeups.Reconnect++
	} else {
		a.wakeups.Notify++
	}
}

// behind notes who is in the way.
func (a *acquisition) behind(carrier string) {
	if carrier == "" {
		return
	}
	a.blocked = append(a.blocked, carrier)
	if a.at != nil {
		ahead := carrier // so that only here it has to go to the heap
		a.at.ahead.Store(&ahead)
	}
}

// ask sends the next ask, unless too many are under way.
func (a *acquisition) ask(ctx context.Context) {
	if a.asking == maxAsking {
		a.due = time.Now().Add(a.cfg.ttl / 3)
		return
	}
	if a.replies == nil {
		a.replies = make(chan reply, maxAsking)
	}
	r, replies := a.number(), a.replies
	a.c.wg.Add(1) // the operation that we are part of has not ended, so it may grow
	go func() {
		defer a.c.wg.Done()
		answer, late := a.send(ctx, r)
		replies <- answer
		if late {
			a.straggle(ctx)
		}
	}()
}

// number makes the next ask and notes when it is sent.
func (a *acquisition) number() *driver.Request {
	now := time.Now()
	a.asking++
	a.last++
	a.sent = append(a.sent, now)
	// A grant that rests on an ask older than the TTL is worth nothing.
	for now.Sub(a.sent[0]) > a.cfg.ttl {
		a.sent = a.sent[1:]
		a.first++
	}
	a.due = now.Add(a.cfg.ttl / 3)
	a.open.Add(1)
	r := &a.firstAsk
	if a.last > 1 { // nobody knows how long the driver looks at the first one
		r = new(driver.Request)
	}
	*r = driver.Request{
		Kind: a.req.Kind, Name: a.req.Name, Token: a.req.Token, Ask: a.last, TTL: a.cfg.ttl, Owner: a.req.Owner,
		Shared: a.req.Shared, Wait: a.wait, Notice: a.notice, Weight: a.req.Weight, Limit: a.limit, Fences: a.fences,
		Holder: a.c.holder, Wake: a.wake,
	}
	return r
}

// send carries an ask to the store, and returns the reply. With late, straggle is to be
// called when that is where it belongs.
func (a *acquisition) send(ctx context.Context, r *driver.Request) (_ reply, late bool) {
	g, err := a.attempt(ctx, r)
	if err == nil || errors.Is(err, driver.ErrNotExecuted) || errors.Is(err, driver.ErrNotHeld) {
		a.open.Add(-1)
	}
	if end := ctx.Err(); end != nil && errors.Is(err, end) {
		// Who goes on with this when its waiter gives up has a context of its own.
		err = fmt.Errorf("%w: %w", driver.ErrTransient, err)
	}
	return reply{r.Ask, g, err}, err == nil && g.Status != driver.Busy && a.ceased.Load()
}

// straggle deals with an ask that was answered after its token was given up. The store may
// have handled it after the release, if that has no tombstone any more. The release is
// repeated, by whoever comes last: it or us. (Who gives up from now on releases after this
// ask, which is answered.)
func (a *acquisition) straggle(ctx context.Context) {
	a.straggled.Store(true)
	if a.settled.Load() && a.straggled.Swap(false) {
		s := a.settlement(ctx)
		_ = s.run()
	}
}

func (a *acquisition) attempt(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if a.cfg.from == nil {
		return a.c.d.Acquire(ctx, r)
	}
	d, _ := driver.As[driver.Attacher](a.c.d)
	return d.Attach(ctx, *a.cfg.from, r)
}

// trust returns the trust that follows from a grant resting on that ask.
func (a *acquisition) trust(ask uint64) (keepalive.Trust, bool) {
	if ask < a.first || ask > a.last {
		return keepalive.Trust{}, false
	}
	return keepalive.NewTrust(a.sent[ask-a.first], a.cfg.ttl), true
}

// answer looks at the reply to an ask. It returns a grant if there is one, or an
// error if it is no use to go on, and otherwise sets the time of the next ask.
func (a *acquisition) answer(r reply) (driver.Grant, error) {
	a.asking--
	if r.err != nil {
		return driver.Grant{}, a.failed(r.err)
	}
	a.c.answer()
	a.pause = 0
	a.tell(nil)
	a.clean = r.grant.Status == driver.Busy
	a.behind(r.grant.Carrier)
	switch r.grant.Status {
	case driver.Granted:
		if a.cfg.from != nil {
			a.req.Shared, a.req.Weight, a.req.Owner = r.grant.Shared, r.grant.Weight, r.grant.Owner
		}
		return r.grant, nil
	case driver.Busy:
		a.queued()
		if !a.wait {
			return driver.Grant{}, ErrLocked
		}
		// The driver has no queue. Jitter keeps the waiters from coming in step.
		a.again(min(max(r.grant.RetryAfter, 50*time.Millisecond), a.cfg.ttl/3))
	case driver.Queued:
		a.queued()
		if r.grant.RetryAfter > 0 && r.grant.RetryAfter < a.cfg.ttl/3 {
			a.due = time.Now().Add(r.grant.RetryAfter)
		}
	}
	return driver.Grant{}, nil
}

// failed decides whether an error ends the acquisition.
func (a *acquisition) failed(err error) error {
	if errors.Is(err, ErrLimitConflict) || errors.Is(err, ErrLimitExceeded) {
		a.c.answer() // it is one, if not what we had hoped for
	}
	if !errors.Is(err, driver.ErrTransient) || !a.wait && a.last >= maxTries {
		return err
	}
	if a.loud && a.err == nil {
		a.cfg.log().Warn("holdfast: cannot lock yet", "lock", a.req.Name, "error", err)
	}
	a.err = err
	a.tell(&err)
	a.pause = min(max(2*a.pause, 5*time.Millisecond), time.Second, a.cfg.ttl/6)
	a.again(a.pause)
	return nil
}

// tell lets those behind it know what keeps it from being granted, if not a holder.
func (a *acquisition) tell(trouble *error) {
	if a.at != nil {
		a.at.trouble.Store(trouble)
	}
}

// again sets the next ask to a random time around d from now.
func (a *acquisition) again(d time.Duration) {
	a.due = time.Now().Add(d/2 + rand.N(d))
}

// because adds to the end of a context what was waited for.
func (a *acquisition) because(cause error) error {
	if a.err == nil {
		return cause
	}
	return fmt.Errorf("%w: %w", cause, a.err)
}

// undo gives up the token in the background, whatever became of its asks: its place
// in the queue, or a grant that nobody took.
func (a *acquisition) undo(ctx context.Context) {
	if a.clean && a.asking == 0 && a.open.Load() == 0 {
		return
	}
	a.ceased.Store(true)
	a.c.wg.Add(1)
	a.settlement(ctx).background()
}

func (a *acquisition) driverLease() driver.Lease {
	l := driver.Lease{Kind: a.req.Kind, Name: a.req.Name, Token: a.req.Token, TTL: a.cfg.ttl, Owner: a.req.Owner}
	if held := a.lease(); held != nil {
		l.Carrier = held.carrier()
	}
	return l
}
