// Package driver is the contract between holdfast and a store that keeps locks, as
// [database/sql/driver] is between database/sql and a database.
//
// Users of locks do not need it; they call the parent package. Implement [Driver] to keep
// locks somewhere else, or wrap a driver to add behaviour. A wrapper forwards the four
// methods and has an Unwrap method, see [Wrapper]. So the optional abilities of the wrapped
// driver stay reachable through [As].
//
// # What a driver promises
//
// A lock is a lease. [Driver.Acquire] makes the token of the request the holder until its
// TTL has passed on the store's clock; [Driver.Renew] moves that end; [Driver.Release] ends
// it. The token names one acquisition, never a client or a goroutine, and everything is
// idempotent by it. If the answer to an acquire was lost, the acquire is simply repeated,
// and gets the same answer with the same fence. A release that is repeated, or that comes
// too late, touches no other token.
//
// A lease lasts at least its TTL and at most half a second longer. The holder counts from
// an earlier moment. So it stops trusting the lease before the store gives the lock away.
// Nothing revives a lease that has expired, neither a renewal nor a repeat. A store with
// coarser leases says so, see [Granular].
//
// A driver with a queue serves it first in, first out. Nobody overtakes a token that waits
// and keeps asking: no other waiter, no request that does not wait, and none that needs
// less. A shared request behind an exclusive one also waits. A token that has not asked for
// 2/3 of its TTL may be skipped and dropped; it comes back by asking.
//
// A driver refuses what it cannot serve with an error that matches [ErrNotExecuted] and not
// [ErrTransient]. Examples are a name, TTL or weight outside the limits, or a [Kind] that
// the driver does not know ([errors.ErrUnsupported]). Such an error ends a wait, so it is for what is
// known to be the same next time. An error that matches none of the errors of this package may pass
// for all that is known: who waits goes on, as after [ErrTransient].
//
// Every request of one token carries a number, [Request.Ask], that grows by one. Whenever
// the store tells of a grant, it says which ask the grant rests on. The client counts its
// trust from the moment it sent that ask. So it never needs a clock in common with the
// store.
//
// The suite in driver/drivertest holds a driver to this text. A whole driver in a hundred
// lines is in [docs/writing-a-driver.md].
//
// [docs/writing-a-driver.md]: https://github.com/holdfast-go/holdfast/blob/main/docs/writing-a-driver.md
package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/stamp"
)

// Kind is a kind of lock. Locks of different kinds never meet, even with one name.
type Kind string

// The kinds of lock.
const (
	Mutex     Kind = "mutex"     // one holder at a time
	RWMutex   Kind = "rwmutex"   // one exclusive holder, or any number of shared ones
	Semaphore Kind = "semaphore" // holders with a weight each, up to a limit
)

// MaxName is the length in bytes of the longest name that a driver must accept.
const MaxName = 512

// MaxOwner is the length in bytes of the longest Request.Owner.
const MaxOwner = 256

// MaxLimit is the largest limit of a Semaphore.
const MaxLimit = 1<<53 - 1

// MaxHolderTag is the length in bytes of the longest Lease.HolderTag.
const MaxHolderTag = 1024

// Limits of a lease's TTL.
const (
	MinTTL = 10 * time.Millisecond
	MaxTTL = 24 * time.Hour
)

