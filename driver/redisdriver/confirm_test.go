package redisdriver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// grant makes a token the holder of a lock of each kind, and returns the leases.
func grant(t *testing.T, d driver.Driver, ttl time.Duration) []driver.Lease {
	t.Helper()
	var leases []driver.Lease
	for _, k := range []driver.Kind{driver.Mutex, driver.RWMutex, driver.Semaphore} {
		r := &driver.Request{Kind: k, Name: "l", Token: fmt.Sprintf("t-%s-%d", k, time.Now().UnixNano()), Ask: 1, TTL: ttl, Weight: 1, Limit: 3}
		g, err := d.Acquire(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, driver.Granted, g.Status)
		leases = append(leases, driver.Lease{Kind: k, Name: r.Name, Token: r.Token, TTL: ttl})
	}
	return leases
}

func TestConfirmCountsReplicasThatHaveTheGrant(t *testing.T) {
	t.Parallel()
	master := redistest.Real(t)
	a, b := master.Replica(t), master.Replica(t)
	d := open(t, master.Client(t, func(o *redis.Options) {
		o.ReadTimeout = 2 * time.Second // a WAIT may take longer, and is no timeout
		o.PoolSize = 1                  // what WAIT counts is what this connection wrote
	}), master)
	const short, longer, long = 150 * time.Millisecond, 2500 * time.Millisecond, 20 * time.Second
	leases := grant(t, d, time.Minute)
	confirm := func(n int, timeout time.Duration) error {
		t.Helper()
		errs := make([]error, len(leases))
		for i, l := range leases {
			errs[i] = d.Confirm(t.Context(), l, driver.Confirmation{Replicas: n, Timeout: timeout})
		}
		for _, err := range errs {
			require.Equal(t, errs[0] == nil, err == nil, "not the same for all kinds: %v", errs)
		}
		return errs[0]
	}
	require.NoError(t, confirm(2, long))

	a.Pause()
	began := time.Now()
	require.ErrorIs(t, confirm(2, short), driver.ErrNotConfirmed)
	assert.GreaterOrEqual(t, time.Since(began), 3*short)
	require.ErrorIs(t, d.Confirm(t.Context(), leases[0], driver.Confirmation{Replicas: 2, Timeout: longer}), driver.ErrNotConfirmed)
	require.NoError(t, confirm(1, long))
	b.Detach(t, master)
	require.ErrorIs(t, confirm(1, short), driver.ErrNotConfirmed)
	a.Resume()
	require.NoError(t, confirm(1, long))
	require.ErrorIs(t, confirm(2, short), driver.ErrNotConfirmed)
	b.Attach(t)
	require.NoError(t, confirm(2, long))
}

// A new connection has written nothing, and all replicas have that.
func TestConfirmAsksTheConnectionThatHasWritten(t *testing.T) {
	t.Parallel()
	master := redistest.Real(t)
	master.Replica(t).Pause()
	d := open(t, master.Client(t, func(o *redis.Options) { o.PoolSize, o.MaxIdleConns = 20, 1 }), master)
	for _, l := range grant(t, d, time.Minute) {
		require.ErrorIs(t, d.Confirm(t.Context(), l, driver.Confirmation{Replicas: 1, Timeout: 50 * time.Millisecond}), driver.ErrNotConfirmed)
	}
}

func TestConfirmRenewsWhatIsHeldAndNothingElse(t *testing.T) {
	each(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		for _, l := range grant(t, d, time.Minute) {
			l.TTL = time.Hour
			require.ErrorIs(t, d.Confirm(t.Context(), l, driver.Confirmation{Replicas: 1, Timeout: time.Millisecond}), driver.ErrNotConfirmed, "there is none")
			info, err := d.Inspect(t.Context(), l.Kind, l.Name)
			require.NoError(t, err)
			require.Len(t, info.Holders, 1)
			assert.Greater(t, info.Holders[0].TimeLeft, time.Hour/2)

			require.NoError(t, d.Release(t.Context(), l))
			require.ErrorIs(t, d.Confirm(t.Context(), l, driver.Confirmation{Replicas: 1, Timeout: time.Millisecond}), driver.ErrNotHeld)
			info, err = d.Inspect(t.Context(), l.Kind, l.Name)
			require.NoError(t, err)
			assert.Empty(t, info.Holders)
		}
	})
}

// refuser is a hook that lets nothing through.
type refuser struct{ through }

var errVeto = errors.New("vetoed")

func (refuser) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { return errVeto }
}
func (refuser) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { return errVeto }
}

func TestConfirmIsNotFooledByHooksAndClients(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	rdb := s.Client(t)
	d := open(t, rdb, s)
	leases := grant(t, d, time.Minute)
	rdb.AddHook(refuser{})
	require.ErrorIs(t, d.Confirm(t.Context(), leases[0], driver.Confirmation{Replicas: 1, Timeout: time.Millisecond}), errVeto)

	auto, err := s.Client(t).AutoPipeline()
	require.NoError(t, err)
	other := open(t, auto, s)
	err = other.Confirm(t.Context(), leases[0], driver.Confirmation{Replicas: 1, Timeout: time.Millisecond})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorIs(t, err, driver.ErrNotExecuted)
	require.NotErrorIs(t, err, driver.ErrTransient)
	for _, l := range leases {
		require.NoError(t, other.Release(t.Context(), l))
	}
}

// A command WAIT without a time-out waits for ever.
func TestConfirmWithoutTimeIsRefused(t *testing.T) {
	each(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		leases := grant(t, d, time.Minute)
		for _, timeout := range []time.Duration{0, time.Millisecond - 1, -time.Microsecond, -time.Second} {
			done := make(chan error, 1)
			go func() { done <- d.Confirm(t.Context(), leases[0], driver.Confirmation{Replicas: 1, Timeout: timeout}) }()
			select {
			case err := <-done:
				require.ErrorIs(t, err, driver.ErrNotExecuted, timeout)
				require.NotErrorIs(t, err, driver.ErrTransient, timeout)
			case <-time.After(10 * time.Second):
				t.Fatalf("hangs with a timeout of %v", timeout)
			}
		}
	})
}
