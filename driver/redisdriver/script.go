package redisdriver

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

//go:embed script
var files embed.FS

// scripts are what can be done to the locks of a kind.
type scripts struct{ acquire, release, renew, force *script }

var (
	mutex = scripts{
		acquire: newScript("acquire", 1, "lock", "mutex", "mutex_acquire", "queue", "mutex_lease", "lock_again", "lock_acquire_slow"),
		release: newScript("release", 2, "mutex_release", "lock", "mutex", "queue", "mutex_lease", "lock_release_slow"),
		renew:   newScript("renew", 1, "lock", "mutex", "queue", "mutex_lease", "lock_renew"),
		force:   newScript("force", 2, "lock", "mutex", "queue", "mutex_lease", "mutex_force"),
	}
	shared = scripts{
		acquire: newScript("acquire", 1, "lock", "shared", "shared_acquire", "queue", "shared_lease", "lock_again", "shared_limit", "lock_acquire_slow"),
		release: newScript("release", 2, "shared_release", "lock", "shared", "queue", "shared_lease", "lock_release_slow"),
		renew:   newScript("renew", 1, "lock", "shared", "queue", "shared_lease", "lock_renew"),
		force:   newScript("force", 2, "lock", "shared", "queue", "shared_lease", "shared_force"),
	}
	downgradeScript = newScript("downgrade", 2, "lock", "shared", "queue", "shared_lease", "shared_downgrade")
	resizeScript    = newScript("resize", 2, "lock", "shared", "queue", "shared_lease", "shared_resize")
	inspectScript   = newScript("inspect", 2, "lock", "lock_inspect")
)

func scriptsOf(k driver.Kind) scripts {
	if k == driver.Mutex {
		return mutex
	}
	return shared
}

// script is a Lua script with all it builds on, and the least number of values in its
// answer. redis.Script is not used because its commands would be retried by go-redis.
type script struct {
	verb      string
	text, sha string
	answer    int
	parts     []string
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
	sum := sha1.Sum([]byte(text.String()))
	return &script{verb: verb, text: text.String(), sha: hex.EncodeToString(sum[:]), answer: answer, parts: names}
}

// command is a script that is being run.
type command struct {
	*redis.Cmd
	s       *script
	kind    driver.Kind
	sent    context.Context
	unknown bool
}

// NoRetry keeps go-redis from sending a command again by itself after it lost the
// answer. Only an attempt that we know of can be counted as under way.
func (*command) NoRetry() bool { return true }

// SetErr notes when the server does not know the script. That is no error, so hooks may
// hide it from each other, but not from us.
func (c *command) SetErr(err error) {
	c.unknown = c.unknown || err != nil && redis.HasErrorPrefix(err, "NOSCRIPT")
	c.Cmd.SetErr(err)
}

// Unknown reports whether the server did not know the script; the text follows.
func (c *command) Unknown() bool { return c.unknown }

// Procedure returns the name of the script, for people, and the context that the command
// was sent with.
func (c *command) Procedure() (name string, sent context.Context) {
	return "holdfast." + string(c.kind) + "." + c.s.verb, c.sent
}

// cmd is the script as a command, by its hash or with its text.
func (s *script) cmd(ctx context.Context, byText bool, k driver.Kind, key string, args []any) *command {
	list := make([]any, 0, 4+len(args))
	if byText {
		list = append(list, "eval", s.text, 1, key)
	} else {
		list = append(list, "evalsha", s.sha, 1, key)
	}
	c := &command{Cmd: redis.NewCmd(ctx, append(list, args...)...), s: s, kind: k, sent: ctx}
	c.SetFirstKeyPos(3)
	return c
}

// run runs the script on a lock, by its hash, or with its text if the server does not
// know it.
func (d *Driver) run(ctx context.Context, s *script, k driver.Kind, name string, args ...any) (*command, error) {
	c := s.cmd(ctx, false, k, d.key(k, name), args)
	err := d.rdb.Process(ctx, c)
	if c.unknown {
		c = s.cmd(ctx, true, k, d.key(k, name), args)
		err = d.rdb.Process(ctx, c)
	}
	return c, classify(err)
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
