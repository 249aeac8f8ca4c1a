package holdfast_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// granular is a store that keeps no lease of less than two seconds.
type granular struct{ driver.Driver }

func (g granular) Unwrap() driver.Driver { return g.Driver }

func (granular) Granularity() (time.Duration, time.Duration) { return 2 * time.Second, time.Second }

func TestTTLShorterThanTheStoreCanKeepIsRefused(t *testing.T) {
	locks := holdfast.Open(granular{memdriver.New()})
	defer locks.Close()
	short := holdfast.WithTTL(2*time.Second - 1)
	mu := locks.Mutex("m", short)

	_, err := mu.Lease(t.Context())
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.EqualError(t, err, `holdfast: acquire mutex "m": a TTL of 1.999999999s: on this store leases last at least 2s: unsupported operation`)
	require.Panics(t, mu.Lock)
	require.Panics(t, func() { mu.TryLock() })
	_, err = locks.RWMutex("m", short).RLease(t.Context())
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorIs(t, locks.Semaphore("m", 1, short).Acquire(t.Context(), 1), errors.ErrUnsupported)

	l, err := locks.Mutex("m", holdfast.WithTTL(2*time.Second)).Lease(t.Context())
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context()))
}
