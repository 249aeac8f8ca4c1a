package fence_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/internal/test/seed"
)

func newLocks(t *testing.T) *holdfast.Client {
	locks := holdfast.Open(memdriver.New())
	t.Cleanup(func() { assert.NoError(t, locks.Close()) })
	return locks
}

func TestContextHasTheFencesOfAllItsLeases(t *testing.T) {
	locks := newLocks(t)
	outer, err := locks.RWMutex("b").Lease(t.Context())
	require.NoError(t, err)
	reader, err := locks.RWMutex("a").RLease(outer.Context())
	require.NoError(t, err)
	permit, err := locks.Semaphore("c", 2).Lease(reader.Context(), 1)
	require.NoError(t, err)

	fences, err := fence.Of(context.WithoutCancel(permit.Context()))
	require.NoError(t, err)
	assert.Equal(t, []fence.Fence{
		{Kind: driver.RWMutex, Name: "a", Number: reader.Fence(), Shared: true},
		{Kind: driver.RWMutex, Name: "b", Number: outer.Fence()},
		{Kind: driver.Semaphore, Name: "c", Number: permit.Fence(), Shared: true},
	}, fences)

	require.NoError(t, outer.Downgrade(t.Context()))
	fences, err = fence.Of(outer.Context())
	require.NoError(t, err)
	assert.True(t, fences[0].Shared, "it only reads now")

	require.NoError(t, outer.Release(t.Context()))
	_, err = fence.Of(permit.Context())
	assert.ErrorIs(t, err, holdfast.ErrLost, "an outer lease is over")
}

func TestNestedLeaseOnOneGrantIsOneFence(t *testing.T) {
	mu := newLocks(t).Mutex("a", holdfast.WithReentrancy())
	outer, err := mu.Lease(t.Context())
	require.NoError(t, err)
	inner, err := mu.Lease(outer.Context())
	require.NoError(t, err)
	fences, err := fence.Of(inner.Context())
	require.NoError(t, err)
	assert.Equal(t, []fence.Fence{{Kind: driver.Mutex, Name: "a", Number: outer.Fence()}}, fences)
}

func TestContextWithoutLeaseCostsNothing(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, 1)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if fences, err := fence.Of(ctx); fences != nil || err != nil {
			t.Error(fences, err)
		}
	}))
}

func TestFenceOfAnotherProcessIsLikeOneOfThisProcess(t *testing.T) {
	want := []fence.Fence{
		{Kind: driver.Mutex, Name: "a", Number: 7},
		{Kind: driver.Mutex, Name: "b", Number: 5},
		{Kind: driver.RWMutex, Name: "a", Number: 6, Shared: true},
	}
	ctx := fence.With(t.Context(), want[2], want[0], want[1], want[0])
	fences, err := fence.Of(ctx)
	require.NoError(t, err)
	assert.Equal(t, want, fences)

	lease, err := newLocks(t).Mutex("a").Lease(ctx) // the other may want this process to have it
	require.NoError(t, err)
	assert.NoError(t, lease.Release(t.Context()))
}

func TestLeaseWithoutAFenceIsRefused(t *testing.T) {
	_, err := fence.Of(fence.With(t.Context(), fence.Fence{Kind: driver.Mutex, Name: "a"}))
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}

func TestOnlyAnOlderFenceIsStale(t *testing.T) {
	f := fence.Fence{Kind: driver.Mutex, Name: "a", Number: 7}
	assert.NoError(t, f.Check(6))
	assert.NoError(t, f.Check(7))
	assert.ErrorIs(t, f.Check(8), fence.ErrStale)
}

func init() { seed.Rapid() }

func TestKeysAreDifferentAndFitForAnyStore(t *testing.T) {
	byKey := map[string]fence.Fence{}
	rapid.Check(t, func(t *rapid.T) {
		f := fence.Fence{
			Kind: rapid.SampledFrom([]driver.Kind{driver.Mutex, driver.RWMutex, driver.Semaphore}).Draw(t, "kind"),
			Name: rapid.OneOf(
				rapid.StringN(1, 20, driver.MaxName),
				rapid.StringOfN(rapid.RuneFrom([]rune(`a"\n:' `+"\n\x00\u00a0")), 1, 4, -1),
				rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, driver.MaxName), func(b []byte) string { return string(b) }),
			).Draw(t, "name"),
		}
		key := f.Key()
		if other, taken := byKey[key]; taken && other != f {
			t.Fatalf("%+v and %+v are both %q", f, other, key)
		}
		byKey[key] = f
		if !utf8.ValidString(key) || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' }) || len(key) > 4*len(f.Name)+16 {
			t.Fatalf("%q", key)
		}
	})
	assert.Equal(t, "mutex:orders:42", fence.Fence{Kind: driver.Mutex, Name: "orders:42"}.Key())
}
