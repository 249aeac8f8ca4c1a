//go:build unix

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestUnlockSaysFromWhomItTookTheLock(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		m := held(t, s, "taken")
		holder := inspected(t, m).Holders[0].Holder
		p := command(t, s, "unlock", "taken", "--force", "--yes")
		require.Equal(t, 0, p.run())
		assert.Contains(t, p.stdout.String(), `took the rwmutex "taken" from `+holder+", which had it for ")
		assert.Empty(t, inspected(t, m).Holders)

		p = command(t, s, "unlock", "taken", "--force", "--yes")
		assert.Equal(t, 1, p.run())
		assert.Equal(t, "holdfast: nobody holds \"taken\"\n", p.stderr.String())
	})
}

func TestUnlockGivesTheLockToTheFirstWaiter(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		m := lined(t, s, "next")
		require.Equal(t, 0, command(t, s, "unlock", "next", "--force", "-y").run())
		eventually(t, func() bool {
			info := inspected(t, m)
			return len(info.Holders) == 1 && info.Holders[0].Shared && len(info.Queue) == 0
		}, "the waiter holds the lock")
	})
}

func TestUnlockWantsToKnowTheKindIfSeveralAreHeld(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	rw := held(t, s, "both")
	mu := locksOf(t, s).Mutex("both")
	lease, err := mu.TryLease(t.Context())
	require.NoError(t, err)

	p := command(t, s, "unlock", "both", "--force", "--yes")
	assert.Equal(t, exitUsage, p.run())
	assert.Contains(t, p.stderr.String(), `"both" is held as mutex and as rwmutex: say which with --kind`)

	assert.Equal(t, 0, command(t, s, "unlock", "both", "--force", "--yes", "--kind", "mutex").run())
	assert.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrLost)
	assert.Len(t, inspected(t, rw).Holders, 1)
}

func TestUnlockWithoutAnAnswerLeavesTheLockAlone(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	m := held(t, s, "kept")
	for _, args := range [][]string{{"--yes"}, {"--force"}} {
		assert.Equal(t, exitUsage, command(t, s, append([]string{"unlock", "kept"}, args...)...).run(), "%q", args)
	}
	assert.Len(t, inspected(t, m).Holders, 1)
}
