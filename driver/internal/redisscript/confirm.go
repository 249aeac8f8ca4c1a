package redisscript

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// maxRedirects is how often a confirmation follows a key from node to node.
const maxRedirects = 3

// Confirm runs the script of a renewal, has its answer read, and waits until what it has written
// is where want says; see driver.Confirmer.
//
// The commands WAIT and WAITAOF speak of what their own connection has written, and a Cluster
// client would send them to any node. So both go by one connection to the master of the key. The
// wrong version takes any: one that has written nothing is told that all replicas have it.
func Confirm(ctx context.Context, rdb redis.UniversalClient, call Call, read func(*Command) error, want driver.Confirmation) error {
	if want.Timeout < time.Millisecond {
		// For WAIT, 0 is for ever, and it refuses what is negative.
		return Refusal(fmt.Errorf("redis: confirmation within %v, must be at least 1 ms", want.Timeout))
	}
	node, err := Master(ctx, rdb, call.Key())
	if err != nil {
		return Classify(err)
	}
	asking := false
	for range 1 + maxRedirects {
		err = confirm(ctx, node, call, read, asking, want)
		to, elsewhere := redis.IsMovedError(err)
		if !elsewhere {
			// The slot is on its way, and the key is there already.
			to, elsewhere = redis.IsAskError(err)
			asking = elsewhere
		}
		if !elsewhere {
			break
		}
		if node = masterAt(ctx, rdb, to); node == nil {
			break
		}
	}
	Rediscover(ctx, rdb, err)
	return Classify(err)
}

// Master is the node that has the key.
func Master(ctx context.Context, rdb redis.UniversalClient, key string) (*redis.Client, error) {
	switch rdb := rdb.(type) {
	case *redis.Client:
		return rdb, nil
	case *redis.ClusterClient:
		return rdb.MasterForKey(ctx, key)
	}
	return nil, Refusal(fmt.Errorf("redis: WAIT through a %T: %w", rdb, errors.ErrUnsupported))
}

// masterAt is the node of a Cluster with that address, nil if there is none that has
// slots. Asking for it has the client learn anew which node has which.
func masterAt(ctx context.Context, rdb redis.UniversalClient, addr string) *redis.Client {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return nil
	}
	var found atomic.Pointer[redis.Client]
	_ = cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error { // fails as a whole
		if node.Options().Addr == addr {
			found.Store(node)
		}
		return nil
	})
	return found.Load()
}

// confirm is Confirm on one node. The client's hooks are kept: a pipeline would save a round
// trip, but WAIT may take longer than the client's ReadTimeout, which then applies, and a
// client that Client.WithTimeout returns has no hooks.
func confirm(ctx context.Context, node *redis.Client, call Call, read func(*Command) error, asking bool, want driver.Confirmation) error {
	conn := node.Conn()
	defer func() { _ = conn.Close() }() // goes back to the pool
	var to processor = conn
	if asking {
		to = asker{conn}
	}
	c, err := run(ctx, to, call, node)
	if err == nil {
		err = read(c)
	}
	if err != nil {
		return err
	}
	// It is not repeated on another connection should this one break: a Conn has one.
	timeout := time.Duration(Millis(want.Timeout)) * time.Millisecond
	if want.Disk {
		n, err := conn.WaitAOF(ctx, 1, want.Replicas, timeout).Result()
		return onDisk(n, err, want.Replicas)
	}
	n, err := conn.Wait(ctx, want.Replicas, timeout).Result()
	if err == nil && n < int64(want.Replicas) {
		err = fmt.Errorf("%w: %d of %d replicas have it", driver.ErrNotConfirmed, n, want.Replicas)
	}
	return err
}

// onDisk is what WAITAOF has answered, {disks of the server, of replicas}, as an error.
func onDisk(disks []int64, err error, replicas int) error {
	switch {
	case redis.HasErrorPrefix(err, "unknown command"):
		return fmt.Errorf("redis: WAITAOF needs Redis 7.2 or Valkey: %w", errors.ErrUnsupported)
	case redis.HasErrorPrefix(err, "WAITAOF"):
		return fmt.Errorf("redis: WAITAOF needs appendonly yes: %w", errors.ErrUnsupported)
	case err != nil:
		return err
	case len(disks) != 2:
		return fmt.Errorf("redis: strange answer of WAITAOF: %v", disks)
	case disks[0] < 1:
		return fmt.Errorf("%w: it is not on the disk of the server", driver.ErrNotConfirmed)
	case disks[1] < int64(replicas):
		return fmt.Errorf("%w: it is on the disks of %d of %d replicas", driver.ErrNotConfirmed, disks[1], replicas)
	}
	return nil
}

// asker tells a node, before each command, that the owner of the slot has sent us.
type asker struct{ *redis.Conn }

// Process sends ASKING and a command.
func (a asker) Process(ctx context.Context, cmd redis.Cmder) error {
	if err := a.Conn.Process(ctx, redis.NewCmd(ctx, "asking")); err != nil {
		return err
	}
	return a.Conn.Process(ctx, cmd)
}
