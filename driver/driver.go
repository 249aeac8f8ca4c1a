// Package driver is the contract between holdfast and a store that keeps locks,
// as [database/sql/driver] is between database/sql and a database.
//
// Users of locks do not need it; they call the parent package. Implement [Driver]
// to keep locks somewhere else, or wrap one to add behaviour: a wrapper forwards
// the four methods and has an Unwrap method (see [Wrapper]), so that the optional
// abilities of what it wraps stay reachable through [As].
//
// # What a driver promises
//
// A lock is a lease. [Driver.Acquire] makes the token of the request the holder
// until its TTL has passed on the store's clock; [Driver.Renew] moves that end;
// [Driver.Release] ends it. The token names one acquisition, never a client or a
// goroutine, and everything is idempotent by it: an acquire whose answer was lost
// is simply repeated and answers what it answered, with the same fence; a release
// that is repeated, or that comes too late, touches nobody else.
//
// A lease lasts at least its TTL and at most half a second longer: the holder, which
// counts from an earlier moment, stops trusting it before the store gives the lock
// away. Nothing revives a lease that has expired, neither a renewal nor a repeat. A store
// with coarser leases says so, see [Granular].
//
// A driver with a queue serves it first in, first out. Nobody overtakes a token that
// waits and keeps asking, neither who waits nor who does not, nor who needs less: a
// shared request behind an exclusive one waits, too. A token that has not asked for 2/3
// of its TTL may be skipped and dropped; it comes back by asking.
//
// A driver refuses what it cannot serve, such as a [Kind] it does not know
// ([errors.ErrUnsupported]) or a name, TTL or weight outside the limits, with an error
// that matches [ErrNotExecuted] and not [ErrTransient].
//
// Every request of one token carries a number, [Request.Ask], that grows by one.
// Whenever the store tells of a grant it says which ask the grant rests on. The
// client counts its trust from the moment it sent that ask, so it never needs a
// clock in common with the store: see [Request.Ask].
//
// The suite in driver/drivertest holds a driver to this text.
package driver

import (
	"context"
	"errors"
	"time"
)

// Kind is a kind of lock. Locks of different kinds never meet, even with one name.
type Kind string

// The kinds of lock.
const (
	Mutex     Kind = "mutex"     // one holder at a time
	RWMutex   Kind = "rwmutex"   // one exclusive holder, or any number of shared ones
	Semaphore Kind = "semaphore" // holders with a weight each, up to a limit
)

// MaxName is the length in bytes of the longest name a driver must accept.
const MaxName = 512

// MaxOwner is the length in bytes of the longest Request.Owner.
const MaxOwner = 256

// MaxLimit is the largest limit of a Semaphore.
const MaxLimit = 1<<53 - 1

// MaxHolderTag is the length in bytes of the longest Lease.HolderTag.
const MaxHolderTag = 256

// Limits of a lease's TTL.
const (
	MinTTL = 10 * time.Millisecond
	MaxTTL = 24 * time.Hour
)

// Driver keeps locks. Its methods may be called from any goroutine.
//
// A method may outlast its context, because many a client library cannot give up
// a command in flight; the caller does not wait for it then. What such a command
// did is settled by the caller with Release.
type Driver interface {
	// Acquire makes one attempt to get the lock for r.Token and answers Granted,
	// Queued (only if r.Wait) or Busy. While it is Queued the caller must repeat
	// the same request, with the next Ask, at least every r.TTL/3: that is the
	// waiter's heartbeat, and the answer may be Granted at any of them.
	//
	// A token that was released, or from whom the lock was taken by force, is not used
	// again. If it is, or if an ask of it arrives late, the error matches ErrNotHeld;
	// a driver need not know that for ever, see Lease.Unsettled.
	Acquire(ctx context.Context, r *Request) (Grant, error)

	// Renew lets each lease last its TTL from now on, and returns one error (or
	// nil) per lease in their order: ErrNotHeld if the store knows that the token
	// does not hold the lock, anything else if it could not tell.
	Renew(ctx context.Context, leases []Lease) []error

	// Release gives the lock up, or the token's place in the queue, and lets the
	// next waiter have it. It returns ErrNotHeld if the token neither held nor
	// waited; that is no news to a caller who repeats a release. If the lease has
	// expired but nobody had the lock since, either answer will do. Once Release has
	// returned nil or ErrNotHeld, no Wake of that token is called any more.
	Release(ctx context.Context, l Lease) error

	// Close ends what the driver itself started, such as subscriptions. It does
	// not release leases, and it does not close what the driver was given. It is
	// called once, after all other calls have returned.
	Close() error
}

