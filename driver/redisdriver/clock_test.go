package redisdriver_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// Rule 4, for those who share. One sweep finds the leases that end later than they can;
// that it is time for one shows in the bound of all ends. It is the clock of the server that goes on
// for some TTLs, and not the time.
func TestServerClockStepsBackWhileReadersHold(t *testing.T) {
	t.Parallel()
	const ttl, grace = 10 * time.Minute, 500 * time.Millisecond
	s, clock := redistest.RealWithClock(t)
	d := open(t, s.Client(t), s)
	reader := func(token string) *party {
		p := join(t, d, token, ttl)
		p.req.Kind, p.req.Shared = driver.RWMutex, true
		return p
	}
	dead, alive, w := reader("dead"), reader("alive"), reader("writer")
	w.req.Shared = false
	dead.must(driver.Granted)
	alive.must(driver.Granted)
	clock.Set(-time.Hour)
	w.must(driver.Queued)
	var gone time.Duration
	for passed := time.Duration(0); passed < 4*ttl; passed += ttl / 20 {
		clock.Set(-time.Hour + passed)
		require.NoError(t, d.Renew(context.Background(), []driver.Lease{alive.lease()})[0])
		info, err := d.Inspect(context.Background(), driver.RWMutex, "rule")
		require.NoError(t, err)
		require.NotEmpty(t, info.Holders)
		w.must(driver.Queued)
		if gone == 0 && len(info.Holders) == 1 {
			gone = passed
		}
	}
	require.NotZero(t, gone, "the dead one holds until the clock has caught up")
	require.Greater(t, gone, ttl/2)
	require.Less(t, gone, 2*(ttl+grace)+ttl)
	alive.release()
	w.must(driver.Granted)
}

// A lease that was cut to what it can have left is not lengthened again by its renewal
// to where it ended before.
func TestRenewalAfterTheClockSteppedBackIsNotTooLong(t *testing.T) {
	t.Parallel()
	s, clock := redistest.RealWithClock(t)
	d := open(t, s.Client(t), s)
	p := join(t, d, "a", ttl)
	p.req.Kind, p.req.Shared = driver.RWMutex, true
	p.must(driver.Granted)
	clock.Set(-time.Hour)
	require.NoError(t, d.Renew(context.Background(), []driver.Lease{p.lease()})[0])
	info, err := d.Inspect(context.Background(), driver.RWMutex, "rule")
	require.NoError(t, err)
	require.LessOrEqual(t, info.Holders[0].TimeLeft, ttl+ttl/20)
}
