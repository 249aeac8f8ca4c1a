package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/leasectx"
	"github.com/holdfast-go/holdfast/internal/local"
	"github.com/holdfast-go/holdfast/internal/session"
	"github.com/holdfast-go/holdfast/internal/trouble"
)

// tryWait is how long TryLock waits for the store.
const tryWait = time.Second

// handle is the common part of Mutex, RWMutex and Semaphore: the name of a lock, and the way
// to hold it.
type handle struct {
	_      noCopy
	c      *Client
	kind   driver.Kind
	name   string
	config *config
	cached local.Cached // of the lock
}

func (c *Client) handle(k driver.Kind, name string, opts []LockOption) handle {
	c.made()
	cfg := &c.config // which most have in common
	if len(opts) > 0 {
		own, given := c.config, config{}
		for _, o := range opts {
			o.apply(&own)
			o.apply(&given)
		}
		own.lingers(&given)
		own.lockOptions = c.options(own)
		cfg = &own
	}
	return handle{c: c, kind: k, name: name, config: cfg}
}

// client returns the client that has made the handle. It panics if none has.
func (h *handle) client() *Client {
	if h.c == nil {
		panic("holdfast: zero Mutex, RWMutex or Semaphore: use the method of a Client that makes one")
	}
	return h.c
}

// base identifies the lock without an owner.
func (h *handle) base() local.ID { return local.ID{Kind: h.kind, Name: h.name} }

// id identifies the lock with its owner. Permits, and a lock held for reading, have no owner.
func (h *handle) id(shared bool) local.ID {
	id := h.base()
	if h.kind != driver.Semaphore && !shared {
		id.Owner = h.config.lockOptions.Owner
	}
	return id
}

func (h *handle) fail(op string, err error) error { return lockError(op, h.kind, h.name, err) }

// lock gets a hold and leaves it with the lock, where unlock finds it. With wait it waits
// for others, and for outages of the store to pass; without, it reports false if others
// have it.
func (h *handle) lock(shared, wait bool) bool {
	if err := h.invalid(); err != nil {
		h.misuse(err)
	}
	ctx := context.Background()
	if !wait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, tryWait)
		defer cancel()
	}
	id, w := h.id(shared), local.Want{Shared: shared, Wait: wait, Sync: true, Options: h.config.lockOptions}
	if !wait {
		w.Patience = h.config.wait
	}
	for pause := session.Pause(0); ; {
		var held *local.Hold
		var err error
		if hooks := h.c.hooks.Load(); hooks == nil {
			_, err = h.c.locks.Acquire(ctx, id, &h.cached, &w)
		} else if held, err = h.hooked(ctx, hooks, id, w); err == nil {
			var kept bool
			if kept, err = h.c.locks.Keep(id, &h.cached, &w, held); !kept && err == nil {
				held.Waive()
				hooks.give(held)
				if wait {
					continue
				}
				return false
			}
		}
		if err == nil {
			return true
		}
		switch {
		case errors.Is(err, ErrClosed) && wait:
			h.strand()
		case h.fatal(err):
			h.misuse(err)
		case !wait:
			return false
		case w.Complaint == nil:
			w.Complaint = h.c.session.Complaint("acquire", h.kind, h.name, w.Options)
		}
		w.Complaint.Persist(err)
		select {
		case <-h.c.session.Closing():
			w.Complaint.Leave()
			h.strand()
		case <-time.After(pause.Next(time.Second)):
			w.Complaint.Leave() // until the store is asked again
		}
	}
}

// unlock undoes what lock has done, and reports whether there is anything to undo.
func (h *handle) unlock(shared bool) bool {
	var room [1]local.Part
	parts, ok := h.client().locks.TakeBack(h.id(shared), &h.cached, shared, 1, room[:0])
	if len(parts) == 0 {
		return ok
	}
	held := parts[0].Hold
	if hooks := h.c.hooks.Load(); hooks != nil {
		hooks.give(held)
	} else {
		_ = held.ReleaseBriefly(held.Values()) // for the span
	}
	return true
}

