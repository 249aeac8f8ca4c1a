package redisscript

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// Require panics, in the name of a driver of holdfast, if locks cannot be kept on what is behind rdb.
func Require(name string, rdb redis.UniversalClient) {
	if v := reflect.ValueOf(rdb); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		panic("holdfast: " + name + ": nil client")
	}
	if _, ok := rdb.(*redis.Ring); ok {
		panic("holdfast: " + name + ": a redis.Ring cannot keep locks: it moves them when a server fails, and then two can hold one")
	}
}

// Timeout is how long a command of rdb waits for an answer: the ReadTimeout. It is 0 if there is none, or rdb is of a
// kind that does not tell. The end of a context ends the wait for a connection, but not for the answer: with
// ContextTimeoutEnabled go-redis heeds a deadline there, and never a cancellation. While a server is about to move and says
// so (maintnotifications), go-redis waits twice as long.
func Timeout(rdb redis.UniversalClient) time.Duration {
	var timeout time.Duration
	switch rdb := rdb.(type) {
	case *redis.Client:
		timeout = rdb.Options().ReadTimeout
	case *redis.ClusterClient:
		timeout = rdb.Options().ReadTimeout
	}
	return max(0, timeout) // go-redis has other words for none
}

// Unsupported refuses, in the name of a driver, a kind of lock that it does not have.
func Unsupported(name string, k driver.Kind) error {
	return Refusal(fmt.Errorf("%s: locks of kind %q: %w", name, k, errors.ErrUnsupported))
}

// Ownerless refuses, in the name of a driver, a request with an owner.
func Ownerless(name string) error {
	return Refusal(fmt.Errorf("%s: holds with an owner: %w", name, errors.ErrUnsupported))
}

// Millis rounds up, so that the server never ends a lease before the client does.
func Millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// Lasting is for how long a key stands for a lease, in ms: a little longer than the
// holder trusts it.
func Lasting(ttl time.Duration) int64 {
	return Millis(ttl + min(max(ttl/20, 5*time.Millisecond), 500*time.Millisecond))
}

// Remaining is the time left of a key, from PTTL. It is 0 for a key that lives for ever.
// The locks of other programs may last longer than a Duration can say.
func Remaining(pttl int64) time.Duration {
	if pttl < 0 {
		return 0
	}
	return time.Duration(min(pttl+1, Millis(driver.MaxTTL))) * time.Millisecond
}

// Poll is how long a waiter pauses between two asks if nobody would tell of a release, by default.
const Poll = 100 * time.Millisecond

// RetryAfter is how long to wait before the next ask for a lock of whose release nobody
// tells. left is the rest of its lease, 0 if that is not known. The holder may be done long
// before, so a waiter pauses for no longer than poll.
func RetryAfter(r *driver.Request, left, poll time.Duration) time.Duration {
	if r.Wait && (left == 0 || left > poll) {
		return poll
	}
	return left
}

// Beside returns a second key in the slot of a key on a Cluster. If the key has a hash tag,
// the second key has it too; otherwise the whole key becomes its hash tag. (A key with a
// closing brace but no tag, such as "a}b" or "{}", has no key in its slot that we could
// name.) No two keys have the same second key, not even "a" and "{a}".
func Beside(prefix, key string) string {
	_, rest, _ := strings.Cut(key, "{")
	if strings.Index(rest, "}") > 0 {
		return prefix + key + "."
	}
	return prefix + "{" + key + "}"
}

// Node returns the address of the node of a Cluster that has the key, or "".
func Node(rdb redis.UniversalClient, key string) string {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return ""
	}
	node, err := cluster.MasterForKey(context.Background(), key)
	if err != nil {
		return ""
	}
	return node.Options().Addr
}

// Rediscover has a Cluster client find out in the background which node has which slot,
// after an error that no node has answered with. By itself the client does so when a node
// says MOVED, and once a minute. Until then it would keep asking a master that is dead.
func Rediscover(ctx context.Context, rdb any, err error) {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok || err == nil {
		return
	}
	var reply redis.Error
	if !errors.As(err, &reply) && !errors.Is(err, redis.ErrClosed) {
		cluster.ReloadState(ctx) // at most every 200 ms
	}
}
