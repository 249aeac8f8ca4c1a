package redisson_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// These scripts send the commands of Redisson's Java side, in their order and with the
// arguments that it gives them. They are to be compared with tryLockInnerAsync,
// unlockInnerAsync and forceUnlockAsync of RedissonLock.java, and with buildChunk of
// LockTask.java, at github.com/redisson/redisson 66863978b (4.7.1-SNAPSHOT).
var (
	javaLock = redis.NewScript(`
		local free = redis.call('exists', KEYS[1]) == 0
		if free or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
			redis.call('hincrby', KEYS[1], ARGV[2], 1)
			redis.call('pexpire', KEYS[1], ARGV[1])
			return nil
		end
		return redis.call('pttl', KEYS[1])`)

	javaFenced = redis.NewScript(`
		local mine = redis.call('hexists', KEYS[1], ARGV[2])
		if mine == 0 and redis.call('exists', KEYS[1]) == 1 then
			return { redis.call('pttl', KEYS[1]), -1 }
		end
		local fence = redis.call('incr', KEYS[2])
		redis.call('hincrby', KEYS[1], ARGV[2], 1)
		redis.call('pexpire', KEYS[1], ARGV[1])
		return { -1, fence }`)

	javaUnlock = redis.NewScript(`
		local latch = redis.call('get', KEYS[3])
		if latch ~= false then return tonumber(latch) end
		if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
		if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
			redis.call('pexpire', KEYS[1], ARGV[2])
			redis.call('set', KEYS[3], 0, 'px', ARGV[5])
			return 0
		end
		redis.call('del', KEYS[1])
		redis.call(ARGV[4], KEYS[2], ARGV[1])
		redis.call('set', KEYS[3], 1, 'px', ARGV[5])
		return 1`)

	javaRenew = redis.NewScript(`
		local result = {}
		for i = 1, #KEYS do
			local held = redis.call('hexists', KEYS[i], ARGV[i + 1])
			if held == 1 then redis.call('pexpire', KEYS[i], ARGV[1]) end
			table.insert(result, held)
		end
		return result`)

	javaForce = redis.NewScript(`
		if redis.call('del', KEYS[1]) == 0 then return 0 end
		redis.call(ARGV[2], KEYS[2], ARGV[1])
		return 1`)
)

// latch is how long Redisson remembers an unlock: (timeout + retryDelay) * retryAttempts.
const latch = 20 * time.Second

var errNotTheirs = errors.New("attempt to unlock lock, not locked by current thread")

// java is a thread of a Java program with Redisson.
type java struct {
	rdb       redis.UniversalClient
	client    string // the UUID of its RedissonClient
	thread    int
	publishes string
}

func newJava(rdb redis.UniversalClient) java {
	var id [16]byte
	_, _ = rand.Read(id[:])
	return java{rdb, fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]), 1, "PUBLISH"}
}

func (j java) id() string { return fmt.Sprintf("%s:%d", j.client, j.thread) }

// prefixed is RedissonObject.prefixName.
func prefixed(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

func channel(name string) string { return prefixed("redisson_lock__channel", name) }

// tryLock returns the rest of another's lease if it does not get the lock.
func (j java) tryLock(t *testing.T, name string, lease time.Duration) (left time.Duration, locked bool) {
	t.Helper()
	n, err := javaLock.Run(t.Context(), j.rdb, []string{name}, lease.Milliseconds(), j.id()).Int64()
	if errors.Is(err, redis.Nil) {
		return 0, true
	}
	require.NoError(t, err)
	return time.Duration(n) * time.Millisecond, false
}

// tryFenced is what lockAndGetToken of RedissonFencedLock.java does: as tryLock, and it counts. The
// fence is -1 if another holds the lock.
func (j java) tryFenced(t *testing.T, name string) (left time.Duration, fence int64) {
	t.Helper()
	keys := []string{name, prefixed("redisson_lock_token", name)}
	n, err := javaFenced.Run(t.Context(), j.rdb, keys, long.Milliseconds(), j.id()).Int64Slice()
	require.NoError(t, err)
	return time.Duration(n[0]) * time.Millisecond, n[1]
}

func (j java) mustLock(t *testing.T, name string, lease time.Duration) {
	t.Helper()
	left, locked := j.tryLock(t, name, lease)
	require.True(t, locked, "a thread of Java should get the lock, but it is taken for %v", left)
}

func (j java) refused(t *testing.T, name string) {
	t.Helper()
	_, locked := j.tryLock(t, name, long)
	require.False(t, locked, "a thread of Java got the lock")
}

// unlock reports whether that was the last hold.
func (j java) unlock(ctx context.Context, name string) (bool, error) {
	return j.unlockAs(ctx, name, strings.ReplaceAll(newJava(nil).client, "-", ""))
}

// unlockAs is what is sent again with the same request when there was no answer.
func (j java) unlockAs(ctx context.Context, name, request string) (bool, error) {
	keys := []string{name, channel(name), prefixed("redisson_unlock_latch", name) + ":" + request}
	n, err := javaUnlock.Run(ctx, j.rdb, keys, "0", long.Milliseconds(), j.id(), j.publishes, latch.Milliseconds()).Int64()
	if errors.Is(err, redis.Nil) {
		return false, errNotTheirs
	}
	return n == 1, err
}

// renew is what the watchdog does every third of the lease.
func (j java) renew(t *testing.T, lease time.Duration, names ...string) []int64 {
	t.Helper()
	args := []any{lease.Milliseconds()}
	for range names {
		args = append(args, j.id())
	}
	held, err := javaRenew.Run(t.Context(), j.rdb, names, args...).Int64Slice()
	require.NoError(t, err)
	return held
}

func (j java) forceUnlock(t *testing.T, name string) bool {
	t.Helper()
	n, err := javaForce.Run(t.Context(), j.rdb, []string{name, channel(name)}, "0", j.publishes).Int64()
	require.NoError(t, err)
	return n == 1
}

// lock is Redisson's lock(): subscribe, try, and wait for a message or the end of the
// lease that is in the way. It calls refused when it begins to wait.
func (j java) lock(ctx context.Context, name string, refused func()) (err error) {
	subscribe := j.rdb.Subscribe
	if j.publishes == "SPUBLISH" {
		subscribe = j.rdb.SSubscribe
	}
	ps := subscribe(ctx, channel(name))
	defer func() { err = errors.Join(err, ps.Close()) }()
	if _, err := ps.Receive(ctx); err != nil {
		return err
	}
	for {
		left, err := javaLock.Run(ctx, j.rdb, []string{name}, long.Milliseconds(), j.id()).Int64()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		if err != nil {
			return err
		}
		refused()
		msg, err := ps.ReceiveTimeout(ctx, max(1, time.Duration(left))*time.Millisecond) // 0 would be for ever
		if m, ok := msg.(*redis.Message); ok && m.Payload != "0" {
			return fmt.Errorf("a message of %q, want LockPubSub.UNLOCK_MESSAGE", m.Payload)
		}
		var timeout interface{ Timeout() bool }
		if err != nil && !(errors.As(err, &timeout) && timeout.Timeout()) {
			return err
		}
	}
}
