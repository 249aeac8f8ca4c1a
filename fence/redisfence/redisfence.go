// Package redisfence has Redis refuse what is written under a lease that is over, in one line:
//
//	rdb.AddHook(redisfence.Hook())
//
//	err := mu.Do(ctx, func(ctx context.Context) error {
//		return rdb.Set(ctx, "order:42", state, 0).Err() // fails with fence.ErrStale if another had the lock since
//	})
//
// A command whose context comes from a lease is run by a script that looks, in the same step,
// whether a larger fence of the lock was seen on that server. If so, the command is not run,
// and the error matches [fence.ErrStale]. Otherwise the fence is recorded. If the lease is
// known to be over, the error matches holdfast.ErrLost and nothing is sent. If the context
// comes from several leases, all are checked. Commands without a lease in the context are sent
// as they are, and so are those of holdfast itself.
//
// Commands that read are checked and recorded, too: what a holder has read, an earlier holder
// cannot change any more. Each command of a pipeline has its own check, in the same round trip.
// Those of a transaction, MULTI, are all run or all refused.
//
// # What it cannot do
//
//   - A script cannot run commands that wait, such as BLPOP, nor other scripts and functions. With
//     a lease in the context they are refused; the error matches [errors.ErrUnsupported].
//   - Integers above 2^53 in replies are not exact, and a command has at most some 8,000
//     arguments. Replies are those of RESP2, which go-redis reads into the same values.
//   - Fences are kept for a week after their last use. A process that was paused for longer is not
//     refused. After the server has lost its data, no process is refused until a later holder
//     has written or read there.
//   - Commands that are combined by an AutoPipeline are sent with a context that is not theirs, and
//     are not guarded.
//   - Within Watch of a [redis.ClusterClient] only the hooks of the nodes are called; add it
//     there, too, with OnNewNode.
//
// # Cluster
//
// The fence of a lock is in one slot, and all keys that are used under the lock must be in that
// slot, too. It is the slot of the hash tag in the lock's name, or of the whole name if the name has
// no tag. So the locks "order:42" and "{order:42}:edit" can both guard the key {order:42}:state.
// The server refuses other keys, with CROSSSLOT or an error about keys that are not local.
// Commands that read are sent to the master under a lease, whatever ReadOnly, RouteByLatency and
// RouteRandomly say: a replica may not know the last fence.
//
// A user of Redis needs the rights +evalsha +eval +get +set, and ~holdfast:fence:*.
package redisfence

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/internal/leasectx"
)

// ErrStale is [fence.ErrStale].
var ErrStale = fence.ErrStale

//go:embed guard.lua
var script string

var sha = func() string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}()

// Hook returns a hook for the program's Redis client. Add it after hooks that trace or measure,
// and before hooks that change commands.
func Hook() redis.Hook { return hook{} }

// Check checks and records the fences of the leases that ctx comes from, and does nothing else.
// It is for what is written elsewhere, and closes less than the hook does here: another holder
// may come between the check and the write. It needs no hook.
func Check(ctx context.Context, rdb redis.UniversalClient) error {
	fences, err := checkable(ctx)
	for _, f := range fences {
		fences := []fence.Fence{f} // each may be in another slot
		keys, args := arguments(fences)
		cmd := redis.NewScript(script).Run(leasectx.Exempt(ctx), rdb, keys, args...)
		switch err := cmd.Err(); {
		case isStale(err):
			return stale(err, fences)
		case err != nil:
			return err
		}
	}
	return err
}

type hook struct{}

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		fences, err := checkable(ctx)
		switch {
		case err == nil && fences == nil, passes(cmd):
			return next(ctx, cmd)
		case err == nil:
			err = unfit(cmd)
		}
		if err != nil {
			cmd.SetErr(err)
			return err
		}
		err = next(ctx, guard(cmd, fences, "evalsha", sha))
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			cmd.SetErr(nil)
			err = next(ctx, guard(cmd, fences, "eval", script))
		}
		if isStale(err) {
			err = stale(err, fences)
			cmd.SetErr(err)
		}
		return err
	}
}

func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		fences, err := checkable(ctx)
		if err == nil && fences == nil {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			if err == nil && !passes(cmd) {
				err = unfit(cmd)
			}
		}
		if err != nil { // all or nothing
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		err = next(ctx, guardAll(cmds, fences))
		if again := unscripted(cmds); len(again) > 0 {
			for _, cmd := range again {
				cmd.SetErr(nil)
			}
			// The order of two that both reach the server is kept: no later one has been carried out.
			_ = next(ctx, guardAll(again, fences)) // they have it
			err = firstError(cmds)
		}
		for _, cmd := range cmds {
			if isStale(cmd.Err()) {
				cmd.SetErr(stale(cmd.Err(), fences))
			}
		}
		if isStale(err) {
			return stale(err, fences)
		}
		return err
	}
}

// guardAll guards the commands of a pipeline. The first one brings the script along. In a
// transaction, which cannot be repeated, each of them does.
func guardAll(cmds []redis.Cmder, fences []fence.Fence) []redis.Cmder {
	all := make([]redis.Cmder, len(cmds))
	with, text := "eval", script
	for i, cmd := range cmds {
		all[i] = cmd
		if passes(cmd) {
			continue
		}
		all[i] = guard(cmd, fences, with, text)
		if cmds[0].Name() != "multi" {
			with, text = "evalsha", sha
		}
	}
	return all
}