// Driver keeps locks. Its methods may be called from any goroutine.
//
// A method may outlast its context, because many client libraries cannot give up a command
// in flight; see [Bounded]. A caller that must not wait for it then calls Release, which settles
// what such a command did.
type Driver interface {
	// Acquire makes one attempt to get the lock for r.Token and answers Granted, Queued
	// (only if r.Wait), Full (only if r.MaxWaiters bounds the queue) or Busy. While the answer is Queued, the caller must repeat the
	// same request, with the next Ask, at least every r.TTL/3. That is the waiter's
	// heartbeat, and any of them may be answered Granted.
	//
	// A token is not used again after it was released, or after the lock was taken from it
	// by force. If it is, or if an ask of it arrives late, the error matches ErrNotHeld. A
	// driver need not know that for ever, see Lease.Unsettled.
	Acquire(ctx context.Context, r *Request) (Grant, error)

	// Renew lets each lease last its TTL from now on. It returns one error or nil for each
	// lease, in their order. The error is ErrNotHeld if the store knows that the token
	// does not hold the lock, and any other if the store could not tell.
	Renew(ctx context.Context, leases []Lease) []error

	// Release gives the lock up, or the token's place in the queue, and lets the next
	// waiter have the lock. It returns ErrNotHeld if the token neither held nor waited; a
	// caller that repeats a release expects that. If the lease has expired but nobody had
	// the lock since, either answer will do. Once Release has returned nil or ErrNotHeld,
	// Wake of that token is called no more.
	Release(ctx context.Context, l Lease) error

	// Close ends what the driver itself started, such as subscriptions. It does
	// not release leases, and it does not close what the driver was given. It is
	// called once, after all other calls have returned.
	Close() error
}

// Request asks for a lock. Only Ask and MaxWaiters change from one ask of a token to the
// next.
type Request struct {
	Kind Kind
	Name string // 1 to MaxName bytes, any bytes

	// Token is the identity of this acquisition: unique for all time, printable,
	// without spaces. That of a client also tells when it was made, see Since.
	Token string

	// Ask numbers the attempts of this token from 1 on. A grant tells which ask it rests
	// on (Grant.Ask). The store handled that ask before it granted, and the grant gave the
	// full TTL. So on the store's clock the lease ends no earlier than a TTL after that
	// ask was sent, whenever the answer arrives.
	Ask uint64

	TTL time.Duration // MinTTL to MaxTTL

	// Owner, if not empty, is on whose behalf the token asks: 1 to MaxOwner bytes, any
	// bytes.
	//
	// Tokens of one owner can hold a Mutex together, or an RWMutex exclusively. Such a
	// lock is granted at once to another exclusive token of that owner, with the same
	// fence. The token overtakes all waiters, for they may be waiting for it. Each token
	// has a lease of its own, and the lock is free when the last of them has ended.
	//
	// A Semaphore and a shared hold have no owner. A driver that knows no owners refuses a
	// request with one; the error matches errors.ErrUnsupported.
	Owner string

	// Shared asks for a shared hold of an RWMutex; otherwise the hold is exclusive.
	Shared bool

	// Wait lets the request queue. A request that does not wait is answered Granted
	// or Busy, and Busy leaves nothing behind.
	Wait bool

	// MaxWaiters, if not 0, bounds the queue that a request with Wait joins. If so many
	// tokens wait for the lock, whatever bound they came with, one that does not wait yet is
	// answered Full, which leaves nothing behind. To count and to join is one step. A token
	// that waits is never answered Full. Once it was answered Queued, the caller asks
	// without a bound, so that it is let in again should the store have forgotten it. A
	// driver without a queue ignores MaxWaiters.
	MaxWaiters int64

	// Place is where the token may stand in the queue as long as nobody else does: that of a
	// token before it, of the same caller, which was [Unheard]. A store may take no notice of it.
	Place Place

	// Notice has Wake called with Wanted as soon as somebody waits for what the token
	// holds, and again when it is renewed. If very many tokens hold the lock together, some
	// may be told only then. Only a Notifier obeys it.
	Notice bool

	// Weight is how much of a Semaphore to hold, and Limit the limit that the request
	// expects. Both are at least 1, and Limit at most MaxLimit. As long as anybody holds
	// or waits, the limit of the first holder is in force. A request with another Limit is
	// refused with ErrLimitConflict. A request with more Weight than the limit in force is
	// refused with ErrLimitExceeded, even after it has waited. Either error matches
	// ErrNotExecuted, and leaves nothing of the token behind. A Resizer also sets the
	// limit.
	Weight, Limit int64

	// Fences is how many numbers this grant may use, for as many holds one after the
	// other. The grant gets at most that many, see Grant.Fences. 0 means 1.
	Fences int64

	// Holder is a text for people that Inspect shows, such as "web-3:4711".
	Holder string

	// Wake is called when there is news for the token between two asks:
	//
	//   - Granted: the store granted the lock
	//   - Queued: the token should ask again now, such as when it has become the first of
	//     the queue and must hear its RetryAfter
	//   - Lost: the lease was taken away
	//   - Wanted: somebody waits, if Notice asked for that
	//
	// Wake must not block. A call can be missing, doubled or late, so it saves time and
	// never replaces the heartbeat. nil means that no news is wanted.
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
	Full                      // as many wait as Request.MaxWaiters allows; nothing was left behind
)

