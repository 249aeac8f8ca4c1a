package redistest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestSentinelsReplaceAMaster(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	began := time.Now()
	s := redistest.NewSentinels(t)
	t.Logf("formed in %v", time.Since(began))
	require.Same(t, s.Servers[0], s.Master(t))
	c := s.Client(t)
	require.NoError(t, c.Set(t.Context(), "a", "1", 0).Err())
	require.EqualValues(t, 2, c.Wait(t.Context(), 2, 5*time.Second).Val())

	began = time.Now()
	old := s.Master(t)
	old.Kill()
	next := s.AwaitNewMaster(t, old)
	t.Logf("replaced in %v", time.Since(began))
	assert.Equal(t, "1", next.Client(t).Get(t.Context(), "a").Val())
	old.Restart() // as a master, until the Sentinels have looked at it for 10 s
	require.Same(t, next, s.Master(t))
	old.Follow(t, next)
	assert.Error(t, old.Client(t).Set(t.Context(), "a", "2", 0).Err(), "it is a replica now")
	assert.NoError(t, c.Set(t.Context(), "a", "3", 0).Err())
}
