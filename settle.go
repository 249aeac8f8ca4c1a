package holdfast

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// settlement is the release of a token, or of a part of what it holds, which is tried
// until the store has answered or the lease would have ended by itself.
type settlement struct {
	c        *Client
	ctx      context.Context
	lease    driver.Lease
	send     func(context.Context, driver.Lease) error
	open     *atomic.Int32 // of the acquisition
	deadline time.Time     // set when the first attempt fails
	pause    time.Duration
	maybe    bool // a release may have been carried out without our hearing of it
}

func (a *acquisition) settlement(ctx context.Context) *settlement {
	return &settlement{c: a.c, ctx: a.c.under(ctx), lease: a.driverLease(), send: a.c.d.Release, open: &a.open}
}

// try makes one attempt. If it is final, err is what to say: driver.ErrNotHeld only if
// the token was not held when the first release arrived, since after a release whose
// answer was lost that is what one expects to hear.
func (s *settlement) try() (err error, final bool) {
	s.lease.Unsettled = s.open.Load() > 0
	err = s.send(s.ctx, s.lease)
	if err == nil {
		s.c.answer()
	}
	switch {
	case err == nil, errors.Is(err, driver.ErrNotHeld) && s.maybe:
		return nil, true
	case errors.Is(err, driver.ErrNotHeld), !errors.Is(err, driver.ErrTransient):
		return err, true
	}
	s.maybe = s.maybe || !errors.Is(err, driver.ErrNotExecuted)
	if s.deadline.IsZero() {
		s.deadline = time.Now().Add(s.lease.TTL + time.Second)
	}
	return err, time.Now().After(s.deadline)
}

// run tries until it is done.
func (s *settlement) run() error {
	for {
		err, final := s.try()
		if final {
			return err
		}
		s.pause = min(max(2*s.pause, 5*time.Millisecond), time.Second, s.lease.TTL/3)
		select {
		case <-s.c.life.Done():
			return err
		case <-time.After(s.pause/2 + rand.N(s.pause)):
		}
	}
}