// String returns the name of the status.
func (s Status) String() string {
	if s < Busy || s > Full {
		return fmt.Sprintf("Status(%d)", int(s))
	}
	return [...]string{"Busy", "Queued", "Granted", "Lost", "Wanted", "Full"}[s-Busy]
}

// Grant is the answer to a request, or news of one.
type Grant struct {
	Status Status

	// Ask is the number of the ask that a Granted rests on.
	Ask uint64

	// Fence is the fencing token of a Granted: for one kind and name, larger than
	// that of every earlier grant.
	Fence int64

	// Fences is how many numbers a Granted may use as fences, from Fence on. It is at
	// least one, and at most as many as were asked for. 0 means 1. The next grant's fence
	// lies beyond them. A repeat of an ask is answered with the same Fence and the same
	// numbers. All holds of one Owner share one number.
	Fences int64

	// HolderTag is the Lease.HolderTag of a holder, if it has one. In a Queued, Busy or Full
	// it is that of a token that holds the lock. In a Granted through Wake it is that of the
	// previous holder.
	HolderTag string

	// Holder is the text of a token that holds the lock, in a Queued, Busy or Full, and HeldFor
	// for how long it has held it by the store's clock. A driver need not tell. If its store
	// keeps no texts, Holder is what it has instead, see [Holder], and HeldFor is 0. In a Lost
	// through Wake, Holder is the text of a token that has stolen the lock, see Stealer.
	// HolderFence is the fence of that token's grant, 0 if the driver does not tell.
	Holder      string
	HeldFor     time.Duration
	HolderFence int64

	// Behind says, in a Queued, Busy or Full, that no holder is in the way: there is room, but
	// others wait, and are served first. Holder is empty then. A driver that does not tell the
	// Holder need not tell this.
	Behind bool

	// Shared, Weight and Owner say what the token holds, in a Granted from Attach.
	Shared bool
	Weight int64
	Owner  string

	// Ended is set in a Lost through Wake if nobody has taken the lease away: the session of
	// this client that kept it has ended at the store.
	Ended bool

	// Reconnect is set in a Queued through Wake if earlier news may have been missed.
	Reconnect bool

	// RetryAfter is when a Queued or Busy token should ask again if nothing else happens.
	// 0 leaves the time to the caller: a heartbeat for Queued, 50 ms for Busy. A waiter that is
	// Busy asks after half of it to one and a half, at random, so that a crowd does not come at
	// once. For it, more than a third of its TTL counts as a third.
	RetryAfter time.Duration
}

// Lease is a token that holds or waits, as Renew and Release name it.
type Lease struct {
	Kind  Kind
	Name  string
	Token string
	TTL   time.Duration
	Owner string // as in its Request

	// HolderTag is told to those that wait for the lock, such as a traceparent: at most
	// MaxHolderTag bytes, printable, without spaces; empty for nothing. The driver learns
	// it from Renew or Release. A driver need not pass it on.
	HolderTag string

	// Unsettled tells Release that some ask of this token was never answered, so that it
	// might still arrive. The driver must ensure that such a straggler acquires nothing,
	// for as long as a network may hold it up, such as a minute.
	Unsettled bool
}

// ErrNotHeld says that a token does not hold the lock, as far as the store knows.
var ErrNotHeld = errors.New("holdfast: lock not held")

// Place is one in the queue of a lock: the queue's birth, for stores whose queues are born anew,
// and a number, 0 for no place.
type Place struct{ Birth, Number int64 }

