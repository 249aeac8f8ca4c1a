package zkdriver_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/contend"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/internal/test/zktest"
)

func TestLockOutlivesTheLeader(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	members := zktest.Ensemble(t, 3, nil)
	contend.OutliveLeader(t, zktest.Addrs(members), func() contend.Server { return zktest.Leader(t, members) })
}

func TestHolderOfAPausedLeaderIsReplaced(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	members := zktest.Ensemble(t, 3, nil)
	contend.DistrustPausedLeader(t, func() (contend.Server, string, []string) {
		old := zktest.Leader(t, members)
		return old, old.Addr, zktest.Addrs(zktest.Others(members, old))
	})
}

// A member that is paused keeps its holders from renewing. They go to another member in time.
func TestHolderOfAPausedFollowerGoesToAnother(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	r := contend.NewReferee(t)
	members := zktest.Ensemble(t, 3, nil)
	follower := zktest.Others(members, zktest.Leader(t, members))[0]
	a := r.Contender(contend.Kinds[0], zktest.Addrs(members)...)
	a.Tell("hammer")
	for range 2 {
		r.Advances(20)
		follower.Pause()
		r.Advances(20)
		time.Sleep(contend.TTL)
		follower.Resume()
	}
	a.Kill()
	require.GreaterOrEqual(t, r.Decide(), 80)
}

func TestLockOutlivesARestartOfTheServer(t *testing.T) {
	t.Parallel()
	server := zktest.Start(t)
	contend.Outlive(t, server.Addr, server)
}