// invalid is why nobody can lock this, whatever the state of the store.
func (h *handle) invalid() error {
	c := h.client()
	if !validName(h.name) {
		return ErrInvalidName
	}
	if ttl := h.config.lockOptions.TTL; ttl < c.session.LeastTTL {
		return fmt.Errorf("a TTL of %v: on this store leases last at least %v: %w", ttl, c.session.LeastTTL, errors.ErrUnsupported)
	}
	return nil
}

// lease gets a lease.
func (h *handle) lease(ctx context.Context, w local.Want, verb string) (*Lease, error) {
	if err := h.invalid(); err != nil {
		return nil, h.fail(verb, err)
	}
	w.Options, w.Patience, w.MaxWaiters = h.config.lockOptions, h.config.wait, h.config.maxWaiters
	w.Endure = w.Options.Endure
	id := h.id(w.Shared || w.From != nil)
	if hooks := h.c.hooks.Load(); hooks != nil {
		held, err := h.hooked(ctx, hooks, id, w)
		return (*Lease)(held), err
	}
	held, err := h.c.locks.Acquire(ctx, id, &h.cached, &w)
	if err != nil {
		return nil, h.fail(verb, err)
	}
	return (*Lease)(held), nil
}

// fatal reports whether an error is one that forms without an error cannot live with.
func (h *handle) fatal(err error) bool {
	refused := !errors.Is(err, driver.ErrTransient) && !errors.Is(err, ErrLocked) &&
		!errors.Is(err, context.DeadlineExceeded) && !h.c.session.Accepted()
	return !errors.Is(err, ErrClosed) && (refused || errors.Is(err, ErrInvalidName) || errors.Is(err, driver.ErrClosed) ||
		errors.Is(err, errors.ErrUnsupported))
}

// strand never returns, as there is no lock to return with. A panic would end each graceful
// shutdown with a stack trace. The wrong version called runtime.Goexit: that runs the deferred
// functions of the caller, which may tell others of work that was never done.
//
// Each goroutine logs its end itself. In a bubble of testing/synctest, where none may stay, the
// handler of a test can end it there.
func (h *handle) strand() {
	if log := h.config.lockOptions.Log(); !h.c.stranded.Swap(true) {
		log.Warn("holdfast: the client is closed, so Lock never returns", "kind", string(h.kind), "lock", h.name)
	} else {
		log.Debug("holdfast: the client is closed, so Lock never returns", "kind", string(h.kind), "lock", h.name)
	}
	select {}
}

func (h *handle) misuse(err error) {
	panic(h.fail("lock", err))
}

func (h *handle) steal(ctx context.Context) (*Lease, error) {
	if h.client().session.Stealer == nil {
		return nil, h.fail("steal", fmt.Errorf("the store cannot do this: %w", errors.ErrUnsupported))
	}
	return h.lease(ctx, local.Want{Wait: true, Steal: true}, "steal")
}

// inspect and force serve the methods of all primitives.

func (h *handle) inspect(ctx context.Context) (Info, error) {
	i := h.client().session.Inspector
	found := make(chan Info, 1) // which may come when nobody waits any more
	err := h.c.await(ctx, h.config.lockOptions, h.base(), "inspect", session.Errand{Able: i != nil, Do: func() error {
		info, err := i.Inspect(leasectx.Exempt(ctx), h.kind, h.name)
		if err == nil {
			info.Kind = h.kind
			found <- info
		}
		return trouble.Of(err)
	}})
	if err != nil {
		return Info{}, err
	}
	return <-found, nil
}

func (h *handle) force(ctx context.Context) error {
	f := h.client().session.Forcer
	return h.c.await(ctx, h.config.lockOptions, h.base(), "force unlock", session.Errand{Able: f != nil, Once: true, Do: func() error {
		err := f.ForceRelease(leasectx.Exempt(ctx), h.kind, h.name)
		if errors.Is(err, driver.ErrNotHeld) {
			err = ErrNotHeld
		}
		return trouble.Of(err)
	}})
}
