// Package local is what a client knows of its locks. It knows which goroutines of this
// process want a lock, and which of them hold it. It passes a lock from one to the next
// without the store.
//
// Goroutines that want one lock form a queue, a cohort. Only its first goroutine is at the
// store (Dice, Marathe, Shavit: Lock Cohorting, PPoPP 2012). A grant of the store passes from
// hand to hand for a turn. Then other processes get their turn.
//
// # From Lock to the store and back
//
// Mutex.Lock finds the Lock by its name (Enter) and calls [Lock.Acquire], the one visible
// loop. It leaves the Hold with the Lock (Keep), where Unlock finds it. In the loop a goroutine
// first waits in the queue of this process (waitTurn). Then it either has a grant that has passed
// to it, or it must go to the store with a [Grant] that nobody has yet. The [token.Token] of that
// calls [driver.Driver.Acquire]. When the store has granted
// the lock, firstHold makes a [Hold] and gives the Grant to the Keeper, which renews it.
// Unlock takes the Hold back (TakeBack), and ends it in this process (leave). Then the Grant
// passes to the next goroutine, lingers, or is released at the store.
//
// A lost lease ends in [Grant.Lost]. The Keeper calls it, or the driver's Wake, or the first
// call that sees it by the clock (Hold.Err) or hears it from the store. Grant.Lost ends the
// holds, and so the contexts of the leases.
//
// # Locking
//
// All that is known of one lock name, and one owner, stands in one Lock, under one mutex. The order of all
// mutexes is
//
//	driver's own -> Lock.mu -> Token's, Keeper's, Registry.mu, those of the contexts
//	a Complaint's -> that of the session's outages
//
// No call of a driver, of a hook or of the user's is made under any of ours.
package local

import (
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
	"github.com/holdfast-go/holdfast/internal/session"
	"github.com/holdfast-go/holdfast/internal/token"
)

// ID identifies a lock.
type ID = token.ID

// Options say how a lock is to be held. A grant passes only between holds with equal
// Options.
type Options struct {
	TTL      time.Duration
	Linger   time.Duration       // how long a grant is kept that nobody wants
	Owner    string              // on whose behalf exclusive holds are; empty for nobody
	Holder   string              // for people; empty for that of the session
	Endure   time.Duration       // gives up if the store owes an answer for so long; 0: never
	Replicas driver.Confirmation // of a grant; zero for none
	Fsync    driver.Confirmation // the same
	MaxHold  time.Duration       // after which a hold is lost; 0: never
	MinHold  time.Duration       // for which the lock stays taken in any case
	Fixed    bool                // not renewed
	Nested   bool                // a context that holds the lock may acquire it again
	Strict   bool                // nothing passes to another in this process
	Logger   *slog.Logger
}

// Log returns the log for what cannot be returned to a caller.
func (o *Options) Log() *slog.Logger {
	if o.Logger == nil {
		return slog.Default()
	}
	return o.Logger
}

// confirmed reports whether a grant must be confirmed.
func (o *Options) confirmed() bool { return o.Replicas.Timeout > 0 || o.Fsync.Timeout > 0 }

func (o *Options) compatible(other *Options) bool { return o == other || *o == *other }

// Registry is the locks of a client that are in use.
type Registry struct {
	Session *session.Session
	Keeper  *keepalive.Keeper
	Client  any                                     // whose locks they are, for the root
	Wrap    func(op string, id ID, err error) error // what the user is told

	mu    sync.Mutex
	locks map[string]map[string]*Lock // by kind and name, see keyOf
	count int                         // how many these are
	sweep int                         // how many are enough to throw away those that nobody uses

	heralds, followers crew // of the ends of leases
	losses             losses
	told               atomic.Bool // the store tells holders when somebody waits, as it last said
	forgetting         forgetting

	waiters sync.Pool // not for all clients: in a test each may have a time of its own
}

// NewRegistry returns a Registry without any locks.
func NewRegistry(s *session.Session, k *keepalive.Keeper, wrap func(string, ID, error) error) *Registry {
	r := &Registry{Session: s, Keeper: k, Wrap: wrap, locks: map[string]map[string]*Lock{}, sweep: spare}
	r.waiters.New = func() any { return &waiter{news: make(chan news, 1)} }
	return r
}

