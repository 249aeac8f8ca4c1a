package etcdtest

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/contend"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestLockOutlivesTheLeader(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	members := cluster(t, 3)
	contend.OutliveLeader(t, endpoints(members), func() contend.Server { return leader(t, members) })
}

func TestHolderOfAPausedLeaderIsReplaced(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	members := cluster(t, 3)
	contend.DistrustPausedLeader(t, func() (contend.Server, string, []string) {
		old := leader(t, members)
		return old, old.endpoint, others(members, old)
	})
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
	contend.Outlive(t, server.endpoint, server)
}
