package deadlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/deadlock"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// checked is a client whose order is checked. The function returns what was reported since.
func checked(t testing.TB, opts ...deadlock.OrderOption) (*holdfast.Client, func() []*deadlock.Inversion) {
	c := holdfast.Open(memdriver.New())
	t.Cleanup(func() { _ = c.Close() })
	var mu sync.Mutex
	var all []*deadlock.Inversion
	c.AddHook(deadlock.Order(append(opts, deadlock.WithReport(func(i *deadlock.Inversion) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, i)
	}))...))
	return c, func() []*deadlock.Inversion {
		mu.Lock()
		defer mu.Unlock()
		told := all
		all = nil
		return told
	}
}

// chain takes mutexes one within the other.
func chain(t testing.TB, ctx context.Context, c *holdfast.Client, names ...string) {
	if len(names) == 0 {
		return
	}
	if err := c.Mutex(names[0]).Do(ctx, func(ctx context.Context) error {
		chain(t, ctx, c, names[1:]...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func forward(t testing.TB, c *holdfast.Client)  { chain(t, context.Background(), c, "a", "b") }
func backward(t testing.TB, c *holdfast.Client) { chain(t, context.Background(), c, "b", "a") }

func TestInversionIsToldOnceWithBothStacks(t *testing.T) {
	c, told := checked(t)
	forward(t, c)
	forward(t, c)
	require.Empty(t, told())
	backward(t, c)
	all := told()
	require.Len(t, all, 1)
	require.Len(t, all[0].Nestings, 2)
	assert.Equal(t, "b", all[0].Nestings[0].Held.Name)
	assert.Equal(t, "a", all[0].Nestings[0].Taken.Name)
	assert.Contains(t, all[0].Nestings[0].Stack, "deadlock_test.backward")
	assert.Equal(t, "a", all[0].Nestings[1].Held.Name)
	assert.Contains(t, all[0].Nestings[1].Stack, "deadlock_test.forward")
	first, _, _ := strings.Cut(all[0].Nestings[0].Stack, "(...)")
	assert.Contains(t, first, "holdfast", "the caller comes first")
	assert.True(t, strings.HasPrefix(all[0].String(), `now mutex "a" was taken while mutex "b" was held:`), all[0])
	backward(t, c)
	forward(t, c)
	assert.Empty(t, told(), "it is known")
}

func TestInversionThroughOthersIsTold(t *testing.T) {
	c, told := checked(t)
	chain(t, t.Context(), c, "a", "b")
	chain(t, t.Context(), c, "b", "c")
	chain(t, t.Context(), c, "c", "d")
	require.Empty(t, told())
	chain(t, t.Context(), c, "d", "a")
	all := told()
	require.Len(t, all, 1)
	assert.Len(t, all[0].Nestings, 4)
}

func TestOneOrderIsNoInversion(t *testing.T) {
	c, told := checked(t)
	for i := range 10 {
		for j := i + 1; j < 10; j++ {
			for k := j + 1; k < 10; k++ {
				chain(t, t.Context(), c, fmt.Sprint(i), fmt.Sprint(j), fmt.Sprint(k))
			}
		}
	}
	_, err := c.Mutex("5").TryLease(t.Context())
	require.NoError(t, err)
	assert.Empty(t, told())
}

func TestClassesStandForTheirLocks(t *testing.T) {
	c, told := checked(t, deadlock.WithClass(func(name string) string {
		class, _, _ := strings.Cut(name, ":")
		return class
	}))
	chain(t, t.Context(), c, "order:1", "account:1")
	chain(t, t.Context(), c, "account:7", "account:8")
	require.Empty(t, told())
	chain(t, t.Context(), c, "account:2", "order:3")
	assert.Len(t, told(), 1)
}

func TestKnownPairsCostNoMemory(t *testing.T) {
	least := func(hook holdfast.Hook) float64 {
		c := holdfast.Open(memdriver.New())
		defer c.Close()
		c.AddHook(hook)
		n := testing.AllocsPerRun(1, func() { nest(t, c) })
		for range 200 {
			n = min(n, testing.AllocsPerRun(1, func() { nest(t, c) }))
		}
		return n
	}
	assert.Equal(t, least(passing{}), least(deadlock.Order()))
}

// The hook alone, for a pair that is known.
func BenchmarkOrder(b *testing.B) {
	c := holdfast.Open(memdriver.New())
	defer c.Close()
	l, err := c.Mutex("a").Lease(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	ctx := l.Context()
	acquire := deadlock.Order().AcquireHook(func(context.Context, *holdfast.AcquireOp) (*holdfast.Lease, error) { return nil, nil })
	op := &holdfast.AcquireOp{Kind: "mutex", Name: "b", Wait: true}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = acquire(ctx, op)
	}
}

// What waits for nobody makes no circle, in whatever order it comes.
func TestNestingThatDoesNotWaitIsNoInversion(t *testing.T) {
	for name, within := range map[string]func(t *testing.T, c *holdfast.Client) error{
		"a context whose lease was released": func(t *testing.T, c *holdfast.Client) error {
			lease, err := c.Mutex("b").Lease(t.Context())
			require.NoError(t, err)
			after := context.WithoutCancel(lease.Context())
			require.NoError(t, lease.Release(t.Context()))
			return c.Mutex("a").Do(after, func(context.Context) error { return nil })
		},
		"Attach": func(t *testing.T, c *holdfast.Client) error {
			lease, err := c.Mutex("a").Lease(t.Context())
			require.NoError(t, err)
			token, err := lease.Detach(t.Context())
			require.NoError(t, err)
			return c.Mutex("b").Do(t.Context(), func(ctx context.Context) error {
				lease, err := c.Attach(ctx, token)
				require.NoError(t, err)
				return lease.Release(ctx)
			})
		},
		"Steal": func(t *testing.T, c *holdfast.Client) error {
			return c.Mutex("b").Do(t.Context(), func(ctx context.Context) error {
				lease, err := c.Mutex("a").Steal(ctx)
				require.NoError(t, err)
				return lease.Release(ctx)
			})
		},
		"TryLease": func(t *testing.T, c *holdfast.Client) error {
			return c.Mutex("b").Do(t.Context(), func(ctx context.Context) error {
				lease, err := c.Mutex("a").TryLease(ctx)
				require.NoError(t, err)
				return lease.Release(ctx)
			})
		},
		"a lease that ends by itself": func(t *testing.T, c *holdfast.Client) error {
			return c.Mutex("b", holdfast.WithoutRenewal()).Do(t.Context(), func(ctx context.Context) error {
				return c.Mutex("a").Do(ctx, func(context.Context) error { return nil })
			})
		},
		"a lock that is held already": func(t *testing.T, c *holdfast.Client) error {
			a := c.Mutex("a", holdfast.WithReentrancy())
			return a.Do(t.Context(), func(ctx context.Context) error {
				return c.Mutex("b").Do(ctx, func(ctx context.Context) error {
					return a.Do(ctx, func(context.Context) error { return nil })
				})
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, told := checked(t)
			forward(t, c)
			require.NoError(t, within(t, c))
			assert.Empty(t, told())
			backward(t, c)
			assert.Len(t, told(), 1, "it still sees one")
		})
	}
}
