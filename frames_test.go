package holdfast_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// witness notes by which functions of ours the store was called.
type witness struct {
	lab.Instant
	acquire, release, renew []string
}

func (w *witness) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	w.acquire = frames()
	return w.Instant.Acquire(ctx, r)
}

func (w *witness) Release(context.Context, driver.Lease) error {
	w.release = frames()
	return nil
}

func (w *witness) Renew(_ context.Context, leases []driver.Lease) []error {
	w.renew = frames()
	return make([]error, len(leases))
}

// frames are the functions of the library that are being called, the innermost first.
func frames() (names []string) {
	pcs := make([]uintptr, 64)
	all := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		frame, more := all.Next()
		name, ours := strings.CutPrefix(frame.Function, "github.com/holdfast-go/holdfast")
		if ours && !strings.HasPrefix(name, "_test") {
			names = append(names, name)
		}
		if !more {
			return names
		}
	}
}

// A reader of the code gets from the public method to the store in five steps.
func TestStoreIsFewFramesAway(t *testing.T) {
	w := &witness{}
	c := holdfast.Open(w)
	for range 20 { // in a burst the caller asks the store itself
		c.Mutex("x").Lock()
		c.Mutex("x").Unlock()
	}
	mu, rw := c.Mutex("x"), c.RWMutex("x")
	for name, call := range map[string]func(){
		"Lock, Unlock":   func() { mu.Lock(); mu.Unlock() },
		"RLock, RUnlock": func() { rw.RLock(); rw.RUnlock() },
		"Lease, Release": func() {
			l, err := mu.Lease(context.Background())
			require.NoError(t, err)
			require.NoError(t, l.Release(context.Background()))
		},
	} {
		call()
		t.Log(name, w.acquire, w.release)
		assert.LessOrEqual(t, len(w.acquire), 5, name)
		assert.LessOrEqual(t, len(w.release), 5, name)
		assert.NotEmpty(t, w.acquire)
		assert.NotEmpty(t, w.release)
	}
	require.NoError(t, c.Close())
}

func TestRenewalIsFewFramesFromTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &witness{}
		c := holdfast.Open(w)
		_, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		time.Sleep(5 * time.Second) // half of its TTL
		require.NoError(t, c.Close())
		t.Log(w.renew)
		assert.NotEmpty(t, w.renew)
		assert.LessOrEqual(t, len(w.renew), 5)
	})
}
