package zkdriver_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/contend"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/internal/test/zktest"
)

// A leader that is killed costs some time, but no lease, and gives nobody a second one.
func TestLockOutlivesTheLeader(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	r := contend.NewReferee(t)
	members := zktest.Ensemble(t, 3, nil)
	crew := make([]*contend.Contender, 4)
	for i := range crew {
		crew[i] = r.Contender(contend.Kinds[0], zktest.Addrs(members)...)
		crew[i].Tell("hammer")
	}
	for range 2 {
		r.Advances(20)
		old := zktest.Leader(t, members)
		old.Kill()
		r.Advances(20)
		old.Restart()
	}
	for _, c := range crew {
		c.Kill()
	}
	require.GreaterOrEqual(t, r.Decide(), 80)
}

// A leader that is paused is replaced by another, and wakes up believing that it still leads. A
// holder that knows only this one must not trust what it says of its session.
func TestHolderOfAPausedLeaderIsReplaced(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	r := contend.NewReferee(t)
	members := zktest.Ensemble(t, 3, nil)
	for range 2 {
		old := zktest.Leader(t, members)
		a, b := r.Contender(contend.Kinds[0], old.Addr), r.Contender(contend.Kinds[0], zktest.Addrs(zktest.Others(members, old))...)
		a.Tell("lock")
		a.Hears("in")
		b.Tell("lock")
		time.Sleep(contend.TTL / 2)
		old.Pause()
		b.Hears("in")
		old.Resume()
		a.Hears("lost")
		b.Tell("unlock")
		b.Hears("out")
		a.Kill()
		b.Kill()
	}
	require.Equal(t, 4, r.Decide())
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
	contend.Outlive(t, server.Addr, func() {
		server.Kill()
		server.Restart()
	})
}