// Unheard is why [Driver.Acquire] fails for a token that stood in the queue, and that the store
// has buried since: it was granted the lock, and lost it to force or to a thief before its caller
// heard of the grant. It matches [ErrNotHeld]. See [Request] for the place: none if the answers that
// told it were lost.
type Unheard struct{ Place Place }

// Error implements error.
func (Unheard) Error() string {
	return ErrNotHeld.Error() + ": the token lost it unheard, or was released"
}

// Unwrap returns [ErrNotHeld].
func (Unheard) Unwrap() error { return ErrNotHeld }

// ErrTransient is matched by errors that may pass on a retry: a broken network, a failover,
// a server that is loading, and whatever is not known to be the same next time. A caller that waits for a lock
// goes on waiting after it. So a dialer, or a hook of go-redis or of package holdfast, whose error
// matches ErrTransient has its caller wait and try again.
var ErrTransient = errors.New("holdfast: store unavailable")

// ErrDenied is matched by refusals of the client's user: the password is missing or wrong, the
// user lacks a right, or the server is in protected mode. Such an error does not pass by itself, but
// an operator can end it. A client that the store has served before waits for that, see the
// documentation of Mutex.Lease in package holdfast.
var ErrDenied = errors.New("holdfast: access denied")

// ErrClosed is matched by errors of a store to which the program itself has closed the connections, as
// by Close of its redis.Client. No later call can succeed.
var ErrClosed = errors.New("holdfast: the connection to the store was closed by the program")

// ErrNotExecuted is matched by errors after which the store has surely not acted
// on the request. After any other error it may have. Without [ErrTransient] and [ErrDenied] it is a
// refusal for good.
var ErrNotExecuted = errors.New("holdfast: not executed")

// ErrLimitConflict says that a semaphore is in use with another limit than that of the
// request. ErrLimitExceeded says that the request's weight is more than the limit.
var (
	ErrLimitConflict = errors.New("holdfast: semaphore in use with another limit")
	ErrLimitExceeded = errors.New("holdfast: more than the limit of the semaphore")
)

// ErrNotConfirmed says that a grant was not in time where it has to be, see Confirmer.
var ErrNotConfirmed = errors.New("holdfast: the lock is not confirmed")

// Wrapper is a Driver around another one. As walks through it.
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

// Inspector is the ability to say who holds a lock and who waits.
type Inspector interface {
	Inspect(ctx context.Context, k Kind, name string) (Info, error)
}

// Lister is the ability to name the locks in a store.
type Lister interface {
	// List calls f once with each lock that somebody holds or waits for, if its name
	// begins with prefix, in no particular order and one call at a time. It may also call f
	// with locks that were in use lately. Locks that are taken or released meanwhile may be
	// missing. List stops at the first error of f, and returns it.
	List(ctx context.Context, prefix string, f func(k Kind, name string) error) error
}

// Forcer is the ability to take a lock from its holder.
type Forcer interface {
	// ForceRelease ends the leases of all holders of the lock, and lets the next waiter
	// have the lock. It tells the holders where it can (Wake with Lost). If the lock is
	// free, it returns ErrNotHeld.
	ForceRelease(ctx context.Context, k Kind, name string) error
}

// Stealer is the ability to take a lock from its holders, for oneself, in one step.
type Stealer interface {
	// Steal makes r.Token the exclusive holder of a Mutex or an RWMutex. It is as if
	// ForceRelease had ended the leases of all holders, and r been granted the lock then,
	// with nobody in between. If nobody holds the lock it is granted all the same. Waiters
	// keep their places. The holders are told (Wake with Lost), with r.Holder as the Holder.
	//
	// A token steals once. If it still holds the lock, a repeat is answered with the same
	// fence. If it was granted the lock by Steal before and has it no more, or was released, Steal
	// returns ErrNotHeld and takes nothing from anybody; see Lease.Unsettled for how long a
	// driver must know that. Wait and MaxWaiters of r do not count. Another kind and a shared
	// request are refused; the error matches errors.ErrUnsupported.
	Steal(ctx context.Context, r *Request) (Grant, error)
}

