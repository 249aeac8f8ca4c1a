//go:build unix

package locks

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestResizeSetsTheLimitOfASemaphoreInUse(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		sem := clitest.LocksOf(t, s).Semaphore("api", 4)
		require.NoError(t, sem.Acquire(t.Context(), 4))
		waits := make(chan error, 1)
		go func() { waits <- sem.Acquire(t.Context(), 2) }()
		clitest.AwaitWaiter(t, sem)
		resize := func(limit string) string {
			p := clitest.Command(t, s, "resize", "api", "--limit", limit)
			require.Equal(t, 0, p.Run(), p.Stderr.String())
			return p.Stdout.String()
		}
		is := `the semaphore "api" on Redis at ` + s.Addr() + " has a limit of "
		assert.Equal(t, is+"6, not 4\n", resize("6"))
		require.NoError(t, <-waits, "who waits and now fits comes in")
		assert.Equal(t, is+"3, not 6; 6 permits are in use: others wait until it is less\n", resize("3"))
		assert.EqualValues(t, 3, clitest.Inspected(t, sem).Limit)
		assert.Len(t, clitest.Inspected(t, sem).Holders, 2, "nothing is taken from holders")
		sem.Release(6)
		assert.Equal(t, is+"5, not 3; nobody uses it: a minute after its last use it has the limit of whoever comes first\n", resize("5"))
		assert.True(t, sem.TryAcquire(5), "whatever limit a program names")
		sem.Release(5)
	})
	s := redistest.Mini(t)
	for _, args := range [][]string{{"api"}, {"--limit", "3"}, {"api", "--limit", "0"}, {"api", "--limit", "x"}, {"api", "more", "--limit", "3"}} {
		p := clitest.Command(t, s, append([]string{"resize"}, args...)...)
		assert.Equal(t, exit.Usage, p.Run(), "%q", args)
	}
	assert.Equal(t, exit.Unavailable, clitest.Command(t, s, "resize", "api", "--limit", "3", "--store", clitest.Nowhere(t)).Run())
}
