package lab

import (
	"context"

	"github.com/holdfast-go/holdfast"
)

// Meddler does what hooks may do.
type Meddler struct {
	Acquire func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error)
	Release func(next holdfast.ReleaseFunc, ctx context.Context, op *holdfast.ReleaseOp) error
	Renew   func(next holdfast.RenewFunc, ctx context.Context, op *holdfast.RenewOp) []error
}

func (m Meddler) AcquireHook(next holdfast.AcquireFunc) holdfast.AcquireFunc {
	if m.Acquire == nil {
		return nil
	}
	return func(ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
		return m.Acquire(next, ctx, op)
	}
}

func (m Meddler) ReleaseHook(next holdfast.ReleaseFunc) holdfast.ReleaseFunc {
	if m.Release == nil {
		return nil
	}
	return func(ctx context.Context, op *holdfast.ReleaseOp) error { return m.Release(next, ctx, op) }
}

func (m Meddler) RenewHook(next holdfast.RenewFunc) holdfast.RenewFunc {
	if m.Renew == nil {
		return nil
	}
	return func(ctx context.Context, op *holdfast.RenewOp) []error { return m.Renew(next, ctx, op) }
}
