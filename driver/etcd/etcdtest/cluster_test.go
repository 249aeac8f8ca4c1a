package etcdtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/contend"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// A leader that is killed costs some time, but no lease, and gives nobody a second one.
func TestLockOutlivesTheLeader(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	r := contend.NewReferee(t)
	members := cluster(t, 3)
	crew := make([]*contend.Contender, 4)
	for i := range crew {
		crew[i] = r.Contender(contend.Kinds[0], endpoints(members)...)
		crew[i].Tell("hammer")
	}
	for range 2 {
		r.Advances(20)
		old := leader(t, members)
		old.Kill()
		r.Advances(20)
		old.restart()
	}
	for _, c := range crew {
		c.Kill()
	}
	require.GreaterOrEqual(t, r.Decide(), 80)
}

// A leader that is paused is replaced by another, and wakes up believing that it still leads. A
// holder that knows only this one must not trust what it says of its lease.
func TestHolderOfAPausedLeaderIsReplaced(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	r := contend.NewReferee(t)
	members := cluster(t, 3)
	for range 2 {
		old := leader(t, members)
		a, b := r.Contender(contend.Kinds[0], old.endpoint), r.Contender(contend.Kinds[0], others(members, old)...)
		a.Tell("lock")
		a.Hears("in")
		b.Tell("lock")
		time.Sleep(ttl / 2)
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

func others(members []*member, but *member) (all []string) {
	for _, m := range members {
		if m != but {
			all = append(all, m.endpoint)
		}
	}
	return all
}

func TestLockOutlivesARestartOfTheServer(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	server := cluster(t, 1)[0]
	contend.Outlive(t, server.endpoint, func() {
		server.Kill()
		server.restart()
	})
}
