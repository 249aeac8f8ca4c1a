package holdfast

import (
	"context"
	"fmt"
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
)

var errTooSlow = fmt.Errorf("%w: it takes longer to answer than a lease lasts", driver.ErrTransient)

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
	room    [1]*Lease   // for most
	initial Lease       // which is the only one, mostly
	lowered atomic.Bool // a writer goes on as a reader. Set with mu held, read without
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
	late    int        // grants that came too late to be of use
	said    *complaint // what the log says of that: own, or that of who began earlier
	own     complaint

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
func (a *acquisition) run(ctx context.Context) (keepalive.Trust, driver.Grant, error) {
	var g driver.Grant
	var err error
	switch {
	case a.last > 0:
	case ctx.Done() == nil && a.c.brisk():
		// Nobody can call this off, so there is no need to wait for the answer on a
		// goroutine of its own; the detour would double the time a free lock takes. But
		// if the store may be in trouble, somebody has to say so.
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
				return trust, g, nil
			}
			// The news came so late that the lease it tells of is over, and somebody
			// else may hold the lock. Whether we do, a new ask will tell. But such a
			// grant keeps the lock from the others for a TTL, so they get their turn first.
			if a.late++; !a.wait && a.late == maxTries {
				return keepalive.Trust{}, driver.Grant{}, errTooSlow
			}
			a.trouble(errTooSlow)
			a.said.persist(errTooSlow)
			a.again(min(a.cfg.ttl<<min(a.late, 8), max(a.cfg.ttl, time.Second)))
		}
	}
	return keepalive.Trust{}, driver.Grant{}, err
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
	timer := time.NewTimer(min(time.Until(a.due), a.said.tell()))
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
		if !time.Now().Before(a.due) { // else it was to complain
			a.wakeups.Poll++
			a.ask(ctx)
		}
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
