package redistest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

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

// hearsay is how long after a slot was given away some node may say that it is not the new
// owner's. They tell each other what they know once in half of nodeTimeout.
const hearsay = nodeTimeout

// Move begins to move the slot of a key.
//
// Not again at once: a node of Valkey 8 that takes over a slot, and hears that the one that
// gives it away does not have it, takes the move for done. Then it does not raise its epoch in
// the end, and either node says for ever that the slot is the other's. So it waits until what
// was said before the last move is no longer heard.
func (c *Cluster) Move(tb testing.TB, key string, to *Server) *Move {
	tb.Helper()
	m := &Move{c: c, from: c.Owner(tb, key), to: to}
	to.with(tb, func(ctx context.Context, node *redis.Client) error {
		m.slot = int(node.ClusterKeySlot(ctx, key).Val())
		c.giving.Lock()
		last := c.given[m.slot]
		c.giving.Unlock()
		time.Sleep(time.Until(last.Add(hearsay)))
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
	all := append([]*Server{m.to, m.from}, m.c.Nodes...)
	for _, s := range all {
		s.with(tb, func(ctx context.Context, node *redis.Client) error {
			if s != m.to && s != m.from && !isMaster(ctx, node) {
				return nil
			}
			return node.Do(ctx, "cluster", "setslot", m.slot, "node", owner).Err()
		})
	}
	// A node that has not heard of the epoch of the new owner may believe an older claim of
	// another, and pass it on as one of the next epoch that this other has.
	var epoch string
	for _, s := range all {
		s.with(tb, func(ctx context.Context, node *redis.Client) error {
			if !isMaster(ctx, node) {
				return nil
			}
			err := eventually(ctx, func() bool {
				known := epochOf(ctx, node, owner)
				if s == m.to {
					epoch = known
				}
				return known != "" && known == epoch
			})
			if err != nil {
				return fmt.Errorf("%s does not hear of epoch %q of %s: %w", s.Addr(), epoch, owner, err)
			}
			return nil
		})
	}
	m.c.given[m.slot] = time.Now()
}

// epochOf is the epoch of a node in the opinion of another one.
func epochOf(ctx context.Context, node *redis.Client, id string) string {
	for line := range strings.Lines(node.ClusterNodes(ctx).Val()) {
		if fields := strings.Fields(line); len(fields) > 6 && fields[0] == id {
			return fields[6]
		}
	}
	return ""
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
