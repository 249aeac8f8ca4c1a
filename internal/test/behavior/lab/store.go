package lab

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Instant grants everything at once.
type Instant struct{}

func (Instant) Acquire(_ context.Context, r *driver.Request) (driver.Grant, error) {
	return driver.Grant{Status: driver.Granted, Ask: r.Ask, Fence: 1}, nil
}

func (Instant) Renew(_ context.Context, l []driver.Lease) []error { return make([]error, len(l)) }

func (Instant) Release(context.Context, driver.Lease) error { return nil }

func (Instant) Close() error { return nil }

// Bare hides the optional abilities of a driver.
type Bare struct{ driver.Driver }

// Puppet is a store that the test moves; where it does not, it is instant.
type Puppet struct {
	Instant
	OnAcquire func(*driver.Request) (driver.Grant, error)
	OnRenew   func(context.Context, []driver.Lease) []error
	OnRelease func(driver.Lease) error
	OnReport  func(func(reason string))
}

func (p Puppet) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if p.OnAcquire != nil {
		return p.OnAcquire(r)
	}
	return p.Instant.Acquire(ctx, r)
}

func (p Puppet) Renew(ctx context.Context, leases []driver.Lease) []error {
	if p.OnRenew != nil {
		return p.OnRenew(ctx, leases)
	}
	return p.Instant.Renew(ctx, leases)
}

func (p Puppet) Release(ctx context.Context, l driver.Lease) error {
	if p.OnRelease != nil {
		return p.OnRelease(l)
	}
	return p.Instant.Release(ctx, l)
}

func (p Puppet) OnReconnect(f func(reason string)) {
	if p.OnReport != nil {
		p.OnReport(f)
	}
}

// WithPuppet returns a client of a puppet, with hooks.
func WithPuppet(t *testing.T, p Puppet, hooks ...holdfast.Hook) *holdfast.Client {
	t.Helper()
	c := holdfast.Open(p, holdfast.WithTTL(Ages))
	t.Cleanup(func() { assert.NoError(t, Promptly(t, Soon, c.Close)) })
	for _, h := range hooks {
		c.AddHook(h)
	}
	return c
}
