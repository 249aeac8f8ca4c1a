//go:build unix

package locks

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestWaitReturnsWhenNobodyHoldsTheLock(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		assert.Equal(t, 0, clitest.Command(t, s, "wait", "free").Run())
		lease, err := clitest.LocksOf(t, s).Mutex("held").TryLease(t.Context())
		require.NoError(t, err)
		p := clitest.Command(t, s, "wait", "held", "--timeout", "0.3")
		assert.Equal(t, exit.NotAcquired, p.Run())
		assert.Equal(t, "holdfast: somebody still holds \"held\"\n", p.Stderr.String())
		assert.Equal(t, 0, clitest.Command(t, s, "wait", "held", "--kind", "rwmutex").Run(), "another lock")

		p = clitest.Command(t, s, "wait", "held").Start()
		select {
		case <-p.Exited:
			t.Fatal("it is held")
		case <-time.After(500 * time.Millisecond):
		}
		require.NoError(t, lease.Release(t.Context()))
		assert.Equal(t, 0, p.Wait())
	})
}

func TestQuitEndsTheWaitWithoutAWord(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	p := clitest.Command(t, nil, "wait", "deploy", "--store", "redis://"+silent.Addr().String()).Start()
	conn, err := silent.Accept()
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	p.Signal(syscall.SIGQUIT)
	assert.Equal(t, exit.Signal+int(syscall.SIGQUIT), p.Wait())
	assert.Empty(t, p.Stderr.String())
}