// keyOf returns an ID in two strings, the first of which is one of few: thousands of locks may
// be held, and few have an owner.
func keyOf(id ID) (kind, name string) {
	if id.Owner == "" {
		return string(id.Kind), id.Name
	}
	return "owned " + string(id.Kind), strconv.Itoa(len(id.Owner)) + ":" + id.Owner + id.Name
}

// known returns the lock among those that are kept, nil if it is not there. The caller holds mu.
func (r *Registry) known(id ID) *Lock {
	kind, name := keyOf(id)
	return r.locks[kind][name]
}

// spare is how many locks may be kept that are not in use, since the next call may be for
// one of them.
const spare = 64

// Lock is one lock in this process. It is kept for as long as it is in use, and a little
// longer.
type Lock struct {
	id   ID
	r    *Registry
	refs atomic.Int32 // calls under way, grants and sync holds; gone once it is thrown away

	mu      sync.Mutex
	waiting queue  // those that want the lock exclusively
	atStore *Grant // that one of them is at the store with, or on its way to it; nil if none is
	grant   *Grant // the present one, which passes among them: held, or idle; nil for none
	alarm   *time.Timer
	readers *readGroup // which others may join; nil if there is none
	sync    *syncHolds // nil before the first

	deposited atomic.Int32 // how many sync holds there are; changed under mu
}

// gone is the refs of a lock that the Registry has thrown away: nobody uses it any more, and its
// name may have another Lock.
const gone = -1 << 30

// Cached is where a handle remembers its lock, so that it need not look for it among those of the
// client each time. That keeps a lock that was thrown away in memory as long as the handle, but
// not in use.
type Cached struct{ lock atomic.Pointer[Lock] }

// of returns the lock that a handle remembers, if it is that of the ID and not gone.
func (c *Cached) of(id ID) *Lock {
	if l := c.lock.Load(); l != nil && l.id == id && l.refs.Load() >= 0 {
		return l
	}
	return nil
}

// use counts another use of the lock, unless it is gone.
func (l *Lock) use() bool {
	for n := l.refs.Load(); n >= 0; n = l.refs.Load() {
		if l.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// Ref returns the lock, which must be given back with Unref.
func (r *Registry) Ref(id ID, cached *Cached) *Lock {
	if l := cached.of(id); l != nil && l.use() {
		return l
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.known(id)
	if l == nil {
		r.tidy()
		l = &Lock{id: id, r: r}
		kind, name := keyOf(id)
		if r.locks[kind] == nil {
			r.locks[kind] = map[string]*Lock{}
		}
		r.locks[kind][name] = l
		r.count++
	}
	l.use() // what is among locks is not gone
	cached.lock.Store(l)
	return l
}

// Unref gives a lock back.
func (l *Lock) Unref() { l.refs.Add(-1) }

// find returns the lock if the Registry knows it, and else nil. It is for callers that look for
// what keeps the lock in use.
func (r *Registry) find(id ID, cached *Cached) *Lock {
	if l := cached.of(id); l != nil {
		return l
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known(id)
}

// inUse returns the lock if it is in use, and else nil. The lock must be given back with
// Unref.
func (r *Registry) inUse(id ID) *Lock {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.known(id)
	if l == nil || l.refs.Load() == 0 {
		return nil
	}
	l.refs.Add(1)
	return l
}

// tidy throws away locks that are not in use, when there are twice as many as were in use
// the last time. The caller holds mu.
func (r *Registry) tidy() {
	if r.count < r.sweep {
		return
	}
	for _, of := range r.locks {
		for name, l := range of {
			if l.refs.CompareAndSwap(0, gone) {
				delete(of, name)
				r.count--
			}
		}
	}
	r.sweep = 2*r.count + spare
}

// Closed is a lock that Close gives up. The channel gets what became of that.
type Closed struct {
	ID     ID
	Result <-chan error
}

// Close releases all grants, and returns the channels on which the results will arrive. The
// session must be shut: a goroutine that is granted a lock from then on gives it back.
func (r *Registry) Close() (results []Closed) {
	for _, owner := range r.Keeper.Owners() {
		r.Session.Grow()
		if result := owner.(*Grant).revoke(errClosed); result != nil {
			results = append(results, Closed{owner.(*Grant).lock.id, result})
		} else {
			r.Session.Done()
		}
	}
	return results
}
