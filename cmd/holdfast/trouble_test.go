//go:build unix

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestEveryCommandSaysInOneLineWhatKeepsItFromItsStore(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	require.NoError(t, s.Client(t).ConfigSet(t.Context(), "requirepass", "secret").Err())
	open := redistest.Real(t)
	for name, c := range map[string]struct{ url, want string }{
		"no Redis":       {"redis://127.0.0.1:1", "no Redis at 127.0.0.1:1: "},
		"no password":    {"redis://" + s.Addr(), "wants a password"},
		"wrong password": {"redis://:wrong@" + s.Addr(), "refuses the user or the password"},
		"no TLS there":   {"rediss://" + s.Addr(), "perhaps it does not speak TLS there"},
		"no such store":  {"http://" + s.Addr(), "want a URL that begins with redis://"},
		"no database 99": {"redis://:secret@" + s.Addr() + "/99", "has no database of that number"},
		"no Cluster":     {"redis+cluster://:secret@" + s.Addr(), "this is a Redis without Cluster: use redis://"},
		"no Sentinel":    {"redis+sentinel://" + open.Addr() + "?master_name=m", "this is no Sentinel: use redis://"},
	} {
		for i, args := range [][]string{
			{"run", "--lock", "a", "--", "true"}, {"doctor"}, {"demo"}, {"ls"}, {"ls", "--watch"}, {"inspect", "a"}, {"inspect", "a", "--watch"},
			{"unlock", "a", "--force", "--yes"},
		} {
			if name != "no Redis" && i > 2 && !redistest.Again() {
				continue // These open their store as run does, and have been seen to tell what comes of it.
			}
			t.Run(name+"/"+strings.Join(args, " "), func(t *testing.T) {
				t.Parallel()
				p := clitest.Command(t, nil, args...)
				p.Cmd.Env = append(p.Cmd.Env, store.URLEnv+"="+c.url)
				if args[0] == "demo" { // it would have a Redis of its own
					p = clitest.Command(t, nil, "demo", "--store", c.url)
				}
				want := exit.Unavailable
				if name == "no such store" {
					want = exit.Usage
				}
				assert.Equal(t, want, p.Run())
				assert.Contains(t, p.Stderr.String(), c.want)
				assert.Equal(t, 1, strings.Count(p.Stderr.String(), "\n"), "%s", &p.Stderr)
				assert.NotContains(t, p.Stderr.String(), "wrong@")
				assert.Empty(t, p.Stdout.String())
			})
		}
	}
}

// As in holdfast ls | head: it ends as other commands do, without a word.
func TestCommandWhosePipeIsBrokenEndsQuietly(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	holder := clitest.Command(t, s, "run", "--lock", "a", "--", "sleep", "600").Start()
	clitest.Eventually(t, func() bool { return clitest.Command(t, s, "inspect", "a").Run() == 0 }, "it is held")
	for _, args := range [][]string{
		{"--help"}, {"ls"}, {"ls", "--json"}, {"inspect", "a"}, {"inspect", "a", "--watch"}, {"doctor"}, {"demo", "--duration", "60s"},
	} {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, r.Close())
		p := clitest.Command(t, s, args...)
		p.Cmd.Stdout = w
		p.Start()
		require.NoError(t, w.Close())
		select {
		case <-p.Exited:
		case <-time.After(clitest.Generous):
			require.Fail(t, "it does not end", "%q", args)
		}
		status := p.Cmd.ProcessState.Sys().(syscall.WaitStatus)
		assert.Equal(t, syscall.SIGPIPE, status.Signal(), "%q: %v", args, p.Cmd.ProcessState)
		assert.Empty(t, p.Stderr.String(), "%q", args)
	}
	holder.Signal(syscall.SIGTERM)
	assert.Equal(t, exit.Signal+int(syscall.SIGTERM), holder.Wait())
}
