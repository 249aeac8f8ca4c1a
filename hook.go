package holdfast

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Hook is called around what a [Client] does, in the manner of a hook of go-redis. Each
// method gets the function that does the work, or the next hook, and returns a function
// that calls it. A method that is not interested returns nil.
//
//	func (timer) AcquireHook(next holdfast.AcquireFunc) holdfast.AcquireFunc {
//		return func(ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
//			began := time.Now()
//			lease, err := next(ctx, op)
//			log.Println(op.Name, time.Since(began), err)
//			return lease, err
//		}
//	}
//
// The hook that was added first is the outermost:
//
//	locks.AddHook(first)
//	locks.AddHook(second)
//
//	Lease -> first -> second -> the store -> second -> first -> Lease returns
//
// A hook can measure, change the context, try again, or refuse by returning an error without
// calling next. It passes on the op that it got, whose fields are there to be read, and
// returns the lease that next returned, or an error. A hook that may return before next does,
// as one with a time limit of its own, gives next a copy of the op, and a context that ends
// then. If next returns in time the hook copies that back, for the hooks around it:
//
//	late := *op
//	go func() {
//		lease, err := next(ctx, &late)
//		done <- result{lease, err}
//	}()
//	select {
//	case r := <-done:
//		*op = late
//		return r.lease, r.err
//	case <-ctx.Done():
//		return nil, context.Cause(ctx)
//	}
//
// An error is the last word of a Lease or Do, whatever it is. Lock and its like treat a
// refusal like one of the store, see [Mutex.Lock]; one that matches [driver.ErrTransient] they
// wait out. Unlock and its like cannot be refused. While a hook waits, its caller waits too,
// whatever bounds are promised elsewhere, so a hook should return when its context ends.
//
// A hook must not call Close. If an AcquireHook or a ReleaseHook panics, what the call was
// about is released, unless a ReleaseHook around it recovers: then it is as if next had
// returned the error that this one returns. A RenewHook must not panic: it is called on goroutines where nobody could
// recover. Nor must a hook of go-redis: most commands are sent on such goroutines. Hooks are
// called from many goroutines at once. Downgrade, Resize, Inspect and ForceUnlock have no
// hooks, and Detach has those of the renewal that it begins with.
//
// There is no hook for the end of a lease. The context of [Lease.Context] ends when the
// lease is released or lost, and [context.AfterFunc] can call a function then.
//
// Embed [HookBase] to have only some of the methods. A hook that embeds it still compiles
// when Hook gets more methods.
type Hook interface {
	AcquireHook(next AcquireFunc) AcquireFunc
	ReleaseHook(next ReleaseFunc) ReleaseFunc
	RenewHook(next RenewFunc) RenewFunc
}

// HookBase is a Hook that is interested in nothing.
type HookBase struct{}

// AcquireHook returns nil.
func (HookBase) AcquireHook(AcquireFunc) AcquireFunc { return nil }

// ReleaseHook returns nil.
func (HookBase) ReleaseHook(ReleaseFunc) ReleaseFunc { return nil }

// RenewHook returns nil.
func (HookBase) RenewHook(RenewFunc) RenewFunc { return nil }

// AcquireFunc acquires a lock. It lasts from the call of Lease, TryLease and their like until they
// return, including the waiting. Lock calls it again after an error that it waits out. A lease that next
// returned, and the hooks do not, is released when they have returned, or before next is called again.
// [WithMinHold] does not keep such a lock. A lease that comes after the hooks have returned, or have called
// next again, is released as well, without the hooks: none of them had it.
type AcquireFunc func(ctx context.Context, op *AcquireOp) (*Lease, error)

// ReleaseFunc releases a lease, or a part of it. If a hook of [Lease.Release] does not call
// it, the lease stays held. Unlock, Do and their like, after which nobody has the lease,
// release it nevertheless, and log that. [Client.Close] releases leases without it.
type ReleaseFunc func(ctx context.Context, op *ReleaseOp) error

// RenewFunc renews leases. It returns a slice as long as op.Leases, with an error or nil
// for each lease. [ErrNotHeld] says that by the store the lease is over, and ends it at
// once. After any other error the renewal is tried again as long as the lease lasts.
type RenewFunc func(ctx context.Context, op *RenewOp) []error

