package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// Where what scripts publish is not heard, waiters must not wait for it: their next heartbeat
// is TTL/3 away, which here is twice as long as they are given.
func TestWaitersPollWhereScriptsMayNotPublish(t *testing.T) {
	t.Parallel()
	for name, scene := range map[string]struct {
		args   []string
		rights []any
	}{
		"since it is called something else": {[]string{"--rename-command", "PUBLISH", "ANNOUNCE"}, []any{"+@all"}},
		"since the user has no right to":    {nil, []any{"+@all", "-publish"}},
		"since the channel is closed":       {nil, []any{"+@all", "resetchannels"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := lab.New(t, redistest.Real(t, scene.args...))
			user := l.User("app", append([]any{"~*", "&*"}, scene.rights...)...)
			holder, waiter := l.Open(l.Server.Client(t, user)), l.Open(l.Server.Client(t, user))
			handsOverByPolls(l, holder, waiter, &l.Log, "x", "y")
		})
	}
}

// handsOverByPolls has the waiter get locks from the holder, and log that it polls.
func handsOverByPolls(l *lab.Lab, holder, waiter *holdfast.Client, log *lab.Log, names ...string) {
	l.T.Helper()
	for _, name := range names {
		held := l.Take(holder.Mutex(name).Lease)
		next := l.Ask(waiter.Mutex(name).Lease)
		require.Eventually(l.T, func() bool {
			info, err := holder.Mutex(name).Inspect(l.T.Context())
			return err == nil && len(info.Queue) == 1
		}, lab.Soon, lab.Soon/1000)
		require.NoError(l.T, held.Release(l.T.Context()))
		require.NoError(l.T, next.Granted(lab.Soon).Release(l.T.Context()))
	}
	l.Until("the log says so", func() bool { return strings.Contains(log.String(), "no news of locks") })
	assert.Equal(l.T, 1, strings.Count(log.String(), "no news of locks"), log.String())
}

func waitersPollWhereScriptsMayNotPublish(t *testing.T, c *city) {
	for _, s := range c.Nodes {
		rdb := s.Client(t)
		require.NoError(t, rdb.Do(t.Context(), "acl", "setuser", "app", "on", ">secret", "~*", "&*", "+@all", "-publish").Err())
		t.Cleanup(func() { _ = rdb.Do(t.Context(), "acl", "deluser", "app").Err() })
	}
	restricted := city{Cluster: c.Cluster}
	restricted.deployment = deployment{t: t, prefix: c.prefix, connect: func(t *testing.T) redis.UniversalClient {
		return c.Cluster.Client(t, func(o *redis.ClusterOptions) { o.Username, o.Password = "app", "secret" })
	}}
	owners := map[*redistest.Server]string{}
	for i := 0; len(owners) < 3; i++ {
		name := fmt.Sprint("mute", i)
		owners[c.Owner(t, c.key(driver.Mutex, name))] = name
	}
	var names []string
	for _, name := range owners {
		names = append(names, name)
	}
	l := &lab.Lab{T: t}
	handsOverByPolls(l, restricted.client(t), restricted.client(t), &restricted.log, names...)
	lab.RequireNoToken(t, restricted.log.String())
}