// Downgrader is the ability to give up some of what a lease holds and keep the rest.
type Downgrader interface {
	// Downgrade turns the exclusive hold of an RWMutex into a shared one. For a Semaphore
	// it lowers the weight of a hold to the given one. The waiters that now fit get the
	// lock. Downgrade never raises a weight, so it can be repeated, and come late. Fence
	// and end of the lease stay, and a repeat of an ask is still Granted.
	//
	// If the token does not hold the lock, Downgrade returns ErrNotHeld. A hold with an
	// Owner is refused, since others may count on it; the error matches
	// errors.ErrUnsupported.
	Downgrade(ctx context.Context, l Lease, weight int64) error
}

// Notifier is the ability to tell a holder that the lock is wanted.
type Notifier interface {
	// Notices reports whether the driver obeys Request.Notice.
	Notices() bool

	// Notice has Wake of a token that holds the lock called with Wanted from now on, as if its
	// Request had asked for that. It reports whether somebody waits already. It renews nothing
	// and can be repeated. If the token does not hold the lock, it returns ErrNotHeld. If Wake
	// cannot be called for now, such as where the client may not subscribe, the error matches
	// errors.ErrUnsupported, and wanted is right all the same.
	Notice(ctx context.Context, l Lease) (wanted bool, err error)
}

// Attacher is the ability to hand a lease to another token, such as one of another
// process.
type Attacher interface {
	// Attach makes r.Token the holder of what the token old holds, in its place. The new
	// holder has the TTL, the Holder and the Wake of r, and a new fence. It is as if old
	// had released and r been granted the lock with nobody in between. Attach neither
	// waits nor queues. r does not say what old held, nor on whose behalf; the Grant tells
	// it. If other tokens of an owner hold the lock too, the fence is theirs.
	//
	// If several attach to one token, exactly one succeeds, and only that one can repeat
	// it. The others get ErrNotHeld, as they do if old does not hold the lock.
	Attach(ctx context.Context, old Lease, r *Request) (Grant, error)

	// Detach says that nobody here renews the lease any more, nor wants news of it. From
	// then on Wake of its token is called no more. The store keeps the lease.
	Detach(l Lease)
}

// Prompter is the ability to tell of renewals one by one, where a batch of them takes more than one
// trip to the store: a lease counts as renewed as soon as that is known, and not when all are.
//
// Only the driver that a client was given is asked for it, and none that it wraps with an Unwrap: a
// Renew of the wrapper is not passed by.
type Prompter interface {
	// RenewEach is Renew. It also calls renewed with the place in leases of one that goes on, as
	// soon as the store has said so. Calls come one at a time, and none after RenewEach has
	// returned. One may be missing: what RenewEach returns says everything.
	RenewEach(ctx context.Context, leases []Lease, renewed func(i int)) []error
}

// Confirmer is the ability to say whether a grant has reached replicas of the store, or disks.
type Confirmer interface {
	// Confirm renews a lease, and returns nil once what the store knew of it then is where c
	// says. If it is not there in time, the error matches ErrNotConfirmed; the lease goes on
	// nevertheless. If the token does not hold the lock, Confirm returns ErrNotHeld. A store
	// that cannot say so, such as one without a disk, refuses with an error that matches
	// errors.ErrUnsupported.
	Confirm(ctx context.Context, l Lease, c Confirmation) error
}

// Confirmation says where a grant has to be.
type Confirmation struct {
	Replicas int           // how many replicas have it, at least
	Disk     bool          // on their disks, and on that of the store itself
	Timeout  time.Duration // at least 1 ms
}

// Resizer is the ability to change the limit of a Semaphore.
type Resizer interface {
	// Resize sets the limit, and lets the waiters that now fit have the lock. From then on
	// the limit is in force whatever requests say, until the semaphore has not been used
	// for a while. Nothing is taken from holders, even if they hold more than the limit.
	// Waiters that need more than the new limit are refused with ErrLimitExceeded.
	//
	// token names this change, as the Token of a Request names an acquisition. A repeat
	// with the same token changes nothing, even if the limit was changed again in between.
	Resize(ctx context.Context, name, token string, limit int64) error
}