// Request asks for a lock. It does not change from one ask of a token to the next,
// but for Ask.
type Request struct {
	Kind Kind
	Name string // 1 to MaxName bytes, any bytes

	// Token is the identity of this acquisition: unique for all time, printable,
	// without spaces.
	Token string

	// Ask numbers the attempts of this token from 1 on. A grant tells which ask it
	// rests on (Grant.Ask): the store handled that ask before it granted, and gave
	// the full TTL when it granted, so the time the ask was sent plus the TTL is
	// before the end of the lease on the store's clock, whenever the news arrives.
	Ask uint64

	TTL time.Duration // MinTTL to MaxTTL

	// Owner, if not empty, is on whose behalf the token asks: 1 to MaxOwner bytes, any
	// bytes. A Mutex, or an RWMutex held exclusively, that is held by tokens of one
	// owner is granted to another exclusive token of that owner when it asks, beside them
	// and with their fence, whoever waits: they may be waiting for this one. Each has a
	// lease of its own, and the lock is free when the last of them has ended. A
	// Semaphore, and a shared hold, have no owner. A driver that knows no owners refuses
	// a request with one; the error matches errors.ErrUnsupported.
	Owner string

	// Shared asks for a shared hold of an RWMutex, else it is exclusive.
	Shared bool

	// Wait lets the request queue. A request that does not wait is answered Granted
	// or Busy, and Busy leaves nothing behind.
	Wait bool

	// Notice has Wake called with Wanted as soon as somebody waits for what the token
	// holds, and again when it is renewed. Only a Notifier heeds it.
	Notice bool

	// Weight is how much of a Semaphore to hold, of the Limit that it has in the opinion
	// of the request; both are at least 1, and Limit at most MaxLimit. The limit is that
	// of the first holder for as long as anybody holds or waits; a request with another
	// is refused with ErrLimitConflict, and one with more weight than the limit in force
	// with ErrLimitExceeded, also if it has waited. Either leaves nothing of the token
	// behind, and matches ErrNotExecuted. See Resizer for who else sets the limit.
	Weight, Limit int64

	// Fences is how many numbers may be of use to this grant, for as many holds one after the
	// other. It gets so many at most, see Grant.Fences. 0 means 1.
	Fences int64

	// Holder is a text for people that Inspect shows, such as "web-3:4711".
	Holder string

	// Wake is called when there is news for the token between two asks: with status
	// Granted when the store granted the lock; with Queued when the token should
	// ask again now, such as one that has become the next of the queue and must hear when
	// to RetryAfter; with Lost when the lease was taken away; with Wanted if that was
	// asked for. It must not block.
	// A call can be missing, doubled or late, so it saves time and never replaces
	// the heartbeat. nil means no such news is wanted.
	Wake func(Grant)
}

// Status is an answer to a request.
type Status int

// The answers. The zero value is no answer.
const (
	Busy    Status = iota + 1 // another holds it; nothing was left behind
	Queued                    // the token waits in the queue
	Granted                   // the token holds the lock
	Lost                      // only through Wake: the token holds the lock no more
	Wanted                    // only through Wake: somebody waits for what the token holds
)

// Grant is the answer to a request, or news of one.
type Grant struct {
	Status Status

	// Ask is the number of the ask that a Granted rests on.
	Ask uint64

	// Fence is the fencing token of a Granted: for one kind and name, larger than
	// that of every earlier grant.
	Fence int64

	// Fences is how many numbers a Granted may use as fences, from Fence on: at least one, and
	// at most as many as were asked for. 0 means 1. The next grant's fence lies beyond them. A
	// repeat of an ask is answered with the same Fence, and with these numbers; those of an
	// extension may be among them. The holds of an Owner have one number, and that together.
	Fences int64

	// HolderTag is what a holder has said of itself with Lease.HolderTag, if it has: of a
	// Queued or Busy, one who holds the lock; of a Granted through Wake, the one before.
	HolderTag string

	// Wanted says of an extension that somebody waits for the lock.
	Wanted bool

	// Shared, Weight and Owner are, of a Granted through Attacher, what the token holds.
	Shared bool
	Weight int64
	Owner  string

	// Reconnect says of a Queued through Wake that earlier news may have been missed.
	Reconnect bool

	// RetryAfter is when a Queued or Busy token should ask again if nothing else
	// happens; 0 leaves it to the caller (a heartbeat if Queued).
	RetryAfter time.Duration
}

