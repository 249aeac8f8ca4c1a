package getset

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed script/acquire.lua
	acquireText string
	//go:embed script/renew.lua
	renewText string
	//go:embed script/release.lua
	releaseText string

	acquire = newScript("acquire", acquireText)
	renew   = newScript("renew", renewText)
	release = newScript("release", releaseText)
)

// script is a Lua script. redis.Script is not used because its commands would be retried
// by go-redis.
type script struct{ verb, text, sha string }

func newScript(verb, text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{verb, text, hex.EncodeToString(sum[:])}
}

// command is a script that is being run.
type command struct {
	*redis.Cmd
	s       *script
	sent    context.Context
	unknown bool
}

// NoRetry keeps go-redis from sending a command again by itself after it lost the
// answer. Only an attempt that the caller knows of can be counted as under way.
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
// was sent with. The hooks of holdfast ask for both.
func (c *command) Procedure() (name string, sent context.Context) {
	return "holdfast.getset." + c.s.verb, c.sent
}

// cmd is the script as a command, by its hash or with its text.
func (s *script) cmd(ctx context.Context, byText bool, keys []string, args ...any) *command {
	list := []any{"evalsha", s.sha, len(keys)}
	if byText {
		list = []any{"eval", s.text, len(keys)}
	}
	for _, key := range keys {
		list = append(list, key)
	}
	c := &command{Cmd: redis.NewCmd(ctx, append(list, args...)...), s: s, sent: ctx}
	c.SetFirstKeyPos(3)
	return c
}

// run runs a script by its hash, or with its text if the server does not know it.
func (d *Driver) run(ctx context.Context, s *script, keys []string, args ...any) *command {
	c := s.cmd(ctx, false, keys, args...)
	err := d.rdb.Process(ctx, c)
	if c.unknown {
		c = s.cmd(ctx, true, keys, args...)
		err = d.rdb.Process(ctx, c)
	}
	if err != nil && c.Err() == nil {
		c.SetErr(err) // from a hook
	}
	return c
}
