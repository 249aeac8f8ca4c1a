package redisdriver

import (
	"context"
	"embed"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

//go:embed script
var files embed.FS

// scripts are what can be done to the locks of a kind.
type scripts struct{ acquire, release, renew, force, raise, extend, attach *script }

var (
	mutex = scripts{
		acquire: newScript("acquire", 1, "lock", "mutex", "mutex_acquire", "owner", "queue", "mutex_lease", "owner_lease", "lock_again", "lock_acquire_slow"),
		release: newScript("release", 2, "mutex_release", "lock", "mutex", "owner", "queue", "mutex_lease", "owner_lease", "lock_release_slow"),
		renew:   newScript("renew", 1, "lock", "mutex", "owner", "queue", "mutex_lease", "owner_lease", "lock_renew"),
		extend:  newScript("extend", 2, "lock", "mutex", "owner", "queue", "mutex_lease", "owner_lease", "lock_extend"),
		force:   newScript("force", 2, "lock", "mutex", "owner", "queue", "mutex_lease", "owner_lease", "mutex_force"),
		raise:   newScript("raise", 1, "lock", "mutex", "owner", "queue", "mutex_lease", "owner_lease", "lock_raise"),
		attach:  newScript("attach", 1, "lock", "mutex", "owner", "queue", "mutex_lease", "owner_lease", "lock_attach"),
	}
	shared = scripts{
		acquire: newScript("acquire", 1, "lock", "shared", "shared_acquire", "owner", "queue", "shared_lease", "owner_lease", "lock_again", "shared_limit", "lock_acquire_slow"),
		release: newScript("release", 2, "shared_release", "lock", "shared", "owner", "queue", "shared_lease", "owner_lease", "lock_release_slow"),
		renew:   newScript("renew", 1, "lock", "shared", "owner", "queue", "shared_lease", "owner_lease", "lock_renew"),
		extend:  newScript("extend", 2, "lock", "shared", "owner", "queue", "shared_lease", "owner_lease", "lock_extend"),
		force:   newScript("force", 2, "lock", "shared", "owner", "queue", "shared_lease", "owner_lease", "shared_force"),
		raise:   newScript("raise", 1, "lock", "shared", "owner", "queue", "shared_lease", "owner_lease", "lock_raise"),
		attach:  newScript("attach", 1, "lock", "shared", "owner", "queue", "shared_lease", "owner_lease", "lock_attach"),
	}
	downgradeScript = newScript("downgrade", 2, "lock", "shared", "owner", "queue", "shared_lease", "owner_lease", "shared_downgrade")
	resizeScript    = newScript("resize", 2, "lock", "shared", "owner", "queue", "shared_lease", "owner_lease", "shared_resize")
	inspectScript   = newScript("inspect", 2, "lock", "lock_inspect")
)

func scriptsOf(k driver.Kind) scripts {
	if k == driver.Mutex {
		return mutex
	}
	return shared
}

// script is a Lua script with all it builds on, and the least number of values in its
// answer.
type script struct {
	*redisscript.Script
	answer int
	parts  []string
}

// newScript puts a script together from files in the folder script.
func newScript(verb string, answer int, names ...string) *script {
	var text strings.Builder
	for _, name := range names {
		part, err := files.ReadFile("script/" + name + ".lua")
		if err != nil {
			panic(err) // not in the binary: cannot be
		}
		text.Write(part)
	}
	return &script{Script: redisscript.New(verb, text.String()), answer: answer, parts: names}
}

func (d *Driver) call(s *script, k driver.Kind, name string, args []any) redisscript.Call {
	return redisscript.Call{Script: s.Script, Family: string(k), Keys: []string{d.key(k, name)}, Args: args}
}

func (d *Driver) run(ctx context.Context, s *script, k driver.Kind, name string, args ...any) (*redisscript.Command, error) {
	return d.scripts.Run(ctx, d.call(s, k, name, args))
}

// answer runs a script that answers with integers, and perhaps a text at the end.
func (d *Driver) answer(ctx context.Context, s *script, k driver.Kind, name string, args ...any) ([]int64, string, error) {
	c, err := d.run(ctx, s, k, name, args...)
	if err != nil {
		return nil, "", err
	}
	reply, err := c.Slice()
	if err != nil {
		return nil, "", err
	}
	var text string
	if last := len(reply) - 1; last >= s.answer {
		if t, ok := reply[last].(string); ok {
			text, reply = fit(t), reply[:last]
		}
	}
	ints := make([]int64, len(reply))
	for i, v := range reply {
		n, ok := v.(int64)
		if !ok {
			return nil, "", fmt.Errorf("redisdriver: a script answered with a %T", v)
		}
		ints[i] = n
	}
	if len(ints) < s.answer {
		err = fmt.Errorf("redisdriver: %d values from a script, want at least %d", len(ints), s.answer)
	}
	return ints, text, err
}
