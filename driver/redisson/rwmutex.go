package redisson

import (
	"context"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

var (
	rwAcquire      = newScript("acquire", "rw_whose", "rw_acquire")
	rwRenew        = newScript("renew", "clock", "owner", "rw_renew")
	rwRelease      = newScript("release", "clock", "settle", "rw_readers", "owner", "rw_release")
	rwForce        = newScript("force", "clock", "settle", "rw_force")
	rwOwnerAcquire = newScript("acquire", "clock", "rw_whose", "owner", "rw_owner_acquire")
	rwInspect      = newScript("inspect", "clock", "holds", "rw_readers", "rw_inspect")
)

// rwKeys are the keys of a lock and a token.
func (d *Driver) rwKeys(name, token string) []string {
	return append(d.ownerKeys(name), tagged(d.key(name))+":"+token+":rwlock_timeout:1")
}

// rwAcquireCall is the ask of a token. Readers have no owner.
func (d *Driver) rwAcquireCall(r *driver.Request) redisscript.Call {
	keys, lasting := d.rwKeys(r.Name, r.Token), redisscript.Lasting(r.TTL)
	switch {
	case r.Shared:
		return call(rwAcquire, keys, r.Token, "read", lasting)
	case r.Owner != "":
		return call(rwOwnerAcquire, keys[:3], r.Token, rwField(r.Owner), lasting)
	}
	return call(rwAcquire, keys, r.Token, "write", lasting)
}

// rwRenewCall is for a reader or a writer: a lease does not say which.
func (d *Driver) rwRenewCall(l driver.Lease) redisscript.Call {
	return call(rwRenew, d.rwKeys(l.Name, l.Token), l.Token, rwField(l.Owner), redisscript.Lasting(l.TTL))
}

func (d *Driver) rwReleaseCall(l driver.Lease) redisscript.Call {
	settled := int64(0)
	if l.Unsettled {
		settled = redisscript.Millis(retention)
	}
	keys, channel := d.rwKeys(l.Name, l.Token), d.channel(l.Kind, l.Name)
	return call(rwRelease, keys, l.Token, rwField(l.Owner), channel, d.publish, settled, tagged(d.key(l.Name)))
}

// rwField is an owner that writes, in the lock; empty for none.
func rwField(owner string) string {
	if owner == "" {
		return ""
	}
	return field(owner) + ":write"
}

// inspectRW shows readers, or the writer.
func (d *Driver) inspectRW(ctx context.Context, name string) (driver.Info, error) {
	info, err := redisscript.Inspect(ctx, d.rdb, name, d.inspectCall(driver.RWMutex, name))
	for i := range info.Holders {
		h := &info.Holders[i]
		mode, owner, _ := strings.Cut(h.Owner, " ") // as the script has it
		h.Shared, h.Owner = mode == "read", owner
	}
	return info, err
}
