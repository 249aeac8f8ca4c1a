package zkdriver_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/contend"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/internal/test/zktest"
)

// A follower that is cut off goes on to answer reads and pings until syncLimit ticks have passed, here
// 10 s, while the leader lets the session of its client end after 4 s. A holder that knows only this
// follower must not believe what it answers.
func TestHolderOfAFollowerThatIsCutOffIsReplaced(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	r := contend.NewReferee(t)
	mesh := zktest.NewMesh(t)
	members := zktest.Ensemble(t, 3, mesh.Reach, "syncLimit=20")
	for range 3 {
		follower := zktest.Others(members, zktest.Leader(t, members))[0]
		a, b := r.Contender(contend.Kinds[0], follower.Addr), r.Contender(contend.Kinds[0], zktest.Addrs(zktest.Others(members, follower))...)
		a.Tell("lock")
		a.Hears("in")
		b.Tell("lock")
		time.Sleep(contend.TTL / 2)
		mesh.CutOff(slices.Index(members, follower), true)
		cut := time.Now()
		b.Hears("in")
		if time.Since(cut) < 15*zktest.Tick {
			require.Equal(t, "follower", follower.Mode(), "it should still serve its clients")
		}
		a.Hears("lost")
		mesh.CutOff(slices.Index(members, follower), false)
		b.Tell("unlock")
		b.Hears("out")
		a.Kill()
		b.Kill()
		require.Eventually(t, func() bool { return follower.Mode() == "follower" }, contend.Patience, 100*time.Millisecond)
	}
	require.Equal(t, 6, r.Decide())
}