// Explainer is the ability to say why commands have no answer although the store may be well, such as
// that the program itself has all connections, or that none can be made.
type Explainer interface {
	// Explain returns why commands wait, nil if that is not known. It answers from memory.
	Explain() error
}

// Bounded is the ability to tell for how long a method waits for an answer when its context has ended.
//
// A store that has answered in the last 50 ms will answer again. So the caller of a client waits for
// that itself, which is quicker than to have another goroutine wait. If the driver is Bounded, by 5 s and half a TTL
// at most, a caller does so whose context can be canceled, too, unless its deadline comes before that bound and 2 s. Should
// the store fall silent just then, the caller hears that much later that its context was canceled.
//
// Only the driver that a client was given is asked, and none that it wraps with an Unwrap.
type Bounded interface {
	// Timeout returns that time, 0 if there is no such bound. It does not change. All that a method does before
	// it waits for an answer ends with its context at once, or a second later.
	Timeout() time.Duration
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

// Router is the ability to tell which node keeps a lock. Renewals that go to different
// nodes are sent separately, so that a frozen node delays only its own.
type Router interface {
	// Node returns the name of the node that has the lock now. It is called before each
	// renewal, since locks can move, so it should answer from memory.
	Node(k Kind, name string) string
}

// Reporter is the ability to tell whether news for Wake may be missed.
type Reporter interface {
	// OnReconnect adds f to the functions that are called whenever the connection for
	// Wake's news was lost and has to be made again. The reason is "error", or "silent" if
	// the connection was open but nothing came. The reason is "mute" if no news can come
	// in until somebody mends that, such as a missing right; meanwhile waiters poll. After
	// that it is "heard" once news comes in again. f must not block.
	OnReconnect(f func(reason string))
}

// Batcher is the ability to send requests of several callers together.
type Batcher interface {
	// Batch switches that on or off. The default is on.
	Batch(on bool)
}

// Info is a lock as its store sees it.
type Info struct {
	Kind    Kind     `json:"kind,omitempty"` // set by the client; a driver leaves it empty
	Name    string   `json:"name"`
	Holders []Holder `json:"holders"`         // in the order of their grants; empty if nobody holds it
	Queue   []Waiter `json:"queue"`           // in the order in which they will be served
	Limit   int64    `json:"limit,omitempty"` // of a Semaphore that is in use, or was resized; else 0
}

// Holder describes one holder of a lock.
//
// A store that shares its locks with other programs may keep no texts, nor times of grants. Then
// Holder is what else it has of the holder, such as a token, and Since is zero.
type Holder struct {
	Holder    string        `json:"holder"`            // the text given with the request
	Shared    bool          `json:"shared,omitempty"`  // of an RWMutex
	Weight    int64         `json:"permits,omitempty"` // of a Semaphore, else 0
	Owner     string        `json:"owner,omitempty"`   // given with the request; empty for none
	Since     time.Time     `json:"since,omitzero"`    // on the store's clock; zero if it does not know
	Fence     int64         `json:"fence"`             // of the grant, and of the first hold under it
	LastFence int64         `json:"last_fence"`        // the last that the holder may use: that of a hold under the grant lies between the two
	Tag       string        `json:"tag,omitempty"`     // the Lease.HolderTag, if the store keeps it
	TimeLeft  time.Duration `json:"left_ns"`           // until the lease ends if it is not renewed; math.MaxInt64 if it has no end
}

// Waiter describes one waiter for a lock.
type Waiter struct {
	Holder string `json:"holder"`            // the text given with the request
	Shared bool   `json:"shared,omitempty"`  // of an RWMutex
	Weight int64  `json:"permits,omitempty"` // of a Semaphore, else 0
	Owner  string `json:"owner,omitempty"`   // given with the request; empty for none

	// Since is since when it waits, on the clock of its machine and to 34 ms, see Since. It is
	// zero if its token does not tell.
	Since time.Time `json:"since,omitzero"`
}

// Since returns when a client has made a token, which is when it began to ask. A driver fills
// Waiter.Since with it. It is zero if the token does not tell, as one of another program.
func Since(token string) time.Time { return stamp.Time(token) }
