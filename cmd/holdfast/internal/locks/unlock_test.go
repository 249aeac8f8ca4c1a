//go:build unix

package locks

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestUnlockSaysFromWhomItTookTheLock(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		m := clitest.Held(t, s, "taken")
		holder := clitest.Inspected(t, m).Holders[0].Holder
		p := clitest.Command(t, s, "unlock", "taken", "--force", "--yes")
		require.Equal(t, 0, p.Run())
		assert.Contains(t, p.Stdout.String(), `took the rwmutex "taken" on Redis at `+s.Addr()+` from `+holder+", which had it for ")
		assert.Empty(t, clitest.Inspected(t, m).Holders)

		p = clitest.Command(t, s, "unlock", "taken", "--force", "--yes")
		assert.Equal(t, 1, p.Run())
		assert.Equal(t, "holdfast: nobody holds \"taken\" on Redis at "+s.Addr()+"\n", p.Stderr.String())
	})
}

func TestUnlockGivesTheLockToTheFirstWaiter(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		m := lined(t, s, "next")
		require.Equal(t, 0, clitest.Command(t, s, "unlock", "next", "--force", "-y").Run())
		clitest.Eventually(t, func() bool {
			info := clitest.Inspected(t, m)
			return len(info.Holders) == 1 && info.Holders[0].Shared && len(info.Queue) == 0
		}, "the waiter holds the lock")
	})
}

func TestUnlockWantsToKnowTheKindIfSeveralAreHeld(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	rw := clitest.Held(t, s, "both")
	mu := clitest.LocksOf(t, s).Mutex("both")
	lease, err := mu.TryLease(t.Context())
	require.NoError(t, err)

	p := clitest.Command(t, s, "unlock", "both", "--force", "--yes")
	assert.Equal(t, exit.Usage, p.Run())
	assert.Contains(t, p.Stderr.String(), `"both" is held as mutex and as rwmutex: say which with --kind`)

	assert.Equal(t, 0, clitest.Command(t, s, "unlock", "both", "--force", "--yes", "--kind", "mutex").Run())
	assert.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrLost)
	assert.Len(t, clitest.Inspected(t, rw).Holders, 1)
}

func TestUnlockWithoutAnAnswerLeavesTheLockAlone(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	m := clitest.Held(t, s, "kept")
	for _, args := range [][]string{{"--yes"}, {"--force"}} {
		assert.Equal(t, exit.Usage, clitest.Command(t, s, append([]string{"unlock", "kept"}, args...)...).Run(), "%q", args)
	}
	assert.Len(t, clitest.Inspected(t, m).Holders, 1)
}
