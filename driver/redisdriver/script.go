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
	mutex  = scriptsFor("mutex")
	shared = scriptsFor("shared", "shared_limit")

	downgradeScript = newScript("downgrade", 2, second(nil, "shared", "shared_downgrade")...)
	resizeScript    = newScript("resize", 2, second(nil, "shared", "shared_resize")...)
	inspectScript   = newScript("inspect", 2, "lock_inspect")
	pingScript      = newScript("ping", 1, "wake_ping")
)

// scriptsFor puts the scripts of a kind together; limit is what only an acquisition of some
// needs. See script/lock.lua for the order.
func scriptsFor(kind string, limit ...string) scripts {
	asks := second([]string{kind + "_acquire"}, kind, append(append([]string{"lock_again"}, limit...), "lock_acquire_slow")...)
	ends := second(nil, kind, "lock_release_slow")
	return scripts{
		acquire: newScript("acquire", 1, asks...),
		release: newScript("release", 1, append([]string{kind + "_release"}, ends...)...),
		renew:   newScript("renew", 1, second(nil, kind, "lock_renew")...),
		extend:  newScript("extend", 3, second(nil, kind, "lock_extend")...),
		force:   newScript("force", 2, second(nil, kind, kind+"_force")...),
		raise:   newScript("raise", 2, second(nil, kind, "lock_raise")...),
		attach:  newScript("attach", 1, second(nil, kind, "lock_attach")...),
	}
}

// second is the second part of a script, with what comes before it, and what it ends with.
func second(first []string, kind string, last ...string) []string {
	parts := append([]string{kind + "_look", "lock"}, first...)
	parts = append(parts, "lock_life", kind, "owner", "queue", kind+"_lease", "owner_lease")
	return append(parts, last...)
}

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

// call is a script with the arguments that every script begins with, and more.
func (d *Driver) call(s *script, k driver.Kind, name, token string, more ...any) redisscript.Call {
	return s.Call(string(k), 3+len(more), d.key(k, name)).With(token, d.channels, d.keeps).With(more...)
}

func (d *Driver) run(ctx context.Context, s *script, k driver.Kind, name, token string, more ...any) (*redisscript.Command, error) {
	return d.scripts.Run(ctx, d.call(s, k, name, token, more...))
}

// answer is what a script says: integers, those that it leaves out 0, and perhaps a text at
// the end. Some say the usual with a single integer that is in no list.
type answer struct {
	alone bool
	n     [5]int64
	text  string
}

// answer runs a script.
func (d *Driver) answer(ctx context.Context, s *script, k driver.Kind, name, token string, more ...any) (answer, error) {
	c, err := d.run(ctx, s, k, name, token, more...)
	if err != nil {
		return answer{}, err
	}
	return s.read(c.Val())
}

// read reads the reply to a script.
func (s *script) read(reply any) (a answer, err error) {
	if n, ok := reply.(int64); ok {
		a.alone, a.n[0] = true, n
		return a, nil
	}
	list, _ := reply.([]any)
	if last := len(list) - 1; last >= s.answer {
		if t, ok := list[last].(string); ok {
			a.text, list = fit(t), list[:last]
		}
	}
	if len(list) < s.answer || len(list) > len(a.n) {
		return a, fmt.Errorf("redisdriver: %d values from a script, want at least %d", len(list), s.answer)
	}
	for i, v := range list {
		n, ok := v.(int64)
		if !ok {
			return a, fmt.Errorf("redisdriver: a script answered with a %T", v)
		}
		a.n[i] = n
	}
	return a, nil
}
