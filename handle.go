package holdfast

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// tryWait is how long TryLock waits for the store.
const tryWait = time.Second

// handle is what Mutex, RWMutex and Semaphore have in common: the name of a lock, and
// for the first two the forms of package sync.
type handle struct {
	_      noCopy
	c      *Client
	kind   driver.Kind
	name   string
	config *config
}

func (c *Client) handle(k driver.Kind, name string, opts []LockOption) handle {
	cfg := &c.config // which most have in common
	if len(opts) > 0 {
		own := c.config.with(opts)
		if !c.notices {
			own.linger = 0
		}
		own.key = c.share(own.alike())
		cfg = &own
	}
	return handle{c: c, kind: k, name: name, config: cfg}
}

// want is a request for the lock, shared or not. Only an RWMutex can be shared.
func (h *handle) want(shared, wait bool) driver.Request {
	return driver.Request{Kind: h.kind, Name: h.name, Shared: shared, Wait: wait, Owner: h.owner(shared)}
}

// lock waits for the lock and leaves the lease in the doorway.
func (h *handle) lock(shared bool) {
	cfg := *h.config
	cfg.wait = 0
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := h.attempt(context.Background(), h.want(shared, true), cfg)
		if err == nil {
			return
		}
		if h.fatal(err) {
			h.misuse(err)
		}
		if cfg.said == nil {
			cfg.said = &complaint{op: "acquire", kind: h.kind, name: h.name, cfg: h.config}
		}
		cfg.said.persist(err)
		select {
		case <-h.c.closing.Done():
			h.misuse(ErrClosed)
		case <-time.After(min(pause, cfg.said.tell())):
		}
	}
}

// tryLock is lock without waiting for others.
func (h *handle) tryLock(shared bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), tryWait)
	defer cancel()
	err := h.attempt(ctx, h.want(shared, false), *h.config)
	if err != nil && h.fatal(err) {
		h.misuse(err)
	}
	return err == nil
}

// attempt gets the lease and leaves it in the doorway.
func (h *handle) attempt(ctx context.Context, want driver.Request, cfg config) error {
	if want.Shared && cfg.joins() && h.c.hooks.Load() == nil {
		return h.read(ctx, want, cfg)
	}
	at := h.c.approach(h.door(want.Shared))
	if at == nil {
		return h.refused(ErrClosed)
	}
	var l *Lease
	var err error
	if hooks := h.c.hooks.Load(); hooks != nil {
		l, err = h.hooked(ctx, hooks, at, want, cfg)
	} else {
		l, err = h.enter(ctx, at, want, cfg, nil)
	}
	if err != nil {
		h.c.withdraw(at)
	} else if !h.c.hold(at, l) {
		err = h.refused(ErrClosed)
	}
	return err
}

// hooked is enter with hooks around it. What it keeps for them costs the others nothing.
func (h *handle) hooked(ctx context.Context, hooks *hooks, at *doorway, want driver.Request, cfg config) (*Lease, error) {
	return hooks.lease(ctx, newAcquireOp(want, cfg, func(ctx context.Context, op *AcquireOp) (*Lease, error) {
		return h.enter(ctx, at, want, cfg, op)
	}))
}

// enter gets the lease when no hold is in the way. Another may become lost while this one
// waits for its turn; then the lock goes to others first.
func (h *handle) enter(ctx context.Context, at *doorway, want driver.Request, cfg config, op *AcquireOp) (*Lease, error) {
	bar := h.c.barred(at, want.Shared, want.Wait)
	for {
		if bar != nil {
			if op != nil {
				op.Contended = true
			}
			if err := h.stand(bar, want.Wait); err != nil {
				return nil, err
			}
		}
		l, err := h.c.obtain(ctx, want, cfg, at, op)
		if err != nil {
			return nil, err
		}
		if bar = h.c.barred(at, want.Shared, false); bar == nil {
			return l, nil
		}
		_ = l.letGo(l.values, 0)
	}
}

// stand waits before a doorway.
func (h *handle) stand(bar <-chan struct{}, wait bool) error {
	if !wait {
		return h.refused(ErrLocked)
	}
	select {
	case <-bar:
		return nil
	case <-h.c.closing.Done():
		return h.refused(ErrClosed)
	}
}

func (h *handle) refused(err error) error {
	return &LockError{Op: "acquire " + string(h.kind), Name: h.name, Err: err}
}

// unlock ends what lock or tryLock has begun, and reports whether there is anything.
func (h *handle) unlock(shared bool) bool {
	part, ok := h.c.unholdOne(h.door(shared), shared)
	if ok && part.left == 0 {
		part.lease.unlock()
	}
	return ok
}

func (h *handle) door(shared bool) door { return h.all().of(h.owner(shared)) }

// all is the door whoever the owner is.
func (h *handle) all() door { return door{h.kind, h.name} }

// owner returns on whose behalf the lock is held.
func (h *handle) owner(shared bool) string {
	if h.kind == driver.Semaphore || shared {
		return ""
	}
	return h.config.owner
}

// fatal reports whether an error is one that forms without an error cannot live with.
func (h *handle) fatal(err error) bool {
	refused := !errors.Is(err, driver.ErrTransient) && !errors.Is(err, ErrLocked) &&
		!errors.Is(err, context.DeadlineExceeded) && !h.c.accepted.Load()
	return refused || errors.Is(err, ErrInvalidName) || errors.Is(err, ErrClosed) || errors.Is(err, redis.ErrClosed) ||
		errors.Is(err, errors.ErrUnsupported)
}

func (h *handle) misuse(err error) {
	panic(&LockError{Op: "lock " + string(h.kind), Name: h.name, Err: err})
}
