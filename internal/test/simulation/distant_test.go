package simulation_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// distant is a store behind a network: each call is a frame there and a frame back, and so
// is each call of Wake.
type distant struct {
	*memdriver.Driver
	process *process
	weather *weather

	fail func(format string, args ...any)

	gone sync.Map // tokens that want no more news

	order    sync.Mutex      // of asks and releases that arrive in the same moment
	released map[string]bool // tokens whose release the store has carried out
}

var (
	errUnanswered = fmt.Errorf("no answer: %w", driver.ErrTransient)
	errRefused    = fmt.Errorf("refused: %w: %w", driver.ErrTransient, driver.ErrNotExecuted)
)

// call does something at the store, and returns its answer if that comes in time. A late
// one is done nevertheless.
func call[T any](d *distant, do func() (T, error)) (T, error) {
	var none T
	if ok, refused := d.weather.dials(d.process.slot); refused {
		return none, errRefused
	} else if !ok {
		time.Sleep(d.process.Timeout)
		return none, errRefused
	}
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	there := d.weather.judge(d.process.slot, 0, false, toServer)
	go func() {
		time.Sleep(there.late)
		if there.lost || d.process.dead.Load() {
			return
		}
		var a answer
		a.value, a.err = do()
		back := d.weather.judge(d.process.slot, 0, false, toClient)
		time.Sleep(back.late)
		if !back.lost && !there.reset && !back.reset {
			answers <- a
		}
	}()
	if there.reset {
		return none, errUnanswered
	}
	select {
	case a := <-answers:
		return a.value, a.err
	case <-time.After(d.process.Timeout):
		return none, errUnanswered
	}
}

// done is call for what answers with an error only.
func (d *distant) done(do func() error) error {
	_, err := call(d, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func (d *distant) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	return call(d, func() (driver.Grant, error) {
		d.order.Lock()
		defer d.order.Unlock()
		g, err := d.Driver.Acquire(context.Background(), d.hear(r))
		if d.released[r.Token] && err == nil && g.Status == driver.Granted {
			d.fail("an ask that came after its release took %s for nobody", r.Name)
		}
		return g, err
	})
}

// hear puts the way back between the store and the request's Wake.
func (d *distant) hear(r *driver.Request) *driver.Request {
	if r.Wake == nil {
		return r
	}
	far := *r
	far.Wake = func(g driver.Grant) {
		f := d.weather.judge(d.process.slot, 0, true, toClient)
		if f.lost || f.reset || d.process.dead.Load() {
			return
		}
		time.AfterFunc(f.late, func() {
			if _, gone := d.gone.Load(r.Token); !gone {
				r.Wake(g)
			}
		})
	}
	return &far
}

func (d *distant) Renew(_ context.Context, leases []driver.Lease) []error {
	errs, err := call(d, func() ([]error, error) { return d.Driver.Renew(context.Background(), leases), nil })
	if err != nil {
		errs = make([]error, len(leases))
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

func (d *distant) Release(_ context.Context, l driver.Lease) error {
	d.gone.Store(l.Token, true)
	return d.done(func() error {
		d.order.Lock()
		defer d.order.Unlock()
		d.released[l.Token] = true
		return d.Driver.Release(context.Background(), l)
	})
}

func (d *distant) Detach(l driver.Lease) { d.gone.Store(l.Token, true) }

func (d *distant) Close() error { return nil }

func (d *distant) Inspect(_ context.Context, k driver.Kind, name string) (driver.Info, error) {
	return call(d, func() (driver.Info, error) { return d.Driver.Inspect(context.Background(), k, name) })
}

func (d *distant) ForceRelease(_ context.Context, k driver.Kind, name string) error {
	return d.done(func() error { return d.Driver.ForceRelease(context.Background(), k, name) })
}

func (d *distant) Downgrade(_ context.Context, l driver.Lease, weight int64) error {
	return d.done(func() error { return d.Driver.Downgrade(context.Background(), l, weight) })
}

func (d *distant) Resize(_ context.Context, name, token string, limit int64) error {
	return d.done(func() error { return d.Driver.Resize(context.Background(), name, token, limit) })
}

func (d *distant) Attach(_ context.Context, old driver.Lease, r *driver.Request) (driver.Grant, error) {
	return call(d, func() (driver.Grant, error) { return d.Driver.Attach(context.Background(), old, d.hear(r)) })
}
