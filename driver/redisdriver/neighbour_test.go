package redisdriver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/internal/test/seed"
)

// garbage is what a field of a lock may hold after somebody has edited it.
var garbage = []string{"", "none", "-1", "0", "1e400", "99999999999999999999999999", "nan", "0x10", "w", "h", "w9", "h9",
	"a b c", "1 1 1 1", "9 9 9 9", "\n", "token 1 1 1 - 1 1 1 - x", "token 1 1 1 1 1 1 - - x", "\x00\xff"}

// fieldsRead finds the fields that all locks have in a read of many.
var fieldsRead = regexp.MustCompile(`redis\.p?call\('HMGET', KEYS\[n\],([^)]*)\)`)

// Whatever a field of a lock holds, and whichever script meets it, the other locks of the call
// are handled as ever. That is so on Redis; in the Lua of miniredis locks that come after an error
// were seen to fail, too.
func TestGarbageInALockTakesNoNeighbourAlong(t *testing.T) {
	s := redistest.Real(t)
	rdb := s.Client(t)
	scripts, fields := map[string]redisdriver.Script{}, []string{}
	for _, script := range redisdriver.Scripts() {
		scripts[script.Verb] = script
		for _, read := range fieldsRead.FindAllStringSubmatch(script.Text, -1) {
			for _, name := range regexp.MustCompile(`'([a-z]+)'`).FindAllStringSubmatch(read[1], -1) {
				fields = append(fields, name[1])
			}
		}
	}
	slices.Sort(fields)
	fields = slices.Compact(fields)
	require.Greater(t, len(fields), 10)
	fields = append(fields, "h:1", "h:2", "h:3", "w:1", "w:2", "t:first", "t:holder", "t:last", "t:waiter", "t:other")
	words := make([]string, 11) // of a thin lock
	for i := range words {
		words[i] = fmt.Sprint("word ", i)
	}

	good, bad, also := s.Prefix()+"good", s.Prefix()+"bad", s.Prefix()+"also"
	keys := []string{good, bad, also}
	limit, said := 0, ""
	random := rand.New(rand.NewPCG(seed.Of(), 0))
	do := func(step string) []any {
		verb, token, _ := strings.Cut(step, " ")
		request := fmt.Sprint("30000 1 9 1 ", limit, " - client.secret text")
		one := map[string][]any{
			"acquire": {token, "1 0 0", request},
			"beat":    {token, "2 5 1", request},
			"renew":   {token, "30000", "-"},
			"release": {token, "0 -"}, // settled, else there is no short way
		}[verb]
		args := append([]any{s.Prefix(), 60000}, slices.Concat(one, one, one)...)
		replies, err := rdb.Eval(t.Context(), scripts[strings.Replace(verb, "beat", "acquire", 1)].Text, keys, args...).Slice()
		require.NoError(t, err, "%s, limit %d, where %s", step, limit, said)
		return replies
	}
	spoil := func(field, value string) {
		said = fmt.Sprintf("%s is %q", field, value)
		require.NoError(t, rdb.Copy(t.Context(), good, bad, 0, true).Err())
		if word, thin := strings.CutPrefix(field, "word "); thin {
			i, err := strconv.Atoi(word)
			require.NoError(t, err)
			record := strings.Split(rdb.Get(t.Context(), good).Val(), " ")
			record[min(i, len(record)-1)] = value
			require.NoError(t, rdb.Set(t.Context(), bad, strings.Join(record, " "), 0).Err())
			return
		}
		set := []any{field, value}
		if field == "head" { // as if somebody waited there
			set = append(set, "w:"+value, rdb.HGet(t.Context(), good, "w:1").Val())
		}
		require.NoError(t, rdb.HSet(t.Context(), bad, set...).Err())
	}
	for _, c := range []struct {
		limit        int
		fields       []string
		enter, steps []string
		replies      []string
	}{
		{1, words, []string{"acquire holder"}, []string{"renew holder", "release holder", "acquire other"}, []string{"1", "1", `\d+ 1`}},
		{1, fields, []string{"acquire holder", "acquire waiter"}, []string{"renew holder", "beat waiter", "acquire other", "release holder"},
			[]string{`\[1 0 1\]`, "waits .*", "waits .*", "1"}},
		{3, fields, []string{"acquire first", "acquire holder", "acquire last", "acquire waiter"},
			[]string{"renew holder", "beat waiter", "acquire other", "release holder", "release last"}, []string{`\[1 0 1\]`, "waits .*", "waits .*", "1", "1"}},
		{9, fields, []string{"acquire first", "acquire holder", "acquire last"},
			[]string{"renew holder", "acquire other", "release holder", "release first", "release last"}, []string{"1", `\d+ 1`, "1", "1", "1"}},
	} {
		limit = c.limit
		for _, field := range c.fields {
			some := garbage
			if !redistest.Again() {
				some = []string{"none", garbage[random.IntN(len(garbage))]}
			}
			for _, value := range some {
				require.NoError(t, rdb.Del(t.Context(), keys...).Err())
				for _, step := range c.enter {
					do(step)
				}
				for i, step := range c.steps {
					spoil(field, value)
					replies := do(step)
					for _, reply := range []int{0, 2} {
						require.Regexp(t, "^"+c.replies[i]+"$", fmt.Sprint(replies[reply]), "%s, limit %d, where %s", step, limit, said)
					}
				}
			}
		}
	}
}

// What is about the server is not asked again for each of many; what may be about one is.
func TestOnlyWhatMayBeAboutOneLockIsAskedForEach(t *testing.T) {
	for _, text := range []string{"LOADING x", "READONLY x", "MISCONF x", "OOM x", "BUSY x", "NOREPLICAS x", "CLUSTERDOWN x", "MASTERDOWN x",
		"NOSCRIPT x", "NOAUTH x", "WRONGPASS x", "NOPERM this user has no permissions to run the 'evalsha' command"} {
		require.False(t, redisscript.Separable(serverError(text)), text)
	}
	for _, err := range []error{context.DeadlineExceeded, redis.ErrPoolTimeout, redis.ErrClosed, nil} {
		require.False(t, redisscript.Separable(err), "%v", err)
	}
	for _, text := range []string{"NOPERM No permissions to access a key", "WRONGTYPE x", "CROSSSLOT x", "TRYAGAIN x", "MOVED 1 x:1", "ASK 1 x:1",
		"ERR user_script:1: attempt to call nil"} {
		require.True(t, redisscript.Separable(serverError(text)), text)
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
	w := &wire{rtt: 2 * time.Millisecond}
	rdb := s.Client(t, func(o *redis.Options) { o.Username, o.Password, o.PoolSize = "app", "secret", 300 })
	rdb.AddHook(w)
	d := open(t, rdb, s)
	leases := hundredLeases(t, d)
	rule("~"+d.Key(driver.Mutex, "taken[0-8]*"), "~"+d.Key(driver.Mutex, "good*"))
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
		prolong(t, d, rdb, leases[:1])
		prolong(t, d, rdb, leases[1:])
	})
}

type dryRun struct{ through }

func (dryRun) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { return nil }
}
