package holdfast

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
)

// Hook is called around what a [Client] does, in the manner of a hook of go-redis. Each
// method gets the function that does the work, or the next hook, and returns one that
// calls it; or nil, if it is not interested.
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
// A hook can measure, change the context, try again, or refuse by returning an error
// without calling next. It passes on the op that it got, whose fields are there to be
// read. Lock and its like deal with a refusal as with one of the store, see [Mutex.Lock];
// Unlock and its like cannot be refused. While a hook waits so does the caller, whatever
// bounds are promised elsewhere; it should go by its context. A hook must not panic, nor
// call Close. Hooks are called from many goroutines at once. Detach, Downgrade, Resize,
// Inspect and ForceUnlock have none.
//
// There is no hook for the end of a lease, because a lease has one already: the context
// of [Lease.Context] ends when it is released or lost, and [context.AfterFunc] calls what
// wants to know.
//
// Embed [HookBase] to have only some of the methods, and to go on compiling when there
// are more.
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

// AcquireFunc acquires a lock: all of it, from the call of Lock, Lease, TryLease and
// their like until they return, with the waiting. Who does not pass on a lease that
// next returned must release it.
type AcquireFunc func(ctx context.Context, op *AcquireOp) (*Lease, error)

// ReleaseFunc releases a lease, or a part of it. If it is not called for [Lease.Release],
// the lease is held on. Unlock, Do and the like, after which nobody has the lease, release
// it nevertheless, and log that. [Client.Close] releases leases without it.
type ReleaseFunc func(ctx context.Context, op *ReleaseOp) error

// RenewFunc renews leases, and returns a slice as long as op.Leases, with an error or nil
// for each of them: [ErrNotHeld] if the store says that the lease is over, which ends it at once, or
// what kept it from renewing, which is tried again as long as the lease lasts.
type RenewFunc func(ctx context.Context, op *RenewOp) []error

// AcquireOp is one call of an AcquireFunc.
type AcquireOp struct {
	Kind   driver.Kind
	Name   string
	Shared bool  // for reading
	Weight int64 // permits of a semaphore, else 0
	Wait   bool  // false for TryLock and its like
	TTL    time.Duration

	// Reentrant is set when the lease turns out to be nested in one of the context, see
	// [WithReentrancy].
	Reentrant bool

	// Attach is set for [Client.Attach]. What was detached is known, and in Shared and
	// Weight, when Holding is called.
	Attach bool

	// Holding, if a hook has set it before it calls next, is called when the lock was
	// granted, with the context that Lease.Context is made from, and returns the one to
	// use instead. A hook that finds it set has its own call what it found. Who tries
	// again has it called again.
	Holding func(ctx context.Context, fence int64) context.Context

	// What happened, complete when next returns.
	Contended bool // another held the lock, or waited for it
	Asked     int  // how often the store was asked
	Wakeups   Wakeups

	blockers []string // carriers of those who held it
	run      AcquireFunc
}

// Wakeups counts what ended the pauses in which a waiter does nothing.
type Wakeups struct {
	Notify    int // a message of the store
	Poll      int // the time to ask again
	Reconnect int // the subscription to messages was broken, or made again
}

// ReleaseOp is one call of a ReleaseFunc.
type ReleaseOp struct {
	Lease *Lease
	Keep  int64 // how many permits are kept, of a semaphore that is released in part

	run func(l *Lease, ctx context.Context, keep int64) error
}

// RenewOp is one call of a RenewFunc. All leases that are due and live on one node are
// renewed at once, at most 256. The context has the values of that of one of the leases,
// if possible of one with a span; in [Lease.Renew] it has those of the caller's.
type RenewOp struct {
	Leases []*Lease

	run RenewFunc
}

func newAcquireOp(want driver.Request, cfg config, run AcquireFunc) *AcquireOp {
	return &AcquireOp{
		Kind: want.Kind, Name: want.Name, Shared: want.Shared, Weight: want.Weight, Wait: want.Wait, TTL: cfg.ttl,
		Attach: cfg.from != nil, run: run,
	}
}

// found adds what was granted, of which a token does not tell.
func (op *AcquireOp) found(a *acquisition) {
	if op != nil && op.Attach {
		op.Shared, op.Weight = a.req.Shared, a.req.Weight
	}
}

// note adds what happened in an acquisition.
func (op *AcquireOp) note(a *acquisition) {
	if op == nil {
		return
	}
	op.Contended = op.Contended || a.busy || a.wakeups.Notify > 0 // which can overtake the answer
	op.Asked += int(a.last)
	op.Wakeups.Notify += a.wakeups.Notify
	op.Wakeups.Poll += a.wakeups.Poll
	op.Wakeups.Reconnect += a.wakeups.Reconnect
	op.block(a.blocked...)
}