// unscripted returns the commands that were not carried out because the one that had the script
// went to another node, or was refused for itself. Those before a later one that was carried out
// are not among them: another client has brought the script meanwhile, and to repeat them would
// change the order.
func unscripted(cmds []redis.Cmder) (again []redis.Cmder) {
	for _, cmd := range cmds {
		switch {
		case redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT"):
			again = append(again, cmd)
		case !passes(cmd):
			again = nil
		}
	}
	return again
}

func firstError(cmds []redis.Cmder) error {
	for _, cmd := range cmds {
		if cmd.Err() != nil {
			return cmd.Err()
		}
	}
	return nil
}

// checkable returns the fences of a context that can be stale.
func checkable(ctx context.Context) ([]fence.Fence, error) {
	all, err := fence.Of(ctx)
	var fences []fence.Fence
	for _, f := range all {
		if f.Kind != driver.Semaphore {
			fences = append(fences, f)
		}
	}
	return fences, err
}

// guarded is a command that is sent as an argument of the script. A Cluster finds its slot by
// its key, and its node by the name of the script: it is a master, because the script writes
// also where the command only reads. The reply is read as that of the command.
type guarded struct {
	redis.Cmder
	name string
	args []any
}

func (g guarded) Args() []any  { return g.args }
func (g guarded) Name() string { return g.name }

func guard(cmd redis.Cmder, fences []fence.Fence, with, text string) guarded {
	keys, args := arguments(fences)
	name := cmd.Name()
	if at := firstKey(cmd); at > 0 {
		keys = append(keys, fmt.Sprint(cmd.Args()[at]))
		name = with
		cmd.SetFirstKeyPos(int8(at))
	}
	all := make([]any, 0, 3+len(keys)+len(args)+len(cmd.Args()))
	all = append(all, with, text, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	all = append(all, args...)
	return guarded{cmd, name, append(all, cmd.Args()...)}
}

// arguments returns those of the script that come before the command.
func arguments(fences []fence.Fence) (keys []string, args []any) {
	args = append(args, len(fences))
	for _, f := range fences {
		shared := 0
		if f.Shared {
			shared = 1
		}
		keys = append(keys, key(f))
		args = append(args, f.Number, shared)
	}
	return keys, args
}

// key returns where the fence of a lock is kept, in the slot of the hash tag of its name, or of
// its name if that has none.
func key(f fence.Fence) string {
	const prefix = "holdfast:fence:"
	key := f.Key()
	if _, after, ok := strings.Cut(key, "{"); ok && strings.Index(after, "}") > 0 {
		return prefix + key
	}
	kind, name, _ := strings.Cut(key, ":")
	return prefix + "{" + name + "}:" + kind
}

func isStale(err error) bool { return redis.HasErrorPrefix(err, "STALEFENCE") }

// stale returns the error of a refusal for what the script says.
func stale(err error, fences []fence.Fence) error {
	words := strings.Fields(err.Error())
	if len(words) < 3 {
		return fmt.Errorf("%w: %w", fence.ErrStale, err)
	}
	i, err1 := strconv.Atoi(words[1])
	seen, err2 := strconv.ParseInt(words[2], 10, 64)
	if err1 != nil || err2 != nil || i < 1 || i > len(fences) {
		return fmt.Errorf("%w: %w", fence.ErrStale, err)
	}
	return fences[i-1].Check(seen)
}

// passes reports whether a command needs no check: none at all, or no second one in a node of a
// Cluster.
func passes(cmd redis.Cmder) bool {
	_, done := cmd.(guarded)
	return done || exempt[cmd.Name()]
}

// exempt are commands that neither read nor write keys.
var exempt = set("multi exec discard watch unwatch auth hello client select ping echo quit reset readonly readwrite " +
	"acl function module latency slowlog monitor role lastsave save bgsave bgrewriteaof " +
	"asking wait waitaof command info time script cluster config pubsub subscribe psubscribe ssubscribe unsubscribe punsubscribe sunsubscribe")

// waits are commands that do not wait if a script calls them, and scripts those that none can
// call.
var (
	waits   = set("blpop brpop blmove brpoplpush blmpop bzpopmin bzpopmax bzmpop")
	scripts = set("eval evalsha eval_ro evalsha_ro fcall fcall_ro")
)

func set(words string) map[string]bool {
	all := map[string]bool{}
	for _, word := range strings.Fields(words) {
		all[word] = true
	}
	return all
}

// unfit says why a command cannot be guarded.
func unfit(cmd redis.Cmder) error {
	name := cmd.Name()
	blocks := waits[name] || (name == "xread" || name == "xreadgroup") && position(cmd, "block") > 0
	if blocks || scripts[name] {
		return fmt.Errorf("redisfence: %s cannot be guarded: %w", name, errors.ErrUnsupported)
	}
	return nil
}

// firstKey returns where the first key of a command is among its arguments, 0 for none. If it is
// mistaken, a Cluster or an ACL refuses a command without need.
func firstKey(cmd redis.Cmder) int {
	at := 1
	switch cmd.Name() {
	case "publish", "spublish", "keys", "scan", "dbsize", "flushdb", "flushall", "randomkey", "swapdb":
		return 0
	case "object", "xinfo", "xgroup", "memory", "bitop", "zunion", "zinter", "zdiff", "zintercard", "sintercard", "lmpop", "zmpop":
		at = 2
	case "xread", "xreadgroup":
		at = position(cmd, "streams") + 1
	}
	if at >= len(cmd.Args()) || at > math.MaxInt8 {
		return 0
	}
	return at
}

// position returns where a word is among the arguments, 0 if nowhere.
func position(cmd redis.Cmder, word string) int {
	for i, arg := range cmd.Args() {
		if s, ok := arg.(string); ok && strings.EqualFold(s, word) {
			return i
		}
	}
	return 0
}
