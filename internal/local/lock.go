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
	Fsync    driver.Confirmation // as Replicas
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

	heralds, followers crew // that end contexts, and that call AfterEnd functions
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
	writers lane       // those that want the lock exclusively
	readers *lane      // which readers may join; nil before the first
	sync    *syncHolds // nil before the first

	kept atomic.Int32 // len(sync.all), for those who do not hold mu
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

// ref returns the lock, which must be given back with unref.
func (r *Registry) ref(id ID, cached *Cached) *Lock {
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

// unref gives a lock back.
func (l *Lock) unref() { l.refs.Add(-1) }

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
// unref.
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

// Close gives up all locks, waits until all operations have ended, and closes the driver. It returns what
// went wrong. If it was called before, it returns at once.
func (r *Registry) Close() (failed []error) {
	type released struct {
		id   ID
		told <-chan error
	}
	var all []released
	if !r.Session.Close(func() { // from now on, who is granted a lock gives it back
		for _, owner := range r.Keeper.Owners() {
			g := owner.(*Grant)
			if told := g.giveBack(errClosed); told != nil {
				all = append(all, released{g.lock.id, told})
			}
		}
	}) {
		return nil
	}
	r.Keeper.Close()
	failed = append(failed, r.Session.Driver.Close()) // waiters have withdrawn
	for _, g := range all {
		if err := lossOf(<-g.told); err != nil {
			failed = append(failed, r.Wrap("release", g.id, err))
		}
	}
	r.Session.End()
	return failed
}
