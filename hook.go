package holdfast

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/leasectx"
	"github.com/holdfast-go/holdfast/internal/local"
	"github.com/holdfast-go/holdfast/internal/redishook"
	"github.com/holdfast-go/holdfast/internal/trouble"
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
// A hook can measure, change the context, try again, or refuse by returning an error
// without calling next. It passes on the op that it got, whose fields are there to be read.
// That is the last word of a Lease or Do, whatever the error. Lock and its like treat a refusal like
// one of the store, see [Mutex.Lock]; one that matches [driver.ErrTransient] they wait out. Unlock and its
// like cannot be refused. While a hook waits, its caller waits too, whatever bounds are
// promised elsewhere, so a hook should return when its context ends. A hook must not panic,
// nor call Close. Hooks are called from many goroutines at once. Detach, Downgrade, Resize,
// Inspect and ForceUnlock have no hooks.
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

// AcquireFunc acquires a lock. It lasts from the call of Lock, Lease, TryLease and their
// like until they return, including the waiting. A hook that drops a lease which next
// returned must release it.
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
	// use instead. If it is already set, wrap it. It runs again on a retry.
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
	// error that ends the waiting: next returns it, as it does at the end of the context. A
	// hook that finds it made uses it, and an error that finds no room is not needed.
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

// note adds what was granted, as far as the request did not say.
func (op *AcquireOp) note(r *local.Report) {
	op.Reentrant = r.Reentrant
	if op.Attach {
		op.Shared, op.Weight = r.Shared, r.Weight
	}
}

