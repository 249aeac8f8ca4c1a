package behavior

import (
	"context"
	"errors"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// blocked is a hook that notes who was in the way of the last acquisition.
type blocked struct {
	holdfast.HookBase
	by    string
	fence int64
}

func (b *blocked) AcquireHook(next holdfast.AcquireFunc) holdfast.AcquireFunc {
	return func(ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
		defer func() { b.by, b.fence = op.BlockedBy, op.BlockedByFence }()
		return next(ctx, op)
	}
}

// Hooks, and with them the span of a wait, and the error of an acquisition that fails say whose the
// lock is.
func (s *suite) tellsWhoHolds() {
	const name = "web-1, “the first”"
	holder, waiter, text, last := s.client(), s.strict(), holdfast.WithHolder(name), new(blocked)
	waiter.AddHook(last)
	type ways struct {
		lock       lab.Lock
		lease, try lab.Leasing
	}
	for _, of := range []func(c *holdfast.Client) ways{
		func(c *holdfast.Client) ways { l := c.Mutex(s.lock, text); return ways{l, l.Lease, l.TryLease} },
		func(c *holdfast.Client) ways { l := c.RWMutex(s.lock, text); return ways{l, l.Lease, l.TryLease} },
		func(c *holdfast.Client) ways {
			l := c.Semaphore(s.lock, 1, text)
			return ways{l, lab.Permits(l, 1), func(ctx context.Context) (*holdfast.Lease, error) { return l.TryLease(ctx, 1) }}
		},
	} {
		has, wants := of(holder), of(waiter)
		held, err := has.lease(s.Context())
		if errors.Is(err, errors.ErrUnsupported) {
			continue
		}
		require.NoError(s, err)
		info, err := has.lock.Inspect(s.Context())
		if errors.Is(err, errors.ErrUnsupported) || err == nil && info.Holders[0].Holder != name {
			s.release(held)
			s.Skip("the store keeps no texts")
		}
		require.NoError(s, err)
		_, err = wants.try(s.Context())
		var failed *holdfast.LockError
		require.ErrorAs(s, err, &failed)
		if failed.Holder == "" {
			s.release(held)
			s.Skip("the store does not tell whose a lock is")
		}
		assert.Equal(s, name, failed.Holder)
		*last = blocked{}
		for wait := lab.Soon / 50; last.by == ""; wait *= 2 { // longer if the store is too slow to answer
			require.Less(s, wait, lab.Soon)
			ctx, cancel := context.WithTimeout(s.Context(), wait)
			_, err = wants.lease(ctx)
			cancel()
			require.ErrorIs(s, err, context.DeadlineExceeded)
		}
		assert.Equal(s, name, last.by)
		assert.Equal(s, held.Fence(), last.fence)
		s.release(held)
	}
}