// maxBlockers is how many holders that were in the way of one acquisition are remembered.
const maxBlockers = 8

// block adds holders that were in the way, by their carriers, each once.
func (op *AcquireOp) block(carriers ...string) {
	for _, c := range carriers {
		if c != "" && len(op.blockers) < maxBlockers && !slices.Contains(op.blockers, c) {
			op.blockers = append(op.blockers, c)
		}
	}
}

// carrierKey finds, in the context for a lease, what others are told who wait for it.
type carrierKey struct{}

// lease calls the chain, and sees to it that it returns something.
func (h *hooks) lease(ctx context.Context, op *AcquireOp) (*Lease, error) {
	l, err := h.acquire(ctx, op)
	if l == nil && err == nil {
		err = &LockError{Op: "acquire " + string(op.Kind), Name: op.Name, Err: errAcquireHook}
	}
	return l, err
}

// hooks is the chain, from the outermost to the function that does the work.
type hooks struct {
	all     []Hook
	acquire AcquireFunc
	release ReleaseFunc
	renew   RenewFunc
}

// AddHook adds a hook inside of those that were added before. It can be called at any
// time; what has begun goes on without it. It panics if hook is nil.
func (c *Client) AddHook(hook Hook) {
	if hook == nil {
		panic("holdfast: nil hook")
	}
	c.chain(hook)
	// Not under the client's lock: the driver may be about to tell of a loss, which needs it.
	d, able := driver.As[driver.Reporter](c.d)
	if h, ok := hook.(reconnectHook); ok && able {
		d.OnReconnect(h.reconnected)
	}
	_, spans := hook.(*tracing)
	if b, able := driver.As[driver.Batcher](c.d); able && spans && c.config.batch == nil {
		b.Batch(false)
	}
}

// chain makes the chain anew, with one more hook.
func (c *Client) chain(hook Hook) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := &hooks{
		acquire: func(ctx context.Context, op *AcquireOp) (*Lease, error) { return op.run(ctx, op) },
		release: func(ctx context.Context, op *ReleaseOp) error { return op.run(op.Lease, ctx, op.Keep) },
		renew:   func(ctx context.Context, op *RenewOp) []error { return op.run(ctx, op) },
	}
	if now := c.hooks.Load(); now != nil {
		next.all = append(next.all, now.all...)
	}
	next.all = append(next.all, hook)
	for i := len(next.all) - 1; i >= 0; i-- {
		next.wrap(next.all[i])
	}
	c.hooks.Store(next)
}

// reconnectHook is a hook that wants to know when the store's messages were lost.
type reconnectHook interface{ reconnected(reason string) }

func (h *hooks) wrap(hook Hook) {
	if f := hook.AcquireHook(h.acquire); f != nil {
		h.acquire = f
	}
	if f := hook.ReleaseHook(h.release); f != nil {
		h.release = f
	}
	if f := hook.RenewHook(h.renew); f != nil {
		h.renew = f
	}
}

// keep renews leases for the keeper. Commands need a context with a span, or they would
// each begin a trace of their own; that of one of the leases is as good as another.
func (c *Client) keep(ctx context.Context, entries []*keepalive.Entry) []error {
	values := context.Background()
	for _, e := range entries {
		if l := e.Owner.(*acquisition).lease(); l != nil && trace.SpanContextFromContext(l.values).IsValid() {
			values = l.values
			break
		}
	}
	return c.renew(borrowed{together{ctx, values}}, entries)
}

// renew renews leases, through the hooks.
func (c *Client) renew(ctx context.Context, entries []*keepalive.Entry) []error {
	run := func(ctx context.Context, _ *RenewOp) []error {
		leases := make([]driver.Lease, len(entries))
		for i, e := range entries {
			leases[i] = e.Owner.(*acquisition).driverLease()
		}
		errs := c.d.Renew(ctx, leases)
		for i, err := range errs {
			if errors.Is(err, driver.ErrNotHeld) {
				errs[i] = ErrNotHeld
			}
		}
		return errs
	}
	h := c.hooks.Load()
	if h == nil {
		return run(ctx, nil)
	}
	op := &RenewOp{run: run}
	for _, e := range entries {
		op.Leases = append(op.Leases, e.Owner.(*acquisition).lease())
	}
	errs := h.renew(ctx, op)
	if len(errs) != len(entries) { // nobody knows which were renewed
		errs = slices.Repeat([]error{errRenewHook}, len(entries))
	}
	return errs
}

var (
	errRenewHook   = errors.New("holdfast: a RenewHook does not return an error or nil for each lease")
	errAcquireHook = errors.New("holdfast: an AcquireHook returns neither a lease nor an error")
)
