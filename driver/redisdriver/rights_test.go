package redisdriver_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// documentedRights are those that doc.go lists, keys and channels first.
func documentedRights(t *testing.T) []string {
	doc, err := os.ReadFile("../../doc.go")
	require.NoError(t, err)
	lines := regexp.MustCompile(`(?m)^//\t~holdfast.*\n(?://\t\+.*\n)+`).FindString(string(doc))
	rights := strings.Fields(strings.ReplaceAll(lines, "//\t", ""))
	require.Greater(t, len(rights), 15)
	return rights
}

// withoutThem everything works, as doc.go says: the last four.
var withoutThem = []string{"+publish", "+subscribe", "+unsubscribe", "+pubsub|numsub"}

var (
	commandOfAScript = regexp.MustCompile(`(?:redis\.p?call\(|write\((?:must|true), )'([A-Z]+)'(?:, '([A-Z]+)')?`)
	anyCall          = regexp.MustCompile(`redis\.p?call\(|write\((?:must|true), `)
)

// No script has a command that the documents do not grant, in whatever corner.
func TestDocumentedRightsSufficeForEveryScript(t *testing.T) {
	rights := documentedRights(t)
	for _, s := range redisdriver.Scripts() {
		for text, granted := range map[string][]string{s.Text: rights, s.OnCluster: append([]string{"+restore"}, rights...)} {
			commands := commandOfAScript.FindAllStringSubmatch(text, -1)
			indirect := strings.Count(text, "redis.pcall(...)") + strings.Count(text, "function write(must, ...)")
			require.Equal(t, len(anyCall.FindAllString(text, -1)), len(commands)+indirect, "%s runs a command by another form", s.Verb)
			for _, c := range commands {
				right := "+" + strings.ToLower(c[1])
				if c[1] == "PUBSUB" {
					right += "|" + strings.ToLower(c[2])
				}
				require.Contains(t, granted, right, s.Verb)
			}
		}
	}
}

