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
		acquire: newScript(1, "lock", "mutex", "mutex_acquire", "queue", "mutex_lease", "lock_again", "lock_acquire_slow"),
		release: newScript(2, "mutex_release", "lock", "mutex", "queue", "mutex_lease", "lock_release_slow"),
		renew:   newScript(1, "lock", "mutex", "queue", "mutex_lease", "lock_renew"),
		force:   newScript(2, "lock", "mutex", "queue", "mutex_lease", "mutex_force"),
	}
	shared = scripts{
		acquire: newScript(1, "lock", "shared", "shared_acquire", "queue", "shared_lease", "lock_again", "shared_limit", "lock_acquire_slow"),
		release: newScript(2, "shared_release", "lock", "shared", "queue", "shared_lease", "lock_release_slow"),
		renew:   newScript(1, "lock", "shared", "queue", "shared_lease", "lock_renew"),
		force:   newScript(2, "lock", "shared", "queue", "shared_lease", "shared_force"),
	}
	downgradeScript = newScript(2, "lock", "shared", "queue", "shared_lease", "shared_downgrade")
	resizeScript    = newScript(2, "lock", "shared", "queue", "shared_lease", "shared_resize")
	inspectScript   = newScript(2, "lock", "lock_inspect")
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
	text, sha string
	answer    int
	parts     []string
}

// newScript puts a script together from files in the folder script.
func newScript(answer int, names ...string) *script {
	var text strings.Builder
	for _, name := range names {
		part, err := files.ReadFile("script/" + name + ".lua")
		if err != nil {
			panic(err) // not in the binary: cannot be
		}
		text.Write(part)
	}
	sum := sha1.Sum([]byte(text.String()))
	return &script{text: text.String(), sha: hex.EncodeToString(sum[:]), answer: answer, parts: names}
}

// once keeps go-redis from sending a command again by itself after it lost the
// answer. Only an attempt that we know of can be counted as under way.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// cmd is the script as a command, by its hash or with its text.
func (s *script) cmd(ctx context.Context, byText bool, key string, args []any) once {
	list := make([]any, 0, 4+len(args))
	if byText {
		list = append(list, "eval", s.text, 1, key)
	} else {
		list = append(list, "evalsha", s.sha, 1, key)
	}
	c := once{redis.NewCmd(ctx, append(list, args...)...)}
	c.SetFirstKeyPos(3)
	return c
}

// run runs the script by its hash, or with its text if the server does not know it.
func (s *script) run(ctx context.Context, rdb redis.UniversalClient, key string, args ...any) (*redis.Cmd, error) {
	c := s.cmd(ctx, false, key, args)
	err := rdb.Process(ctx, c)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		c = s.cmd(ctx, true, key, args)
		err = rdb.Process(ctx, c)
	}
	return c.Cmd, classify(err)
}

func (s *script) ints(ctx context.Context, rdb redis.UniversalClient, key string, args ...any) ([]int64, error) {
	c, err := s.run(ctx, rdb, key, args...)
	if err != nil {
		return nil, err
	}
	reply, err := c.Int64Slice()
	if err == nil && len(reply) < s.answer {
		err = fmt.Errorf("redisdriver: %d values from a script, want at least %d", len(reply), s.answer)
	}
	return reply, err
}
