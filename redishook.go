package holdfast

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/leasectx"
	"github.com/holdfast-go/holdfast/internal/redishook"
)

// GuardHook returns a hook for the program's own Redis client. It refuses every command,
// and every pipeline as a whole, whose context comes from a lease that is over: lost, or
// released. The error matches [ErrLost], and nothing is sent.
//
//	rdb.AddHook(holdfast.GuardHook())
//
//	lease, err := mu.Lease(ctx)
//	rdb.Set(lease.Context(), "order:42", state, 0) // fails if the lock was lost
//
// So a holder that was paused for too long does not write when it wakes up, and need not
// look at [Lease.Err] before each command. The hook looks at the clock just before the
// command is sent. It cannot see a pause between that and the arrival at the server. Only a
// fence helps there, see package fence/redisfence. A command that is under way when the
// lease ends may fail like any command whose context ends; [context.Cause] says why.
//
// On a [redis.ClusterClient], commands within Watch pass only through the hooks of the
// nodes, so also add the hook there, with OnNewNode. An AutoPipeline sends commands with a
// context that is not theirs, so they cannot be guarded; check [Lease.Err] before them. The
// commands of this library are never refused.
func GuardHook() redis.Hook { return redishook.Guard(leasesOver) }

// leasesOver returns why a lease that ctx comes from is over.
func leasesOver(ctx context.Context) error {
	for c := leasectx.Of(ctx); c != nil; c = c.Outer {
		if err := c.Lease.Over(); err != nil {
			return err
		}
	}
	return nil
}

// NameHook returns a hook for the program's own Redis client that names the spans of this
// library's scripts. It replaces "evalsha" by a name such as "holdfast.mutex.acquire", and
// sets the attribute db.stored_procedure.name. The name is "holdfast.", a subject, and a verb. The
// subject is the kind of a lock; "locks" where one call is for many, as in
// "holdfast.locks.acquire"; "wake" in "holdfast.wake.ping", by which a waiting client learns
// whether news reaches it; "cluster" in "holdfast.cluster.node", by which it learns whether a node
// takes calls for many locks; or another driver: "setnx", "getset" or "redisson". Use it with
// redisotel, and add it after redisotel's hook, for it must run within that span:
//
//	redisotel.InstrumentTracing(rdb)
//	rdb.AddHook(holdfast.NameHook())
//
// With a [redis.ClusterClient], where each node has its spans:
//
//	redisotel.InstrumentTracing(rdb)
//	rdb.OnNewNode(func(node *redis.Client) { node.AddHook(holdfast.NameHook()) })
//
// A server that does not know a script yet answers NOSCRIPT, and is sent the text. That is
// no error, and is not shown as one. In the wrong order the hook does nothing.
//
// By default redisotel puts the arguments of commands in the attribute db.statement, and so
// the tokens of leases. This hook puts the name of the script in their place. Without this
// hook, use redisotel.WithDBStatement(false).
func NameHook() redis.Hook { return redishook.Name() }