// AcquireOp is one call of an AcquireFunc.
type AcquireOp struct {
	Kind   driver.Kind
	Name   string
	Shared bool  // for reading
	Weight int64 // permits of a semaphore, else 0
	Wait   bool  // false for TryLock and its like
	TTL    time.Duration

	WithoutRenewal bool // the lease ends after its TTL

	// Reentrant is set when the lease turns out to be nested in one of the context, see
	// [WithReentrancy].
	Reentrant bool

	// Attach is set for [Client.Attach]. When Holding is called, Shared and Weight say
	// what was detached.
	Attach bool

	// Steal is set for [Mutex.Steal] and [RWMutex.Steal].
	Steal bool

	// Holding, if a hook has set it before it calls next, is called when the lock was
	// granted. It gets the context that Lease.Context is made from, and returns the one to
	// use instead. If it is already set, wrap it. It runs again on a retry. It should not take long: a
	// new lease is not renewed before it has returned, and is lost if its TTL is over by then.
	Holding func(ctx context.Context, fence int64) context.Context

	// The outcome, complete when next returns.
	Contended bool // another held the lock, or waited for it
	Asked     int  // how often the store was asked
	Wakeups   Wakeups

	// Blockers are the tags of other holders of the lock meanwhile, at most 8: see
	// [WithHolderTag].
	Blockers []string

	// BlockedBy is the text of the last holder that was in the way, see [WithHolder]. Empty if
	// there was none, or if the store does not tell: see [LockError]. BlockedByFence is the fence of
	// its lease, or the first of a process that hands the lock on; 0 if the store does not tell.
	BlockedBy      string
	BlockedByFence int64

	// Interrupt, if a hook has made it with room for one error before it calls next, takes an
	// error that ends the waiting: next returns it, as quickly as it returns when its context ends. If that
	// has ended, too, next returns the error of the context. A hook that finds Interrupt made uses it, and
	// an error that finds no room is not needed. Nobody closes it.
	Interrupt chan error

	run AcquireFunc
}

// Wakeups counts what ended the pauses of a waiter between two asks.
type Wakeups struct {
	Notify    int // a message of the store
	Poll      int // it was time to ask again
	Reconnect int // the subscription to messages was broken, or made again
	Local     int // another goroutine of this client passed the lock on, or its place at the store
}

// ReleaseOp is one call of a ReleaseFunc.
type ReleaseOp struct {
	Lease *Lease
	Keep  int64 // how many permits are kept, of a semaphore that is released in part

	run func(ctx context.Context, l *Lease) error
	ran *atomic.Bool // run was called
}

// RenewOp is one call of a RenewFunc. All leases that are due and live on one node are
// renewed at once, at most 256. The context has the values of the context of one of the
// leases, but a span that is not sampled: see [WithBackgroundSpans]. In [Lease.Renew] it has the
// values of the caller's context.
type RenewOp struct {
	Leases []*Lease

	due  bool          // by the timer, not by [Lease.Renew]
	late time.Duration // that timer

	run RenewFunc
}

// holderTagKey finds, in the context for a lease, what waiters are told of its holder.
type holderTagKey struct{}

// WithHolderTag returns a context for [AcquireOp.Holding] to return, with a tag that
// waiters for the lock are told, such as a traceparent. A tag has at most 256 bytes,
// printable, without spaces and ~~. Waiters find it in [AcquireOp.Blockers].
func WithHolderTag(ctx context.Context, tag string) context.Context {
	return context.WithValue(ctx, holderTagKey{}, tag)
}

// ReconnectHook is for a [Hook] that needs to know when messages of the store may be lost.
type ReconnectHook interface {
	// Reconnected is called whenever the connection on which a client hears of grants was
	// lost and has to be made again. The reason is "error", or "silent" if the connection
	// was open but nothing came. The reason is "mute" when no message can come in.
	// Reconnected must not block.
	Reconnected(reason string)
}

// SpanHook is for a [Hook] that makes spans. Then commands of several callers are not sent
// together, unless [WithPipelining] says so, for a span has one parent.
type SpanHook interface{ MakesSpans() }

// AddHook adds a hook inside all earlier ones. It can be called at any time;
// calls that have begun go on without the hook. It panics if hook is nil.
func (c *Client) AddHook(hook Hook) {
	if hook == nil {
		panic("holdfast: nil hook")
	}
	c.made()
	c.chain(hook)
	// Not under the client's lock: the driver may be about to tell of a loss, which needs it.
	if h, ok := hook.(ReconnectHook); ok && c.session.Reporter != nil {
		c.session.Reporter.OnReconnect(func(reason string) {
			if reason != "heard" { // then nothing was lost
				h.Reconnected(reason)
			}
		})
	}
	_, spans := hook.(SpanHook)
	if b := c.session.Batcher; b != nil && spans && c.config.batch == nil {
		b.Batch(false)
	}
}
