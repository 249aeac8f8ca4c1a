//go:build unix

package redistest_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/crew"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func init() {
	crew.Register("owner of a server", func() {
		// A testing.T outside a test is enough for what Real does when all is well.
		s := redistest.Real(&orphan{})
		crew.Report(s.Addr())
		select {}
	})
}

// orphan is the testing.TB of a process that will run no cleanup.
type orphan struct{ testing.T }

func (*orphan) Cleanup(func())            {}
func (*orphan) Name() string              { return "orphan" }
func (*orphan) Helper()                   {}
func (*orphan) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

func TestServersDieWithAKilledTestBinary(t *testing.T) {
	if !redistest.Installed() {
		redistest.Real(t) // skips or fails as the environment says
	}
	// It cannot delete its files, so they go where this test deletes them.
	p := crew.Start(t, "owner of a server", "TMPDIR="+t.TempDir())
	addr := crew.Hear[string](p)
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1})
	defer func() { _ = c.Close() }()
	require.NoError(t, c.Ping(t.Context()).Err())
	defer func() {
		if t.Failed() {
			c.ShutdownNoSave(context.Background())
		}
	}()
	p.Kill()
	require.Eventually(t, func() bool {
		return errors.Is(c.Ping(t.Context()).Err(), syscall.ECONNREFUSED)
	}, 10*time.Second, 5*time.Millisecond)
}