// Lease is what Renew and Release speak of.
type Lease struct {
	Kind  Kind
	Name  string
	Token string
	TTL   time.Duration
	Owner string // as in its Request

	// HolderTag is what others are told who wait for the lock, such as a traceparent: at
	// most MaxHolderTag bytes, printable, without spaces; empty for nothing. It is told
	// with Renew or Release. A driver need not pass it on.
	HolderTag string

	// Unsettled tells Release that some ask of this token was never answered, so
	// that it might still arrive. The driver must see to it that such a straggler
	// acquires nothing, for as long as a network may hold it up, such as a minute.
	Unsettled bool
}

// ErrNotHeld says that a token does not hold the lock, as far as the store knows.
var ErrNotHeld = errors.New("holdfast: lock not held")

// ErrTransient is matched by errors that may pass if one tries again: the network,
// a failover, a server that is loading. Errors that do not match it are refusals.
var ErrTransient = errors.New("holdfast: store unavailable")

// ErrNotExecuted is matched by errors after which the store has surely not acted
// on the request. After any other error it may have.
var ErrNotExecuted = errors.New("holdfast: not executed")

// ErrLimitConflict says that a semaphore is in use with another limit than that of the
// request, and ErrLimitExceeded that the request's weight is more than the limit.
var (
	ErrLimitConflict = errors.New("holdfast: semaphore in use with another limit")
	ErrLimitExceeded = errors.New("holdfast: more than the limit of the semaphore")
)

// ErrNotReplicated says that too few replicas of the store have a grant, see Confirmer.
var ErrNotReplicated = errors.New("holdfast: too few replicas have the lock")

// Wrapper is a Driver around another. As walks through it.
type Wrapper interface {
	Driver
	Unwrap() Driver
}

// As finds the first driver that has the ability T, from d inwards.
//
//	if r, ok := driver.As[driver.Inspector](d); ok { … }
func As[T any](d Driver) (T, bool) {
	for d != nil {
		if t, ok := d.(T); ok {
			return t, true
		}
		w, ok := d.(Wrapper)
		if !ok {
			break
		}
		d = w.Unwrap()
	}
	var none T
	return none, false
}

// Inspector is the ability to tell who holds a lock and who waits.
type Inspector interface {
	Inspect(ctx context.Context, k Kind, name string) (Info, error)
}

// Forcer is the ability to take a lock from its holder.
type Forcer interface {
	// ForceRelease ends the leases of all who hold the lock, tells them where it
	// can (Wake with Lost), and lets the next waiter have it. ErrNotHeld if free.
	ForceRelease(ctx context.Context, k Kind, name string) error
}

// Downgrader is the ability to give up some of what a lease holds and keep the rest.
type Downgrader interface {
	// Downgrade turns the exclusive hold of an RWMutex into a shared one, or lowers the
	// weight of a hold of a Semaphore to the given one, and lets those waiters have
	// the rest who fit now. It never raises a weight, so it can be repeated, and come
	// late. Fence and end of the lease stay, and a repeat of an ask is still Granted.
	// ErrNotHeld if the token does not hold it. A hold with an Owner is refused, since
	// others may count on it; the error matches errors.ErrUnsupported.
	Downgrade(ctx context.Context, l Lease, weight int64) error
}

// Notifier is the ability to tell a holder that it is wanted.
type Notifier interface {
	// Notices reports whether Request.Notice is heeded.
	Notices() bool
}

// Extender is the ability to let a holder use its lease for more than one hold.
type Extender interface {
	// Extend renews the lease, as Renew does, tells whether anybody waits for the lock, and
	// gives the lease more numbers, as many as that at most, beyond all that were given
	// before: Grant.Fences from Grant.Fence on. The next grant's fence lies beyond them.
	Extend(ctx context.Context, l Lease, fences int64) (Grant, error)
}

// Attacher is the ability to hand a lease to another token, such as one of another
// process.
type Attacher interface {
	// Attach makes r.Token the holder of what the token old holds, in its place: with the
	// TTL, the Holder and the Wake of r, and a new fence, as if old had released and r
	// been granted with nobody in between. It neither waits nor queues. Of several that
	// attach to one token exactly one succeeds, and only that one if it repeats; the
	// others get ErrNotHeld, as they do if old does not hold the lock. What old
	// held, and on whose behalf, r does not say; the Grant tells it. With other tokens of
	// an owner beside it, the fence is theirs.
	Attach(ctx context.Context, old Lease, r *Request) (Grant, error)

	// Detach says that nobody here renews the lease any more, nor wants to hear of it: no
	// Wake of its token is called from then on. The store keeps it.
	Detach(l Lease)
}

