package redistest

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
)

// slots is how many slots a Cluster has.
const slots = 16384

// Move is a slot on its way from one master of a Cluster to another. Keys that the first
// master has stay there until they are carried over. Other keys are made, and looked for,
// at the second master, by clients that say ASKING.
type Move struct {
	c        *Cluster
	slot     int
	from, to *Server
}

// Move begins to move the slot of a key.
func (c *Cluster) Move(tb testing.TB, key string, to *Server) *Move {
	tb.Helper()
	m := &Move{c: c, from: c.Owner(tb, key), to: to}
	to.with(tb, func(ctx context.Context, node *redis.Client) error {
		m.slot = int(node.ClusterKeySlot(ctx, key).Val())
		return node.Do(ctx, "cluster", "setslot", m.slot, "importing", m.from.id(tb)).Err()
	})
	m.from.with(tb, func(ctx context.Context, node *redis.Client) error {
		return node.Do(ctx, "cluster", "setslot", m.slot, "migrating", to.id(tb)).Err()
	})
	return m
}

// Carry takes the keys of the slot over.
func (m *Move) Carry(tb testing.TB) {
	tb.Helper()
	m.from.with(tb, func(ctx context.Context, node *redis.Client) error {
		for {
			keys, err := node.ClusterGetKeysInSlot(ctx, m.slot, 100).Result()
			if err != nil || len(keys) == 0 {
				return err
			}
			cmd := []any{"migrate", m.to.host(), m.to.port(), "", 0, 5000, "keys"}
			for _, key := range keys {
				cmd = append(cmd, key)
			}
			if err := node.Do(ctx, cmd...).Err(); err != nil {
				return err
			}
		}
	})
}

// Finish carries over what is left, and gives the slot away.
func (m *Move) Finish(tb testing.TB) {
	tb.Helper()
	m.Carry(tb)
	owner := m.to.id(tb)
	// Only one slot is given away at a time. Each new owner takes a larger epoch. A node that
	// takes one for another slot before it has heard that it has lost this one claims this one
	// with it. Then the new owner believes that, and deletes the keys.
	m.c.giving.Lock()
	defer m.c.giving.Unlock()
	for _, s := range append([]*Server{m.to, m.from}, m.c.Nodes...) {
		s.with(tb, func(ctx context.Context, node *redis.Client) error {
			if s != m.to && s != m.from && !isMaster(ctx, node) {
				return nil
			}
			return node.Do(ctx, "cluster", "setslot", m.slot, "node", owner).Err()
		})
	}
}

func isMaster(ctx context.Context, node *redis.Client) bool {
	role, _ := node.Do(ctx, "role").Slice()
	return len(role) > 0 && role[0] == "master"
}

// id is the name of a node among its like.
func (s *Server) id(tb testing.TB) (id string) {
	tb.Helper()
	s.with(tb, func(ctx context.Context, node *redis.Client) (err error) {
		id, err = node.ClusterMyID(ctx).Result()
		return err
	})
	return id
}
