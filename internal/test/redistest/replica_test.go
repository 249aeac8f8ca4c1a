package redistest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestReplicaHasWhatItsMasterHadUntilItWasDetached(t *testing.T) {
	t.Parallel()
	master := redistest.Real(t)
	c := master.Client(t)
	require.NoError(t, c.Set(t.Context(), "a", "1", 0).Err())
	replica := master.Replica(t)
	r := replica.Client(t)
	assert.Equal(t, "1", r.Get(t.Context(), "a").Val())
	require.NoError(t, c.Set(t.Context(), "a", "2", 0).Err())
	require.EqualValues(t, 1, c.Wait(t.Context(), 1, 10*time.Second).Val())
	assert.Equal(t, "2", r.Get(t.Context(), "a").Val())

	replica.Detach(t, master)
	require.NoError(t, c.Set(t.Context(), "a", "3", 0).Err())
	require.Zero(t, c.Wait(t.Context(), 1, 50*time.Millisecond).Val())
	assert.Equal(t, "2", r.Get(t.Context(), "a").Val())
	require.Error(t, r.Set(t.Context(), "a", "4", 0).Err(), "it is still a replica")

	replica.Attach(t)
	assert.Equal(t, "3", r.Get(t.Context(), "a").Val())
	master.Kill()
	replica.Promote(t)
	assert.NoError(t, r.Set(t.Context(), "a", "5", 0).Err())
}
