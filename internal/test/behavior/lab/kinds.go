package lab

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// What a lab has for locks of any kind. Where it says lock it means a handle of any
// client, through which the test looks at the store.

// Lock is what all kinds have in common.
type Lock interface {
	Inspect(ctx context.Context) (holdfast.Info, error)
	ForceUnlock(ctx context.Context) error
}

// Leasing is a form of Lease.
type Leasing = func(context.Context) (*holdfast.Lease, error)

// Permits is the form that asks for n of them.
func Permits(s *holdfast.Semaphore, n int64) Leasing {
	return func(ctx context.Context) (*holdfast.Lease, error) { return s.Lease(ctx, n) }
}

// Take is [Lab.Ask] for what is free, or will be soon.
func (l *Lab) Take(lease Leasing) *holdfast.Lease {
	l.T.Helper()
	return l.Ask(lease).Granted(Soon)
}

// GiveBack releases the leases, which must be held.
func (l *Lab) GiveBack(leases ...*holdfast.Lease) {
	l.T.Helper()
	for _, lease := range leases {
		require.NoError(l.T, lease.Release(l.T.Context()))
	}
}

// Look returns what the store knows of the lock.
func (l *Lab) Look(k Lock) holdfast.Info {
	l.T.Helper()
	info, err := k.Inspect(l.T.Context())
	require.NoError(l.T, err)
	return info
}

// UntilWaiting returns when that many are in the queue of the store.
func (l *Lab) UntilWaiting(k Lock, n int) {
	l.T.Helper()
	l.Until("the queue is as long as that", func() bool { return len(l.Look(k).Queue) == n })
}

// UntilHolding returns when that many hold the lock.
func (l *Lab) UntilHolding(k Lock, n int) {
	l.T.Helper()
	l.Until("so many hold it", func() bool { return len(l.Look(k).Holders) == n })
}

// IsHeldBy checks that these and no others hold the lock, for the store and for
// themselves.
func (l *Lab) IsHeldBy(k Lock, leases ...*holdfast.Lease) {
	l.T.Helper()
	var want, got []int64
	for _, lease := range leases {
		require.NoError(l.T, lease.Err())
		want = append(want, lease.Fence())
	}
	for _, h := range l.Look(k).Holders {
		got = append(got, h.Fence)
	}
	require.ElementsMatch(l.T, want, got, "fences of the holders")
}

// Used is how many permits the store says are held.
func (l *Lab) Used(s *holdfast.Semaphore) (sum int64) {
	l.T.Helper()
	for _, h := range l.Look(s).Holders {
		sum += h.Weight
	}
	return sum
}

// IsClean checks that the key has neither holders nor waiters left.
func (l *Lab) IsClean(kind driver.Kind, name string) {
	l.T.Helper()
	for field := range strings.Lines(l.Stored(kind, name)) {
		for _, prefix := range []string{"h:", "w:", "t:", "shares", "head", "holder"} {
			assert.False(l.T, strings.HasPrefix(field, prefix), "left behind: %s", field)
		}
	}
}

// Stored is all that the store has of a lock, in a line for each part. It is not read by
// Inspect, which is a script.
func (l *Lab) Stored(kind driver.Kind, name string) string {
	l.T.Helper()
	ctx, key := context.WithoutCancel(l.T.Context()), l.KeyOf(kind, name)
	switch form := l.Direct.Type(ctx, key).Val(); form {
	case "none":
		return ""
	case "string":
		high, holder, held := strings.Cut(l.Direct.Get(ctx, key).Val(), " ")
		if !held {
			return "high " + high
		}
		return "high " + high + "\nholder " + holder
	}
	var lines []string
	for field, value := range l.Direct.HGetAll(ctx, key).Val() {
		lines = append(lines, field+" "+value)
	}
	return strings.Join(lines, "\n")
}

// Waits reports whether the store knows of a waiter.
func (l *Lab) Waits(kind driver.Kind, name string) bool {
	return strings.Contains("\n"+l.Stored(kind, name), "\nhead ")
}

// SetTag changes what the only holder, for whom nobody waits, says of itself.
func (l *Lab) SetTag(kind driver.Kind, name, tag string) {
	l.T.Helper()
	key := l.KeyOf(kind, name)
	parts := strings.SplitN(l.Direct.Get(l.T.Context(), key).Val(), " ", 10)
	require.Len(l.T, parts, 10)
	parts[6] = tag
	require.NoError(l.T, l.Direct.Set(l.T.Context(), key, strings.Join(parts, " "), redis.KeepTTL).Err())
}

// KeyOf is the key of the lock in Redis.
func (l *Lab) KeyOf(kind driver.Kind, name string) string {
	return l.Server.Prefix() + ":2:" + string(kind) + ":" + name
}

// Nest acquires a lock with the context of a lease on it.
func (l *Lab) Nest(outer *holdfast.Lease, lease Leasing) *holdfast.Lease {
	l.T.Helper()
	inner, err := lease(outer.Context())
	require.NoError(l.T, err)
	return inner
}

// OnBehalf is an owner that several clients have in common.
var OnBehalf = holdfast.WithOwner("order 4711")

// Weights are what the store says is held, in the order of the grants.
func (l *Lab) Weights(s *holdfast.Semaphore) []int64 {
	l.T.Helper()
	all := []int64{}
	for _, h := range l.Look(s).Holders {
		all = append(all, h.Weight)
	}
	return all
}

// Detach gives the lease out of the hands of its client.
func (l *Lab) Detach(lease *holdfast.Lease) (token string) {
	l.T.Helper()
	token, err := lease.Detach(l.T.Context())
	require.NoError(l.T, err)
	require.Equal(l.T, lease.Token(), token)
	require.ErrorIs(l.T, lease.Err(), holdfast.ErrNotHeld)
	require.ErrorIs(l.T, lease.Context().Err(), context.Canceled)
	require.ErrorIs(l.T, lease.Release(l.T.Context()), holdfast.ErrNotHeld)
	return token
}

// Attach takes a lease over that was detached.
func (l *Lab) Attach(c *holdfast.Client, token string) *holdfast.Lease {
	l.T.Helper()
	lease, err := c.Attach(l.T.Context(), token)
	require.NoError(l.T, err)
	return lease
}
