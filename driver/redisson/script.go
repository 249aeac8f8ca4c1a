package redisson

import (
	"context"
	"embed"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

//go:embed script
var files embed.FS

var (
	acquire = newScript("acquire", "whose", "fence", "acquire")
	renew   = newScript("renew", "renew")
	release = newScript("release", "clock", "settle", "release")
	force   = newScript("force", "rlock", "mutex", "clock", "settle", "force")
	inspect = newScript("inspect", "clock", "rlock", "holds", "held", "inspect")

	ownerAcquire = newScript("acquire", "clock", "whose", "owner", "fence", "owner_acquire")
	ownerRenew   = newScript("renew", "clock", "owner", "owner_renew")
	ownerRelease = newScript("release", "clock", "settle", "owner", "owner_release")
)

// script is a Lua script with all it builds on.
type script struct {
	*redisscript.Script
	parts []string
}

// newScript puts a script together from files in the folder script.
func newScript(verb string, parts ...string) *script {
	var text strings.Builder
	for _, part := range parts {
		b, err := files.ReadFile("script/" + part + ".lua")
		if err != nil {
			panic(err) // not in the binary: cannot be
		}
		text.Write(b)
	}
	return &script{redisscript.New(verb, text.String()), parts}
}

func call(s *script, keys []string, args ...any) redisscript.Call {
	return s.Call("redisson", len(args), keys...).With(args...)
}

// acquireCall is the ask of a token, alone or of an owner.
func (d *Driver) acquireCall(r *driver.Request) redisscript.Call {
	switch {
	case r.Kind == driver.RWMutex:
		return d.rwAcquireCall(r)
	case d.form == FairLock:
		return d.fairAcquireCall(r)
	case r.Owner == "":
		keys := d.counted(r.Name, d.key(r.Name), d.settled(r.Name))
		return call(acquire, keys, r.Token, redisscript.Lasting(r.TTL))
	}
	return call(ownerAcquire, d.counted(r.Name, d.ownerKeys(r.Name)...), r.Token, field(r.Owner), redisscript.Lasting(r.TTL))
}

func (d *Driver) inspectCall(k driver.Kind, name string) redisscript.Call {
	keys := d.ownerKeys(name)
	if k == driver.RWMutex {
		return call(rwInspect, []string{keys[0], keys[2]}, tagged(d.key(name)))
	}
	return call(inspect, d.counted(name, keys[0], keys[2]))
}

func (d *Driver) renewCall(l driver.Lease) redisscript.Call {
	if l.Kind == driver.RWMutex {
		return d.rwRenewCall(l)
	}
	if l.Owner == "" {
		return call(renew, []string{d.key(l.Name)}, l.Token, redisscript.Lasting(l.TTL))
	}
	return call(ownerRenew, d.ownerKeys(l.Name), l.Token, field(l.Owner), redisscript.Lasting(l.TTL))
}

func (d *Driver) releaseCall(l driver.Lease) redisscript.Call {
	channel, settled := d.channel(l.Kind, l.Name), redisscript.Millis(retention)
	switch {
	case l.Kind == driver.RWMutex:
		return d.rwReleaseCall(l)
	case d.form == FairLock:
		return d.fairReleaseCall(l)
	case l.Owner != "" && !l.Unsettled:
		return call(ownerRelease, d.ownerKeys(l.Name), l.Token, field(l.Owner), channel, d.publish, 0)
	case l.Owner != "":
		return call(ownerRelease, d.ownerKeys(l.Name), l.Token, field(l.Owner), channel, d.publish, settled)
	case !l.Unsettled: // One key only, which works while a slot moves.
		return call(release, []string{d.key(l.Name)}, l.Token, channel, d.publish)
	}
	return call(release, []string{d.key(l.Name), d.settled(l.Name)}, l.Token, channel, d.publish, settled)
}

func (d *Driver) forceCall(k driver.Kind, name string) redisscript.Call {
	by := force
	switch {
	case k == driver.RWMutex:
		by = rwForce
	case d.form == FairLock:
		return d.fairForceCall(k, name)
	}
	return call(by, d.ownerKeys(name), d.channel(k, name), d.publish, redisscript.Millis(retention))
}

// answer runs a script that answers with an integer.
func (d *Driver) answer(ctx context.Context, c redisscript.Call) (int64, error) {
	cmd, err := redisscript.Run(ctx, d.rdb, c)
	if err != nil {
		return 0, err
	}
	return cmd.Int64()
}
