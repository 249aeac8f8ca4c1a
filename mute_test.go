package holdfast_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/redistest"
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
			l := newLab(t, redistest.Real(t, scene.args...))
			user := l.user("app", append([]any{"~*", "&*"}, scene.rights...)...)
			holder, waiter := l.open(l.s.Client(t, user)), l.open(l.s.Client(t, user))
			l.handsOverByPolls(holder, waiter, &l.log, "x", "y")
		})
	}
}

// handsOverByPolls has the waiter get locks from the holder, and log that it polls.
func (l *lab) handsOverByPolls(holder, waiter *holdfast.Client, log *labLog, names ...string) {
	l.t.Helper()
	for _, name := range names {
		held := l.take(holder.Mutex(name).Lease)
		next := l.ask(waiter.Mutex(name).Lease)
		require.Eventually(l.t, func() bool {
			info, err := holder.Mutex(name).Inspect(l.t.Context())
			return err == nil && len(info.Queue) == 1
		}, soon, soon/1000)
		require.NoError(l.t, held.Release(l.t.Context()))
		require.NoError(l.t, next.granted(soon).Release(l.t.Context()))
	}
	l.until("the log says so", func() bool { return strings.Contains(log.String(), "no news of locks") })
	assert.Equal(l.t, 1, strings.Count(log.String(), "no news of locks"), log.String())
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
	l := &lab{t: t}
	l.handsOverByPolls(restricted.client(t), restricted.client(t), &restricted.log, names...)
	requireNoToken(t, restricted.log.String())
}
