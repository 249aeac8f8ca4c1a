package holdfast

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
	"github.com/holdfast-go/holdfast/internal/leasectx"
	"github.com/holdfast-go/holdfast/internal/local"
	"github.com/holdfast-go/holdfast/internal/trouble"
)

// hooks is the chain, from the outermost to the function that does the work.
type hooks struct {
	all     []Hook
	acquire AcquireFunc
	release ReleaseFunc
	renew   RenewFunc
}

// chain makes the chain anew, with one more hook.
func (c *Client) chain(hook Hook) {
	c.adding.Lock()
	defer c.adding.Unlock()
	next := &hooks{
		acquire: func(ctx context.Context, op *AcquireOp) (*Lease, error) { return op.run(ctx, op) },
		release: func(ctx context.Context, op *ReleaseOp) error {
			op.ran.Store(true)
			return op.run(ctx, op.Lease)
		},
		renew: func(ctx context.Context, op *RenewOp) []error { return op.run(ctx, op) },
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

// hooked gets a hold through the hooks. A hold that they get and do not return, as they panic or fail, is given back.
func (h *handle) hooked(ctx context.Context, hooks *hooks, id local.ID, w local.Want) (*local.Hold, error) {
	c := &call{handle: h, hooks: hooks, id: id, want: w}
	c.op = AcquireOp{
		Kind: h.kind, Name: h.name, Shared: w.Shared, Weight: w.Weight, Wait: w.Wait, TTL: w.Options.TTL,
		Attach: w.From != nil, Steal: w.Steal, WithoutRenewal: w.Options.Fixed, run: c.acquire,
	}
	returned := false
	defer func() {
		if !returned { // a hook panics
			c.end(nil)
		}
	}()
	l, err := hooks.acquire(ctx, &c.op)
	if returned = true; err != nil {
		l = nil
	}
	if !c.end((*local.Hold)(l)) && err == nil {
		err = h.fail(c.op.verb(), errAcquireHook)
	}
	if err != nil {
		return nil, err
	}
	return (*local.Hold)(l), nil
}

// call is an acquisition on its way through the hooks. They may try again, and return before next does.
type call struct {
	op     AcquireOp
	handle *handle
	hooks  *hooks
	id     local.ID
	want   local.Want
	report local.Report // of the first attempt

	mu       sync.Mutex
	attempts int         // calls of next
	held     *local.Hold // what the last attempt got, until the hooks have returned
	over     bool        // the hooks have returned
}

// begin begins an attempt, and returns its number, or 0 if the call is over. The hold of the attempt before is
// given back. Nobody else could do that: an inner hook has dropped it, and an outer one tries again.
func (c *call) begin() (attempt int) {
	c.mu.Lock()
	before := c.held
	c.held = nil
	if !c.over {
		c.attempts++
		attempt = c.attempts
	}
	c.mu.Unlock()
	c.giveBack(before)
	return attempt
}

// during calls f if the attempt is the last one, and the hooks have not returned. Else nobody waits for it.
func (c *call) during(attempt int, f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || attempt != c.attempts {
		return false
	}
	f()
	return true
}

// end ends the call, of which the caller is to get a hold, or nil. Another one that the hooks have got is given back.
// It reports whether they have got that hold.
func (c *call) end(hold *local.Hold) bool {
	c.mu.Lock()
	got := c.held
	c.held, c.over = nil, true
	c.mu.Unlock()
	if hold != nil && got == hold {
		return true
	}
	c.giveBack(got)
	return false
}

func (c *call) giveBack(held *local.Hold) {
	if held != nil && held.Err() == nil {
		held.Waive()
		c.hooks.give(held)
	}
}

// acquire is called by the innermost hook, perhaps several times, perhaps when the hooks around it have given up.
func (c *call) acquire(ctx context.Context, op *AcquireOp) (*Lease, error) {
	attempt := c.begin()
	if attempt == 0 {
		return nil, c.handle.fail(op.verb(), errHookLate)
	}
	w := c.want
	w.Report, w.Interrupt = &c.report, op.Interrupt
	if attempt > 1 {
		w.Report = &local.Report{} // the first may not have ended
	}
	if holding := op.Holding; holding != nil { // a hook that returns before next sets it back
		w.Holding = func(lease context.Context, fence int64) (context.Context, string) {
			if !c.during(attempt, func() { op.note(w.Report) }) {
				return lease, ""
			}
			if lease = holding(lease, fence); lease == nil {
				panic("holdfast: Holding of a hook returns no context")
			}
			tag, _ := lease.Value(holderTagKey{}).(string)
			return lease, tag
		}
	}
	held, err := c.handle.c.locks.Acquire(ctx, c.id, &c.handle.cached, &w)
	if !c.during(attempt, func() {
		op.note(w.Report)
		op.count(w.Report)
		c.held = held
	}) {
		if held != nil { // not through the hooks: none of them had it
			held.Waive()
			_ = held.ReleaseBriefly(context.WithoutCancel(held.Context()))
		}
		err = cmp.Or(err, errHookLate)
	}
	if err != nil {
		return nil, c.handle.fail(op.verb(), err)
	}
	return (*Lease)(held), nil
}

func (op *AcquireOp) verb() string {
	switch {
	case op.Attach:
		return "attach"
	case op.Steal:
		return "steal"
	}
	return "acquire"
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

// releaseOf is [Lease.Release] through the hooks, which can refuse it. It is carried out if one panics.
func (h *hooks) releaseOf(l *Lease, ctx context.Context) error {
	op, returned := newReleaseOp(l, 0, func(ctx context.Context, l *Lease) error {
		return l.error("release", l.hold().Release(ctx))
	}), false
	defer func() {
		if !returned && !op.ran.Load() {
			_ = l.hold().Release(ctx)
		}
	}()
	err := h.release(ctx, op)
	returned = true
	return err
}

// newReleaseOp returns an op whose copies tell, too, whether run was called.
func newReleaseOp(l *Lease, keep int64, run func(context.Context, *Lease) error) *ReleaseOp {
	var both struct { // which costs one allocation
		op  ReleaseOp
		ran atomic.Bool
	}
	both.op = ReleaseOp{Lease: l, Keep: keep, run: run, ran: &both.ran}
	return &both.op
}

// releaseAnyway carries out a release that hooks cannot refuse, because nobody has the lease to try
// again. It is also carried out if a hook panics before.
func (h *hooks) releaseAnyway(l *Lease, ctx context.Context, keep int64, run func(*local.Hold, context.Context) error) error {
	op, returned := newReleaseOp(l, keep, func(ctx context.Context, l *Lease) error {
		return l.error("release", run(l.hold(), ctx))
	}), false
	defer func() {
		if !returned && !op.ran.Load() {
			_ = run(l.hold(), ctx)
		}
	}()
	err := h.release(ctx, op)
	if returned = true; !op.ran.Load() {
		id := l.hold().ID()
		l.hold().Options().Log().Warn("holdfast: a hook refused a release that cannot be refused",
			"kind", id.Kind, "lock", id.Name, "error", err)
		err = errors.Join(err, run(l.hold(), ctx))
	}
	return err
}

// give is releaseAnyway for Unlock and its like.
func (h *hooks) give(held *local.Hold) {
	_ = h.releaseAnyway((*Lease)(held), context.WithoutCancel(held.Context()), 0, (*local.Hold).ReleaseBriefly)
}

// renewDue renews leases for the keeper, with the values of one of them: if renewals are to be in
// traces, of one that has a span. Otherwise nobody looks, as a context is code of the program. One that
// looked something up would hold up the renewals of all others.
func (c *Client) renewDue(ctx context.Context, entries []*keepalive.Entry, renewed func(i int)) []error {
	values := context.Background()
	for _, e := range entries {
		h := e.Owner.(*local.Grant).Oldest()
		if h != nil && (!c.session.Traced || trace.SpanContextFromContext(h.Values()).IsValid()) {
			values = h.Values()
			break
		}
	}
	grants := make([]*local.Grant, len(entries))
	for i, e := range entries {
		grants[i] = e.Owner.(*local.Grant)
	}
	ctx = c.session.Unasked(leasectx.Detached(ctx, values))
	if c.hooks.Load() == nil {
		return c.renewNow(ctx, grants, renewed)
	}
	return c.renew(ctx, &RenewOp{due: true, late: c.locks.Keeper.Late()}, grants, renewed)
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
	errAcquireHook = errors.New("holdfast: an AcquireHook returns neither the lease of next nor an error")
	errHookLate    = errors.New("holdfast: an AcquireHook has returned, or has tried again, before next returned")
)