// user makes a user with these rights, and returns a driver of a client of it.
func user(t *testing.T, s *redistest.Server, name string, rights []string) *redisdriver.Driver {
	t.Helper()
	rule := []any{"acl", "setuser", name, "reset", "on", ">secret"}
	for _, right := range rights {
		rule = append(rule, right)
	}
	require.NoError(t, s.Client(t).Do(t.Context(), rule...).Err())
	d := redisdriver.New(s.Client(t, func(o *redis.Options) { o.Username, o.Password = name, "secret" }))
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// everything does all that can be done to locks, in all forms that they have, and returns the errors. A
// refused command has changed nothing. With crowds it has forms in which scripts write by several
// commands, and does all without memory, too.
func everything(t *testing.T, s *redistest.Server, d *redisdriver.Driver, crowds bool) (errs []error) {
	admin := s.Client(t)
	root := redisdriver.New(s.Client(t)) // makes what d finds
	defer func() { require.NoError(t, root.Close()) }()
	ctx := context.Background()
	lease := func(name, token string) driver.Lease {
		return driver.Lease{Kind: driver.Semaphore, Name: name, Token: token, TTL: time.Minute}
	}
	ask := func(d *redisdriver.Driver, name, token string, n uint64, mods ...func(*driver.Request)) error {
		r := driver.Request{Kind: driver.Semaphore, Name: name, Token: token, Ask: n, TTL: time.Minute, Wait: true,
			Weight: 6, Limit: 6, Wake: func(driver.Grant) {}}
		for _, mod := range mods {
			mod(&r)
		}
		_, err := d.Acquire(ctx, &r)
		return err
	}
	enter := func(name string, weight int64, tokens ...string) {
		for _, token := range tokens {
			require.NoError(t, ask(root, name, token, 1, func(r *driver.Request) { r.Weight = weight }))
		}
	}
	bury := func(name string) {
		l := lease(name, "gone")
		l.Unsettled = true
		require.ErrorIs(t, root.Release(ctx, l), driver.ErrNotHeld)
	}
	forms := map[string]func(name string){
		"absent": func(string) {},
		"free": func(name string) {
			enter(name, 6, "held")
			require.NoError(t, root.Release(ctx, lease(name, "held")))
		},
		"thin":   func(name string) { enter(name, 6, "held") },
		"fat":    func(name string) { enter(name, 6, "held", "waits", "behind") },
		"shared": func(name string) { enter(name, 3, "held", "too"); enter(name, 6, "waits") },
		"buried": bury,
	}
	if crowds {
		forms["pair"] = func(name string) { enter(name, 6, "held", "waits") }
		forms["two"] = func(name string) { enter(name, 3, "held", "too") }
		forms["three"] = func(name string) { enter(name, 2, "held", "too", "also") }
		forms["crowd"] = func(name string) { enter(name, 2, "held", "too", "also", "waits", "behind"); bury(name) }
	}
	does := operations(d, func(_, token string) string { return token })
	does["acquire"] = func(name string) error { return ask(d, name, "new", 1) }
	does["heartbeat"] = func(name string) error { return ask(d, name, "waits", 2) }
	does["full"] = func(name string) error { return ask(d, name, "new", 1, func(r *driver.Request) { r.MaxWaiters = 1 }) }
	does["repeat"] = func(name string) error { return ask(d, name, "held", 2) }
	does["renew"] = func(name string) error { return d.Renew(ctx, []driver.Lease{lease(name, "held")})[0] }
	does["release, unsure"] = func(name string) error { l := lease(name, "held"); l.Unsettled = true; return d.Release(ctx, l) }
	does["inspect"] = func(name string) error { _, err := d.Inspect(ctx, driver.Semaphore, name); return err }
	require.NoError(t, admin.ScriptFlush(ctx).Err())
	memory := []bool{false}
	if crowds { // what writes nothing needs none
		memory = append(memory, true)
	}
	for _, full := range memory {
		for form, make := range forms {
			for what, do := range does {
				name := fmt.Sprint(what, " ", form, " ", full)
				make(name)
				if full {
					require.NoError(t, admin.ConfigSet(ctx, "maxmemory", "1").Err())
				}
				before, until := contents(t, admin, d.Key(driver.Semaphore, name))
				err := do(name)
				after, then := contents(t, admin, d.Key(driver.Semaphore, name))
				if full {
					require.NoError(t, admin.ConfigSet(ctx, "maxmemory", "0").Err())
				}
				if err == nil || errors.Is(err, driver.ErrNotHeld) {
					continue
				}
				assert.Equal(t, before, after, "%s: %v", name, err)
				// A free key that is put back lives as long as it must.
				assert.Greater(t, then, min(until, time.Minute)-30*time.Second, "%s: the key ends early", name)
				if !strings.Contains(err.Error(), "OOM") {
					errs = append(errs, fmt.Errorf("%s: %w", name, err))
				}
			}
		}
	}
	require.NoError(t, admin.FlushAll(ctx).Err())
	return errs
}

// operations are what can be done to a lock that one token holds and another waits for.
func operations(d *redisdriver.Driver, token func(name, token string) string) map[string]func(name string) error {
	ctx := context.Background()
	lease := func(name, who string) driver.Lease {
		return driver.Lease{Kind: driver.Semaphore, Name: name, Token: token(name, who), TTL: time.Minute}
	}
	return map[string]func(name string) error{
		"release":  func(name string) error { return d.Release(ctx, lease(name, "held")) },
		"withdraw": func(name string) error { return d.Release(ctx, lease(name, "waits")) },
		"notice": func(name string) error {
			if _, err := d.Notice(ctx, lease(name, "held")); !errors.Is(err, errors.ErrUnsupported) {
				return err
			}
			return nil // there is no news
		},
		"downgrade": func(name string) error { return d.Downgrade(ctx, lease(name, "held"), 1) },
		"raise":     func(name string) error { _, err := d.RaiseFence(ctx, lease(name, "held"), 1<<52, 1); return err },
		"force":     func(name string) error { return d.ForceRelease(ctx, driver.Semaphore, name) },
		"resize":    func(name string) error { return d.Resize(ctx, name, "resize", 9) },
		"attach": func(name string) error {
			r := &driver.Request{Kind: driver.Semaphore, Name: name, Token: token(name, "new"), Ask: 1, TTL: time.Minute}
			_, err := d.Attach(ctx, lease(name, "held"), r)
			return err
		},
	}
}

// contents returns what is at a key, of the thin form in a field without a name, and for how long.
func contents(t *testing.T, rdb *redis.Client, key string) (map[string]string, time.Duration) {
	t.Helper()
	p := rdb.Pipeline()
	text, fields, left := p.Get(t.Context(), key), p.HGetAll(t.Context(), key), p.PTTL(t.Context(), key)
	_, _ = p.Exec(t.Context()) // one of the two is of the wrong type
	require.NoError(t, left.Err())
	if text.Err() == nil {
		return map[string]string{"": text.Val()}, left.Val()
	}
	require.NoError(t, fields.Err())
	return fields.Val(), left.Val()
}

// Rule 11, with the rights that are documented.
func TestDocumentedRightsSufficeWhereMemoryIsFull(t *testing.T) {
	s := redistest.Real(t)
	require.Empty(t, everything(t, s, user(t, s, "app", documentedRights(t)), true))
}

// A user that may delete and not write takes a lock from nobody, nor half of what is there.
func TestUserThatMayOnlyDeleteChangesNothing(t *testing.T) {
	s := redistest.Real(t)
	rights := slices.DeleteFunc(documentedRights(t), func(r string) bool { return slices.Contains(writing, r) && r != "+del" })
	require.NotEmpty(t, everything(t, s, user(t, s, "app", rights), true))
}

// writing are the rights to change a key.
var writing = []string{"+set", "+del", "+hset", "+hdel", "+pexpireat"}

// A right that is missing is a refusal that says what to do, whichever it is, and leaves the lock as
// it was.
func TestEachMissingRightIsARefusalWithAdvice(t *testing.T) {
	s := redistest.Real(t)
	rights := documentedRights(t)
	for i, right := range rights {
		if right[0] == '&' {
			continue // as without the last four
		}
		t.Run(strings.NewReplacer("~", "", ":", "", "*", "").Replace(right), func(t *testing.T) {
			d := user(t, s, fmt.Sprint("app", i), slices.Concat(rights[:i], rights[i+1:]))
			errs := everything(t, s, d, right == "+pttl" || slices.Contains(writing, right)) // that one is for a full memory
			if slices.Contains(withoutThem, right) {
				require.Empty(t, errs)
				return
			}
			require.NotEmpty(t, errs, "nothing needs %s", right)
			for _, err := range errs {
				require.NotErrorIs(t, err, driver.ErrTransient)
				require.ErrorContains(t, err, "grant the Redis user the rights")
			}
		})
	}
}
