//go:build unix

package locks

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestMain(m *testing.M) {
	clitest.Main(m, clitest.Verbs(Wait(), List(), Inspect(), Resize(), Unlock()))
}

// useOnce leaves a lock as somebody does that has had it.
func useOnce(t *testing.T, s *redistest.Server, lock string) {
	t.Helper()
	lease, err := clitest.LocksOf(t, s).RWMutex(lock).TryLease(t.Context())
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
}
