//go:build unix

package main

import (
	"encoding/json"
	"math"
	"slices"
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
	"github.com/holdfast-go/holdfast/internal/test/redistest"
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
		})
	}
}

// What a form does not have is a wrong command line, which no retry mends. Nothing runs then, and nobody
// loses a lock.
func TestWhatAnOldFormDoesNotHaveIsAWrongCommandLine(t *testing.T) {
	t.Parallel()
	all := []string{"setnx", "getset", "redisson"}
	without := all[:2:2] // readers and writers
	table := []struct {
		args []string
		lack []string // the forms that do not have it
		says string
	}{
		{[]string{"run", "--lock", "free", "--", "echo", "ran"}, nil, ""},
		{[]string{"run", "--lock", "free", "--exclusive", "--", "echo", "ran"}, nil, ""},
		{[]string{"run", "--lock", "free", "--kind", "mutex", "--holder", "eve", "--", "echo", "ran"}, nil, ""},
		{[]string{"run", "--lock", "free", "--shared", "--", "echo", "ran"}, without, "has no locks for readers and writers, and so none that are --shared"},
		{[]string{"run", "--lock", "free", "-sn", "--", "echo", "ran"}, without, "has no locks for readers and writers, and so none that are --shared"},
		{[]string{"run", "--lock", "free", "--kind", "rwmutex", "--", "echo", "ran"}, without, "has no locks of --kind rwmutex"},
		{[]string{"run", "--lock", "free", "--limit", "2", "--", "echo", "ran"}, all, "has no semaphores, and so no --limit"},
		{[]string{"run", "--lock", "free", "--limit", "2", "--permits", "2", "-n", "-E", "0", "--", "echo", "ran"}, all, "has no semaphores, and so no --limit"},
		{[]string{"run", "--lock", "free", "--kind", "semaphore", "--limit", "2", "-w", "5", "--", "echo", "ran"}, all, "has no semaphores, and so no --limit"},
		{[]string{"run", "--lock", "orders:42", "--steal", "--", "echo", "ran"}, all, "cannot take a lock from its holder, as --steal does"},
		{[]string{"run", "--lock", "orders:42", "--kind", "rwmutex", "--steal", "--", "echo", "ran"}, all, "cannot take a lock from its holder, as --steal does"},
		{[]string{"acquire", "free", "-n"}, all, "cannot hand a lease from one process to another"},
		{[]string{"acquire", "free", "--shared", "-n"}, all, "cannot hand a lease from one process to another"},
		{[]string{"renew", "semaphore:t:free"}, all, "locks of kind"},
		{[]string{"release", "semaphore:t:free"}, all, "locks of kind"},
		{[]string{"resize", "free", "--limit", "2"}, all, "cannot change the limit of a semaphore"},
		{[]string{"wait", "free"}, nil, ""},
		{[]string{"wait", "free", "--kind", "rwmutex"}, without, "has no locks of --kind rwmutex"},
		{[]string{"wait", "free", "--kind", "semaphore"}, all, "has no locks of --kind semaphore"},
		{[]string{"inspect", "orders:42"}, nil, ""},
		{[]string{"inspect", "orders:42", "--kind", "semaphore"}, all, "has no locks of --kind semaphore"},
		{[]string{"inspect", "orders:42", "--kind", "rwmutex", "--watch"}, without, "has no locks of --kind rwmutex"},
		{[]string{"unlock", "orders:42", "--force", "--yes", "--kind", "semaphore"}, all, "(has no locks of --kind semaphore|cannot take a lock from its holder, as --force does)"},
		{[]string{"unlock", "orders:42", "--force", "--yes"}, without, "cannot take a lock from its holder, as --force does"},
	}
	for form, take := range takenByOthers {
		t.Run(form, func(t *testing.T) {
			if form == "getset" && !redistest.Again() {
				t.Skip("it has what setnx has; HOLDFAST_SOAK=1 runs it")
			}
			t.Parallel()
			s := redistest.Real(t)
			rdb := s.Client(t)
			take(t, rdb)
			for _, of := range table {
				if form == "redisson" && slices.Contains(of.args, "--watch") {
					continue // it would look for ever
				}
				p := oldForm(t, s, form, of.args...)
				if !slices.Contains(of.lack, form) {
					assert.Equal(t, 0, p.Run(), "%q: %s", of.args, &p.Stderr)
					assert.Equal(t, of.args[0] == "run", p.Stdout.String() == "ran\n", "%q", of.args)
					continue
				}
				assert.Equal(t, exit.Usage, p.Run(), "%q: %s", of.args, &p.Stderr)
				assert.Empty(t, p.Stdout.String(), "%q", of.args)
				assert.Regexp(t, `^holdfast: Redis at .*, locks by .*`+of.says+`.*\n$`, p.Stderr.String(), "%q", of.args)
				assert.EqualValues(t, 1, rdb.Exists(t.Context(), "orders:42").Val(), "FOUL: %q took a lock away", of.args)
			}
			assert.Equal(t, form != "redisson", rdb.Exists(t.Context(), "orders:42").Val() == 1, "which the last of them can take away")
		})
	}
}

// The exclusive and the shared lock of a name exclude each other on Redisson, too.
func TestSharedLocksOfRedisson(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	hold := func(args ...string) (end func()) {
		p := oldForm(t, s, "redisson", append(args, "--", "sh", "-c", "echo ready; read line; true")...)
		stdin, err := p.Cmd.StdinPipe()
		require.NoError(t, err)
		p.Start().AwaitOutput("ready")
		return func() {
			require.NoError(t, stdin.Close())
			require.Equal(t, 0, p.Wait(), p.Stderr.String())
		}
	}
	run := []string{"run", "--lock", "rw", "-n"}
	shared, exclusive, mutex := append(run[:4:4], "-s"), append(run[:4:4], "--kind", "rwmutex"), run
	for _, of := range []struct {
		held []string
		code map[*[]string]int
	}{
		{shared, map[*[]string]int{&shared: 0, &exclusive: exit.NotAcquired, &mutex: exit.NotAcquired}},
		{exclusive, map[*[]string]int{&shared: exit.NotAcquired, &exclusive: exit.NotAcquired, &mutex: exit.NotAcquired}},
		{mutex, map[*[]string]int{&shared: exit.Unavailable, &exclusive: exit.Unavailable, &mutex: exit.NotAcquired}},
	} {
		end := hold(of.held...)
		for args, code := range of.code {
			p := oldForm(t, s, "redisson", append(*args, "--", "true")...)
			assert.Equal(t, code, p.Run(), "FOUL: %q while %q: %s", *args, of.held, &p.Stderr)
		}
		end()
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
