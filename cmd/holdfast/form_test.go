//go:build unix

package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// oldForm is a call of the command on locks of that form.
func oldForm(t *testing.T, s *redistest.Server, form string, args ...string) *clitest.Process {
	t.Helper()
	p := clitest.Command(t, nil, args...)
	p.Cmd.Env = append(p.Cmd.Env, store.URLEnv+"="+form+"+"+clitest.URL(s), store.PrefixEnv+"=")
	return p
}

// takenByOthers has another program hold the lock "orders:42" of each form, as that one does.
var takenByOthers = map[string]func(*testing.T, *redis.Client){
	"setnx": func(t *testing.T, rdb *redis.Client) {
		require.NoError(t, rdb.Do(t.Context(), "SET", "orders:42", "web-3", "NX", "PX", 1000_000).Err())
	},
	"getset": func(t *testing.T, rdb *redis.Client) {
		require.NoError(t, rdb.SetNX(t.Context(), "orders:42", time.Now().Add(1000*time.Second).UnixMilli(), 0).Err())
	},
	"redisson": func(t *testing.T, rdb *redis.Client) {
		require.NoError(t, rdb.HSet(t.Context(), "orders:42", "8743c9c0:37", 2).Err())
		require.NoError(t, rdb.PExpire(t.Context(), "orders:42", 1000*time.Second).Err())
	},
}

func TestOldFormsAreListedInspectedAndWaitedFor(t *testing.T) {
	t.Parallel()
	for form, take := range takenByOthers {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			s := redistest.Real(t)
			rdb := s.Client(t)
			take(t, rdb)
			require.NoError(t, rdb.RPush(t.Context(), "orders:43", "no lock").Err())
			who := map[string]string{"setnx": `web-3`, "getset": `\d{13}`, "redisson": `8743c9c0:37, 2 times`}[form]

			p := oldForm(t, s, form, "ls", "orders:")
			require.Equal(t, 0, p.Run(), p.Stderr.String())
			require.Regexp(t, `^NAME .*\norders:42  mutex  `+who+`  +-     (?:99\d|1000)\.\ds  -      0\n$`, p.Stdout.String())
			p = oldForm(t, s, form, "ls", "other:")
			require.Equal(t, 0, p.Run())
			require.Empty(t, p.Stdout.String())
			p = oldForm(t, s, form, "ls", "--prefix", "orders:")
			require.Equal(t, 0, p.Run())
			require.Contains(t, p.Stdout.String(), "\n42 ")

			p = oldForm(t, s, form, "inspect", "orders:42")
			require.Equal(t, 0, p.Run())
			require.Regexp(t, `^mutex "orders:42": held, 0 wait\n.*\n  `+who+`  +-      -     (?:99\d|1000)\.\ds  -\n$`, p.Stdout.String())
			p = oldForm(t, s, form, "inspect", "orders:42", "--json")
			require.Equal(t, 0, p.Run())
			require.NotContains(t, p.Stdout.String(), "since")
			p = oldForm(t, s, form, "inspect", "orders:44")
			require.Equal(t, exit.Failure, p.Run())

			p = oldForm(t, s, form, "run", "--lock", "orders:42", "-n", "--", "true")
			require.Equal(t, exit.NotAcquired, p.Run())
			require.Regexp(t, `^holdfast: "orders:42" is held by `+strings.TrimSuffix(who, ", 2 times"), p.Stderr.String())
			p = oldForm(t, s, form, "run", "--lock", "orders:44", "--", "true")
			require.Equal(t, 0, p.Run(), p.Stderr.String())
			p = oldForm(t, s, form, "run", "--lock", "orders:44", "--shared", "--", "true")
			require.Equal(t, form == "redisson", p.Run() == 0)

			p = oldForm(t, s, form, "unlock", "orders:42", "--force", "--yes")
			require.Equal(t, form == "redisson", p.Run() == 0)
			require.Equal(t, form != "redisson", rdb.Exists(t.Context(), "orders:42").Val() == 1)
		})
	}
}

func TestLeaseWithoutAnEndIsShownAsSuch(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	require.NoError(t, s.Client(t).SetNX(t.Context(), "a", "a\x1btoken", 0).Err())
	p := oldForm(t, s, "setnx", "ls")
	require.Equal(t, 0, p.Run())
	require.Contains(t, p.Stdout.String(), `  "a\x1btoken"  -     no end  -  `)
	p = oldForm(t, s, "setnx", "inspect", "a", "--json")
	require.Equal(t, 0, p.Run())
	var lock holdfast.Info
	require.NoError(t, json.Unmarshal([]byte(p.Stdout.String()), &lock))
	require.EqualValues(t, math.MaxInt64, lock.Holders[0].TimeLeft)
}

func TestDoctorJudgesOldForms(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	admin := s.Client(t)
	for form := range takenByOthers {
		p := oldForm(t, s, form, "doctor")
		assert.Equal(t, 0, p.Run(), p.Stdout.String())
		assert.Contains(t, p.Stdout.String(), "0 failures, 2 warnings")
		assert.Contains(t, p.Stdout.String(), "\nwarn  form ")
		assert.Regexp(t, `\nok    lock +taken in `, p.Stdout.String())

		// The rights that it asks for suffice, and it notices those that are missing.
		rights := append([]any{"ACL", "SETUSER", form, "reset", "on", ">pw", "~*", "&*"}, "+info", "+config|get")
		for _, command := range append(store.Forms[form].Rights, "subscribe", "unsubscribe", "publish", "time") {
			rights = append(rights, "+"+command)
		}
		require.NoError(t, admin.Do(t.Context(), rights...).Err())
		as := func() *clitest.Process {
			p := clitest.Command(t, nil, "doctor", "--store", form+"+redis://"+form+":pw@"+s.Addr())
			p.Run()
			return p
		}
		out := as().Stdout.String()
		assert.Contains(t, out, "0 failures, 3 warnings")
		assert.Contains(t, out, "+scan is missing: only holdfast ls needs it")
		require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", form, "-del", "-get", "-pexpire").Err())
		assert.Contains(t, as().Stdout.String(), "+pexpire is missing: locks do not work")
		require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", form, "+pexpire", "+del", "+get", "resetkeys", "~app:*").Err())
		assert.Contains(t, as().Stdout.String(), "~"+store.Forms[form].Beside+"* is missing: locks do not work")
	}
}

func TestOnlyARedisCanHaveOldForms(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"setnx+etcd://u:secret@h:2379":   "only the URL of a Redis can follow setnx+",
		"setnx+getset+redis://localhost": "only the URL of a Redis can follow setnx+",
		"getset+redis://:secret/x@h":     "--store is not a URL",
		"redlock+redis://localhost":      "want a URL that begins with",
	} {
		p := clitest.Command(t, nil, "ls", "--store", url)
		assert.Equal(t, exit.Usage, p.Run(), url)
		assert.Contains(t, p.Stderr.String(), want)
		assert.NotContains(t, p.Stderr.String(), "secret")
	}
}

func TestOldFormsHaveNoFence(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	for form := range takenByOthers {
		p := oldForm(t, s, form, "run", "--lock", "free", "--", "sh", "-c", `echo "fence '$HOLDFAST_FENCE'"`)
		p.Cmd.Env = append(p.Cmd.Env, "HOLDFAST_FENCE=7") // of one around it
		assert.Equal(t, 0, p.Run(), p.Stderr.String())
		assert.Equal(t, "fence ''\n", p.Stdout.String(), "FOUL: %s", form)
	}
}
