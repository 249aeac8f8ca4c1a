package redisson

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

var (
	fairAcquire = newScript("acquire", "clock", "whose", "owner", "fair", "fair_acquire")
	fairRelease = newScript("release", "clock", "settle", "owner", "fair", "fair_release")
	fairForce   = newScript("force", "rlock", "mutex", "clock", "settle", "fair", "fair_force")
	fairInspect = newScript("inspect", "clock", "rlock", "holds", "held", "fair_inspect")
)

// defaultTurn is Redisson's fairLockWaitTimeout.
const defaultTurn = 5 * time.Minute

func (d *Driver) fairKeys(name string) []string {
	key := tagged(d.key(name))
	return append(d.ownerKeys(name), "redisson_lock_queue:"+key, "redisson_lock_timeout:"+key,
		redisscript.Beside("holdfast:redisson:waits:", d.key(name)))
}

// ownerField is an owner in the lock; empty for none.
func ownerField(owner string) string {
	if owner == "" {
		return ""
	}
	return field(owner)
}

func (d *Driver) fairAcquireCall(r *driver.Request) redisscript.Call {
	patience, most := int64(0), int64(0)
	if r.Wait {
		patience, most = redisscript.Millis(r.TTL*2/3), r.MaxWaiters
	}
	return call(fairAcquire, d.fairKeys(r.Name), r.Token, ownerField(r.Owner), redisscript.Lasting(r.TTL),
		patience, most, redisscript.Millis(d.turn), d.channel(r.Kind, r.Name), d.publish)
}

func (d *Driver) fairReleaseCall(l driver.Lease) redisscript.Call {
	settled := int64(0)
	if l.Unsettled {
		settled = redisscript.Millis(retention)
	}
	return call(fairRelease, d.fairKeys(l.Name), l.Token, ownerField(l.Owner), d.channel(l.Kind, l.Name), d.publish,
		settled, redisscript.Millis(d.turn))
}

func (d *Driver) fairForceCall(k driver.Kind, name string) redisscript.Call {
	return call(fairForce, d.fairKeys(name), d.channel(k, name), d.publish, redisscript.Millis(retention), redisscript.Millis(d.turn))
}

// inspectFair shows the queue, too.
func (d *Driver) inspectFair(ctx context.Context, name string) (driver.Info, error) {
	info, keys := driver.Info{Name: name}, d.fairKeys(name)
	c, err := redisscript.Run(ctx, d.rdb, call(fairInspect, append(keys[:1:1], keys[2:]...)))
	if err != nil {
		return info, err
	}
	reply, err := c.Slice()
	if err != nil {
		return info, err
	}
	var held, queue []any
	if len(reply) == 2 {
		held, _ = reply[0].([]any)
		queue, _ = reply[1].([]any)
	}
	if held == nil || queue == nil {
		return info, fmt.Errorf("redisson: unexpected answer from a script: %v", reply)
	}
	if info.Holders, err = redisscript.Holders("redisson", held); err != nil {
		return info, err
	}
	for _, waiter := range queue {
		info.Queue = append(info.Queue, driver.Waiter{Holder: fmt.Sprint(waiter), Since: driver.Since(fmt.Sprint(waiter))})
	}
	return info, nil
}