// Confirmer is the ability to tell whether a grant has reached replicas of the store.
type Confirmer interface {
	// Confirm renews a lease, and returns nil once at least so many replicas have what
	// the store knew of it then. If fewer have it when timeout, at least 1 ms, has
	// passed, the error matches ErrNotReplicated; the lease goes on nevertheless.
	// ErrNotHeld if the token does not hold the lock.
	Confirm(ctx context.Context, l Lease, replicas int, timeout time.Duration) error
}

// Resizer is the ability to change the limit of a Semaphore.
type Resizer interface {
	// Resize sets the limit, and lets those waiters have more who fit now. From then
	// on it is in force whatever requests say, until the semaphore has not been used
	// for a while. Nothing is taken from holders if it is less than they hold. Waiters
	// that need more than the new limit are refused with ErrLimitExceeded. token names
	// this change, as that of a Request names an acquisition: a repeat with it changes
	// nothing, also if the limit was changed to another one in between.
	Resize(ctx context.Context, name, token string, limit int64) error
}

// FenceRaiser is the ability to give a lease a larger fence than it was granted, so that
// several stores can agree on one.
type FenceRaiser interface {
	// RaiseFence makes the fence of a lease at least that one, with as many numbers
	// from it on (0 means 1), and returns the fence that the lease then has. It is
	// larger than asked for if the lease has a larger one already, or if the one asked for
	// may have been given to another. Fences of later grants lie beyond it, and a repeat of an
	// ask is answered with it. ErrNotHeld if the token does not hold the lock.
	RaiseFence(ctx context.Context, l Lease, fence, fences int64) (int64, error)
}

// Uptimer is the ability to tell how long a store has been running, for those who must not
// trust one that may have forgotten its leases in a restart.
type Uptimer interface {
	// Uptime returns how long the store has at least been running, without a restart: sure is
	// that by clocks which nobody can set, and said, which is no less, is what the store says.
	// It says too much after its clock was set forward. What the driver answered, or told with
	// Wake, before the call came from that run of the store or from an earlier one.
	Uptime(ctx context.Context) (sure, said time.Duration, err error)
}

// Granular is the ability to tell that leases of a store are coarser than MinTTL and half a
// second.
type Granular interface {
	// Granularity returns the shortest TTL that the store can keep, and how much longer than
	// its TTL a lease lasts at most while the store is well. A request with a shorter TTL is
	// refused. A waiter that is silent may then keep its place until its TTL and that much
	// longer have passed since it last asked.
	Granularity() (least, over time.Duration)
}

// Router is the ability to tell which node keeps a lock. Renewals that go to
// different nodes are sent apart, so that a frozen node delays only its own.
type Router interface {
	// Node returns the name of the node that has the lock now. It is asked before each
	// renewal, since locks can move, and so should answer from memory.
	Node(k Kind, name string) string
}

// Reporter is the ability to tell how well news comes in.
type Reporter interface {
	// OnReconnect has f called, too, whenever the connection on which the driver hears
	// the news for Wake was lost and has to be made again; reason is "error", or "silent"
	// if it was open but nothing came. With reason "mute" it is called when no news can
	// come in until somebody mends that, such as a right that is missing: waiters poll
	// meanwhile. f must not block.
	OnReconnect(f func(reason string))
}

// Batcher is the ability to send requests of several callers together.
type Batcher interface {
	// Batch says whether to. By default it does.
	Batch(on bool)
}

// Info is a lock as its store sees it.
type Info struct {
	Name    string
	Holders []Holder // in the order of their grants; empty if nobody holds it
	Queue   []Waiter // in the order in which they will be served
	Limit   int64    // of a Semaphore that is in use, or was resized; else 0
}

// Holder is who holds a lock.
type Holder struct {
	Holder    string        // the text given with the request
	Shared    bool          // of an RWMutex
	Weight    int64         // of a Semaphore, else 0
	Owner     string        // given with the request; empty for none
	Since     time.Time     // on the store's clock
	Fence     int64         // of the grant, and of the first hold under it
	LastFence int64         // the last that the holder may use: that of a hold under the grant lies between the two
	TimeLeft  time.Duration // until the lease ends if it is not renewed
}

// Waiter is who waits for a lock.
type Waiter struct {
	Holder string // the text given with the request
	Shared bool   // of an RWMutex
	Weight int64  // of a Semaphore, else 0
	Owner  string // given with the request; empty for none
}
