package redistest

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// OverCluster runs body twice, as the subtests "client" and "cluster": with a client of one
// server, and with a client of a Cluster of one server. open returns such a client, and
// calls equip with each [redis.Client] in it that talks to a server.
func OverCluster(t *testing.T, body func(t *testing.T, open func(equip func(*redis.Client)) redis.UniversalClient)) {
	t.Helper()
	t.Run("client", func(t *testing.T) {
		s := Real(t)
		body(t, func(equip func(*redis.Client)) redis.UniversalClient {
			rdb := s.Client(t)
			equip(rdb)
			return rdb
		})
	})
	t.Run("cluster", func(t *testing.T) {
		s := Real(t, "--cluster-enabled", "yes")
		s.with(t, func(ctx context.Context, node *redis.Client) error {
			if err := node.ClusterAddSlotsRange(ctx, 0, slots-1).Err(); err != nil {
				return err
			}
			return eventually(ctx, func() bool {
				return strings.Contains(node.ClusterInfo(ctx).Val(), "cluster_state:ok")
			})
		})
		body(t, func(equip func(*redis.Client)) redis.UniversalClient {
			rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
			rdb.OnNewNode(equip)
			t.Cleanup(func() { _ = rdb.Close() })
			return rdb
		})
	})
}
