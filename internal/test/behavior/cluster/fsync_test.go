package cluster_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// With appendfsync no the server never knows that a grant is on its disk.
func setFsync(t *testing.T, s *redistest.Server, policy string) {
	t.Helper()
	require.NoError(t, s.Client(t).ConfigSet(t.Context(), "appendfsync", policy).Err())
}

func TestGrantIsTrustedOnceItIsOnDisk(t *testing.T) {
	t.Parallel()
	s := redistest.Valkey(t, "--appendonly", "yes", "--appendfsync", "no")
	c := newReplicated(t, s)
	onDisk := holdfast.WithFsync(0, 100*time.Millisecond)
	_, err := c.Mutex("try", onDisk).TryLease(t.Context())
	require.ErrorIs(t, err, holdfast.ErrNotConfirmed)
	require.Eventually(t, func() bool { return len(inspectOn(t, s, "try").Holders) == 0 }, lab.Soon, 5*time.Millisecond, "it was not given back")
	l := &lab.Lab{T: t}
	for name, forms := range map[string][2]lab.Leasing{
		"mutex":     {c.Mutex("x").Lease, c.Mutex("x", onDisk, holdfast.WithStrictFIFO()).Lease},
		"rwmutex":   {c.RWMutex("x").Lease, c.RWMutex("x", onDisk).RLease},
		"semaphore": {lab.Permits(c.Semaphore("x", 2), 2), lab.Permits(c.Semaphore("x", 2, onDisk), 1)},
	} {
		held := l.Take(forms[0]) // does not wait for the disk
		p := l.Ask(forms[1])
		time.Sleep(50 * time.Millisecond) // no harm if it is not in the queue yet
		require.NoError(t, held.Release(t.Context()))
		select {
		case <-p.Done:
			t.Fatalf("%s: handed over, and trusted before it was on the disk: %v", name, p.Err)
		case <-time.After(300 * time.Millisecond): // more than one try
		}
		setFsync(t, s, "always")
		require.NoError(t, p.Granted(lab.Soon).Release(t.Context()))
		setFsync(t, s, "no")
	}
}

// What a killed process had written is safe with any policy: no machine is switched off here.
func TestGrantOnDiskIsHeldAfterTheServerWasKilled(t *testing.T) {
	t.Parallel()
	s := redistest.Valkey(t, "--appendonly", "yes", "--appendfsync", "everysec")
	lease, err := newReplicated(t, s).Mutex("x", holdfast.WithFsync(0, 5*time.Second)).TryLease(t.Context())
	require.NoError(t, err)
	s.Kill()
	s.Restart()
	info := inspectOn(t, s, "x")
	require.Len(t, info.Holders, 1)
	assert.Equal(t, lease.Fence(), info.Holders[0].Fence)
	_, err = newReplicated(t, s).Mutex("x").TryLease(t.Context())
	require.ErrorIs(t, err, holdfast.ErrLocked)
	require.NoError(t, lease.Release(t.Context()))
}

// A lock is in memory of a replica, and on the disk of its master: each option is kept.
func TestBothConfirmationsAreWaitedFor(t *testing.T) {
	t.Parallel()
	s := redistest.Valkey(t, "--appendonly", "yes", "--appendfsync", "always")
	replica := s.Replica(t)
	mu := newReplicated(t, s).Mutex("x", holdfast.WithFsync(0, 200*time.Millisecond), holdfast.WithReplicas(1, 200*time.Millisecond))
	try := func() error {
		lease, err := mu.TryLease(t.Context())
		if err == nil {
			err = lease.Release(t.Context())
		}
		return err
	}
	freed := func() bool { return len(inspectOn(t, s, "x").Holders) == 0 }
	succeeds := func() bool { return try() == nil } // in time, at last: the machine may be busy
	fails := func(why string) {                     // at last, too: either confirmation may be late
		t.Helper()
		for end := time.Now().Add(2 * lab.Soon); ; {
			err := try()
			require.Error(t, err)
			require.Eventually(t, freed, lab.Soon, 5*time.Millisecond)
			if strings.Contains(err.Error(), why) {
				return
			}
			require.True(t, time.Now().Before(end), "not %q but %v", why, err)
		}
	}
	require.Eventually(t, succeeds, lab.Soon, time.Millisecond)
	setFsync(t, s, "no")
	fails("not on the disk of the server")
	setFsync(t, s, "always")
	replica.Pause()
	fails("0 of 1 replicas have it")
	replica.Resume()
	require.Eventually(t, succeeds, lab.Soon, time.Millisecond)
}

func TestLockOnDiskIsRefusedByAServerThatCannotTell(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t) // without appendonly, whatever its version
	c := newReplicated(t, s)
	mu := c.Mutex("x", holdfast.WithFsync(0, time.Second))
	_, err := mu.TryLease(t.Context())
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "WAITAOF needs ")
	_, err = mu.Lease(t.Context())
	require.ErrorIs(t, err, errors.ErrUnsupported)
	assert.Panics(t, mu.Lock)
	require.NoError(t, c.Mutex("x").Do(t.Context(), func(context.Context) error { return nil }))
}