// count adds what happened in an acquisition.
func (op *AcquireOp) count(r *local.Report) {
	op.Contended = op.Contended || r.Contended
	op.Asked += r.Asked
	if r.Holder != "" {
		op.BlockedBy, op.BlockedByFence = r.Holder, r.HolderFence
	}
	op.Wakeups.Local += r.Local
	op.Wakeups.Notify += r.Notify
	op.Wakeups.Poll += r.Poll
	op.Wakeups.Reconnect += r.Reconnect
	for _, tag := range r.Tags {
		if len(op.Blockers) < 8 && !slices.Contains(op.Blockers, tag) {
			op.Blockers = append(op.Blockers, tag)
		}
	}
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

// hooks is the chain, from the outermost to the function that does the work.
type hooks struct {
	all     []Hook
	acquire AcquireFunc
	release ReleaseFunc
	renew   RenewFunc
}

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

// chain makes the chain anew, with one more hook.
func (c *Client) chain(hook Hook) {
	c.adding.Lock()
	defer c.adding.Unlock()
	next := &hooks{
		acquire: func(ctx context.Context, op *AcquireOp) (*Lease, error) { return op.run(ctx, op) },
		release: func(ctx context.Context, op *ReleaseOp) error { return op.run(ctx, op.Lease) },
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

// surely carries out a release that hooks cannot refuse, because nobody has the lease to try
// again.
func (h *hooks) surely(l *Lease, ctx context.Context, keep int64, run func(*local.Hold, context.Context) error) error {
	refused := true
	err := h.release(ctx, &ReleaseOp{Lease: l, Keep: keep, run: func(ctx context.Context, l *Lease) error {
		refused = false
		return l.error("release", run(l.hold(), ctx))
	}})
	if refused {
		id := l.hold().ID()
		l.hold().Options().Log().Warn("holdfast: a hook refused a release that cannot be refused",
			"kind", id.Kind, "lock", id.Name, "error", err)
		err = errors.Join(err, run(l.hold(), ctx))
	}
	return err
}

// renew renews leases, through the hooks. renewed is called with those of which the store has said
// that they go on, perhaps before it has said anything of others, whatever the hooks make of that.
func (c *Client) renew(ctx context.Context, op *RenewOp, grants []*local.Grant, renewed func(i int)) []error {
	h := c.hooks.Load()
	if h == nil {
		return c.renewNow(ctx, grants, renewed)
	}
	op.run = func(ctx context.Context, _ *RenewOp) []error { return c.renewNow(ctx, grants, renewed) }
	for _, g := range grants {
		op.Leases = append(op.Leases, (*Lease)(g.Oldest()))
	}
	errs := h.renew(ctx, op)
	if len(errs) != len(grants) { // nobody knows which were renewed
		errs = slices.Repeat([]error{errRenewHook}, len(grants))
	}
	return errs
}

// renewNow has the store renew leases.
func (c *Client) renewNow(ctx context.Context, grants []*local.Grant, renewed func(i int)) []error {
	leases := make([]driver.Lease, len(grants))
	for i, g := range grants {
		leases[i] = g.Leased()
	}
	var errs []error
	if d := c.session.Prompter; d != nil {
		errs = d.RenewEach(ctx, leases, renewed)
	} else {
		errs = c.session.Driver.Renew(ctx, leases)
	}
	for i, err := range errs {
		if errs[i] = trouble.Of(err); errors.Is(err, driver.ErrNotHeld) {
			errs[i] = ErrNotHeld
		}
	}
	return errs
}

var (
	errRenewHook   = errors.New("holdfast: a RenewHook does not return an error or nil for each lease")
	errAcquireHook = errors.New("holdfast: an AcquireHook returns neither a lease nor an error")
)

// hooked gets a hold through the hooks.
func (h *handle) hooked(ctx context.Context, hooks *hooks, lock *local.Lock, w local.Want) (*local.Hold, error) {
	c := &call{handle: h, lock: lock, want: w}
	c.op = AcquireOp{
		Kind: h.kind, Name: h.name, Shared: w.Shared, Weight: w.Weight, Wait: w.Wait, TTL: w.Options.TTL,
		Attach: w.From != nil, Steal: w.Steal, WithoutRenewal: w.Options.Fixed, run: c.acquire,
	}
	l, err := hooks.acquire(ctx, &c.op)
	if l == nil && err == nil {
		err = h.fail(verb(&c.op), errAcquireHook)
	}
	return (*local.Hold)(l), err
}

// call is an acquisition on its way through the hooks.
type call struct {
	op     AcquireOp
	handle *handle
	lock   *local.Lock
	want   local.Want
	report local.Report
}

// acquire is called by the innermost hook, perhaps several times.
func (c *call) acquire(ctx context.Context, op *AcquireOp) (*Lease, error) {
	w := c.want
	c.report = local.Report{}
	w.Report, w.Interrupt = &c.report, op.Interrupt
	if op.Holding != nil {
		w.Holding = func(lease context.Context, fence int64) (context.Context, string) {
			op.note(w.Report)
			lease = op.Holding(lease, fence)
			tag, _ := lease.Value(holderTagKey{}).(string)
			return lease, tag
		}
	}
	held, err := c.lock.Acquire(ctx, &w)
	op.note(w.Report)
	op.count(w.Report)
	if err != nil {
		return nil, c.handle.fail(verb(op), err)
	}
	return (*Lease)(held), nil
}

func verb(op *AcquireOp) string {
	if op.Attach {
		return "attach"
	}
	return "acquire"
}

// GuardHook returns a hook for the program's own Redis client. It refuses every command,
// and every pipeline as a whole, whose context comes from a lease that is over: lost, or
// released. The error matches [ErrLost], and nothing is sent.
//
//	rdb.AddHook(holdfast.GuardHook())
//
//	lease, err := mu.Lease(ctx)
//	rdb.Set(lease.Context(), "order:42", state, 0) // fails if the lock was lost
//
// So a holder that was paused for too long does not write when it wakes up, and need not
// look at [Lease.Err] before each command. The hook looks at the clock just before the
// command is sent. It cannot see a pause between that and the arrival at the server. Only a
// fence helps there, see package fence/redisfence. A command that is under way when the
// lease ends may fail like any command whose context ends; [context.Cause] says why.
//
// On a [redis.ClusterClient], commands within Watch pass only through the hooks of the
// nodes, so also add the hook there, with OnNewNode. An AutoPipeline sends commands with a
// context that is not theirs, so they cannot be guarded; check [Lease.Err] before them. The
// commands of this library are never refused.
func GuardHook() redis.Hook { return redishook.Guard(over) }

// over returns why a lease that ctx comes from is over.
func over(ctx context.Context) error {
	for c := leasectx.Of(ctx); c != nil; c = c.Outer {
		switch err := c.Lease.Err(); {
		case err == nil:
		case errors.Is(err, ErrNotHeld):
			l := (*Lease)(c.Lease.(*local.Hold))
			return l.error("guard", fmt.Errorf("%w: the lease was released", ErrLost))
		default:
			return err
		}
	}
	return nil
}

// NameHook returns a hook for the program's own Redis client that names the spans of this
// library's scripts. It replaces "evalsha" by a name such as "holdfast.mutex.acquire", and
// sets the attribute db.stored_procedure.name. The name is "holdfast.", a subject, and a verb. The
// subject is the kind of a lock; "locks" where one call is for many, as in
// "holdfast.locks.acquire"; "wake" in "holdfast.wake.ping", by which a waiting client learns
// whether news reaches it; "cluster" in "holdfast.cluster.node", by which it learns whether a node
// takes calls for many locks; or another driver: "setnx", "getset" or "redisson". Use it with
// redisotel, and add it after redisotel's hook, for it must run within that span:
//
//	redisotel.InstrumentTracing(rdb)
//	rdb.AddHook(holdfast.NameHook())
//
// With a [redis.ClusterClient], where each node has its spans:
//
//	redisotel.InstrumentTracing(rdb)
//	rdb.OnNewNode(func(node *redis.Client) { node.AddHook(holdfast.NameHook()) })
//
// A server that does not know a script yet answers NOSCRIPT, and is sent the text. That is
// no error, and is not shown as one. In the wrong order the hook does nothing.
//
// By default redisotel puts the arguments of commands in the attribute db.statement, and so
// the tokens of leases. This hook puts the name of the script in their place. Without this
// hook, use redisotel.WithDBStatement(false).
func NameHook() redis.Hook { return redishook.Name() }
