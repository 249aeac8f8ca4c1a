package redistest_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestClusterMovesSlotsAndReplacesMasters(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	began := time.Now()
	c := redistest.NewCluster(t)
	t.Logf("formed in %v", time.Since(began))
	rdb := c.Client(t)
	owners := map[*redistest.Server]bool{}
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		require.NoError(t, rdb.Set(t.Context(), key, "1", 0).Err())
		owners[c.Owner(t, key)] = true
	}
	assert.Len(t, owners, 3)
	assert.ElementsMatch(t, []string{"a", "b", "c", "d", "e"}, c.Keys(t, ""))

	from, to := c.Owner(t, "a"), c.OtherMaster(t, "a")
	m := c.Move(t, "a", to)
	direct := from.Client(t)
	assert.Equal(t, "1", direct.Get(t.Context(), "a").Val())
	m.Carry(t)
	_, asked := redis.IsAskError(direct.Get(t.Context(), "a").Err())
	assert.True(t, asked)
	assert.Equal(t, "1", rdb.Get(t.Context(), "a").Val())
	m.Finish(t)
	_, moved := redis.IsMovedError(direct.Get(t.Context(), "a").Err())
	assert.True(t, moved)
	require.Same(t, to, c.Owner(t, "a"))
	assert.Equal(t, "1", rdb.Get(t.Context(), "a").Val())

	began = time.Now()
	to.Kill()
	next := c.AwaitNewOwner(t, "a", to)
	t.Logf("replaced in %v", time.Since(began))
	assert.Equal(t, "1", next.Client(t).Get(t.Context(), "a").Val())
	to.Restart()
	c.RequireWhole()
	require.Same(t, next, c.Owner(t, "a"), "it comes back as a replica")
}
