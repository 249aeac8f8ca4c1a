package redisdriver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// garbage is what a field of a lock may hold after somebody has edited it.
var garbage = []string{"", "none", "-1", "0", "1e400", "99999999999999999999999999", "nan", "0x10", "w", "h", "w9", "h9",
	"a b c", "1 1 1 1", "9 9 9 9", "\n", "token 1 1 1 - 1 1 1 1 - x", "token 1 1 1 1 1 1 - - x", "\x00\xff"}

// Whatever a field of a lock holds, and whichever script meets it, the other locks of the call
// are handled as ever. That is so on Redis; in the Lua of miniredis locks that come after an error
// were seen to fail, too.
func TestGarbageInALockTakesNoNeighbourAlong(t *testing.T) {
	func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		scripts := map[string]redisdriver.Script{}
		for _, script := range redisdriver.Scripts() {
			scripts[script.Verb] = script
		}
		wish := "30000 1 1 1 1 - - text"
		arguments := map[string]func(token string) []any{
			"acquire": func(token string) []any { return []any{token, "1 0 0", wish} },
			"beat":    func(token string) []any { return []any{token, "2 5 1", wish} },
			"release": func(token string) []any { return []any{token, "1 -"} },
			"renew":   func(token string) []any { return []any{token, "30000", "-"} },
		}
		call := func(what string, keys []string, tokens ...string) []any {
			args := []any{s.Prefix(), 60000}
			for _, token := range tokens {
				args = append(args, arguments[what](token)...)
			}
			verb := what
			if what == "beat" {
				verb = "acquire"
			}
			replies, err := rdb.Eval(t.Context(), scripts[verb].Text, keys, args...).Slice()
			require.NoError(t, err, "%s of %q", what, keys)
			return replies
		}
		fields := []string{"high", "limit", "resized", "owner", "head", "tail", "birth", "skip", "dead", "life", "longest",
			"shares", "h:1", "h:2", "w:1", "w:2", "t:holder", "t:waiter", "t:other"}
		for i := range redistest.Rounds(400) {
			good, bad, also := fmt.Sprint(s.Prefix(), "good", i), fmt.Sprint(s.Prefix(), "bad", i), fmt.Sprint(s.Prefix(), "also", i)
			keys := []string{good, bad, also}
			call("acquire", keys, "holder", "holder", "holder")
			call("acquire", keys[1:], "waiter", "waiter")
			set := []any{}
			for range 1 + rand.N(3) {
				set = append(set, fields[rand.N(len(fields))], garbage[rand.N(len(garbage))])
			}
			if rand.N(5) == 0 {
				require.NoError(t, rdb.Set(t.Context(), bad, fmt.Sprint(set...), 0).Err())
			} else {
				require.NoError(t, rdb.HSet(t.Context(), bad, set...).Err())
			}
			said := fmt.Sprintf("%q", set)
			call("beat", keys, "other", "waiter", "waiter")
			call("acquire", keys, "other", "other", "other")
			for _, reply := range []int{0, 2} {
				renewed := call("renew", keys, "holder", "holder", "holder")[reply]
				if list, ok := renewed.([]any); ok {
					renewed = list[0]
				}
				require.EqualValues(t, 1, renewed, said)
			}
			released := call("release", keys, "holder", "holder", "holder")
			require.EqualValues(t, 1, released[0], said)
			require.EqualValues(t, 1, released[2], said)
		}
	}(t, redistest.Real(t))
}

// What is about the server is not asked again for each of many; what may be about one is.
func TestOnlyWhatMayBeAboutOneLockIsAskedForEach(t *testing.T) {
	refusal := func(text string) error { return serverError(text) }
	for _, text := range []string{"LOADING x", "READONLY x", "MISCONF x", "OOM x", "BUSY x", "NOREPLICAS x", "CLUSTERDOWN x", "MASTERDOWN x",
		"NOSCRIPT x", "NOAUTH x", "WRONGPASS x", "NOPERM this user has no permissions to run the 'evalsha' command"} {
		require.False(t, redisscript.Separable(refusal(text)), text)
	}
	for _, err := range []error{context.DeadlineExceeded, redis.ErrPoolTimeout, redis.ErrClosed, nil} {
		require.False(t, redisscript.Separable(err), "%v", err)
	}
	for _, text := range []string{"NOPERM No permissions to access a key", "WRONGTYPE x", "CROSSSLOT x", "TRYAGAIN x", "MOVED 1 x:1", "ASK 1 x:1",
		"ERR user_script:1: attempt to call nil"} {
		require.True(t, redisscript.Separable(refusal(text)), text)
	}
	for _, err := range []error{io.EOF, errors.New("a hook is against it")} {
		require.True(t, redisscript.Separable(err), "%v", err)
	}
}

// A user whose rights on one key are taken away keeps all other leases, and locks go on.
func TestForbiddenKeyInASharedCallFailsAlone(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	admin := s.Client(t)
	rule := func(keys ...any) {
		args := append(append([]any{"acl", "setuser", "app", "reset", "on", ">secret"}, keys...), "&*", "+@all")
		require.NoError(t, admin.Do(t.Context(), args...).Err())
	}
	rule("~*")
	w := &wire{}
	rdb := s.Client(t, func(o *redis.Options) { o.Username, o.Password, o.PoolSize = "app", "secret", 300 })
	rdb.AddHook(w)
	d := open(t, rdb, s)
	leases := hundredLeases(t, d)
	rule("~"+d.Key(driver.Mutex, "lease[0-8]*"), "~"+d.Key(driver.Mutex, "good*"))
	for i, err := range d.Renew(t.Context(), leases) {
		if leases[i].Name[5] == '9' {
			require.ErrorContains(t, err, "NOPERM", leases[i].Name)
		} else {
			require.NoError(t, err, leases[i].Name)
		}
	}
}

// A hook that carries no pipeline out, and says that all is well, has not renewed anything; and
// it costs no endless loop.
func TestRenewalThatAHookSwallowsIsAskedForOnceMore(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		d, rdb, _ := watched(t, s)
		leases := hundredLeases(t, d)
		rdb.AddHook(dryRun{})
		for i := range leases {
			leases[i].TTL = time.Hour
		}
		for _, some := range [][]driver.Lease{leases, leases[:1]} {
			requireNone(t, d.Renew(t.Context(), some))
		}
		for _, l := range leases {
			require.Greater(t, rdb.PTTL(t.Context(), d.Key(l.Kind, l.Name)).Val(), 30*time.Minute, l.Name)
		}
	})
}

type dryRun struct{}

func (dryRun) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (dryRun) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (dryRun) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { return nil }
}

type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}
