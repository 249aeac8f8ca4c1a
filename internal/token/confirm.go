package token

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
	"github.com/holdfast-go/holdfast/internal/session"
	"github.com/holdfast-go/holdfast/internal/trouble"
)

// Confirm returns when the grant is where want says, with the trust that follows from it, since a confirmation
// is a renewal. If it returns an error, the caller must give the lock back.
func (t *Token) Confirm(ctx context.Context, want driver.Confirmation) (keepalive.Trust, error) {
	// Nothing else renews the lease meanwhile, so there must be something left of it.
	want.Timeout = min(want.Timeout, t.TTL/2)
	hung := time.NewTimer(want.Timeout + t.TTL/4)
	defer hung.Stop()
	type result struct {
		trust keepalive.Trust
		err   error
	}
	done := make(chan result, 1)
	t.s.Go(func() {
		trust, err := t.confirm(ctx, want)
		done <- result{trust, err}
	})
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
	case <-hung.C:
		r.err = fmt.Errorf("%w: %w", driver.ErrNotConfirmed, errTooSlow)
	case <-t.s.Closing():
		return r.trust, session.ErrClosed
	}
	if ctx.Err() != nil { // also if it was confirmed at the same time
		r.err = fmt.Errorf("%w: %w", session.EndOf(ctx), driver.ErrNotConfirmed)
	}
	return r.trust, r.err
}

// confirm asks for the confirmation, and again if anything but replicas or disks is in the way.
func (t *Token) confirm(ctx context.Context, want driver.Confirmation) (keepalive.Trust, error) {
	deadline := time.Now().Add(want.Timeout)
	var err error
	for pause := session.Pause(0); ; {
		sent := time.Now()
		want.Timeout = deadline.Sub(sent) // less than meant, if the process was paused meanwhile
		if want.Timeout < time.Millisecond || err != nil && ctx.Err() != nil {
			return keepalive.Trust{}, fmt.Errorf("%w: %w", driver.ErrNotConfirmed, err)
		}
		if err = trouble.Of(t.s.Confirmer.Confirm(ctx, t.Lease(""), want)); !errors.Is(err, driver.ErrTransient) {
			return keepalive.NewTrust(sent, t.TTL), err
		}
		time.Sleep(min(pause.Next(time.Second), time.Until(deadline)))
	}
}
