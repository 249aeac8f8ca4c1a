//go:build unix

package guard

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// acquired takes a lock by holdfast acquire.
func acquired(t *testing.T, s *redistest.Server, args ...string) (token string) {
	t.Helper()
	p := clitest.Command(t, s, append([]string{"acquire"}, args...)...)
	require.Equal(t, 0, p.Run())
	return strings.TrimSuffix(p.Stdout.String(), "\n")
}

// by is a command that gets a token in a way that ps does not show.
func by(t *testing.T, s *redistest.Server, token string, args ...string) *clitest.Process {
	p := clitest.Command(t, s, args...)
	p.Cmd.Env = append(p.Cmd.Env, TokenEnv+"="+token)
	return p
}

func TestLeaseGoesOnBetweenCommands(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rw := clitest.LocksOf(t, s).RWMutex("deploy")
		token := acquired(t, s, "deploy", "--ttl", "1m", "--holder", "CI")
		before := clitest.Inspected(t, rw).Holders[0]
		assert.Equal(t, "CI", before.Holder)
		assert.Greater(t, before.TimeLeft, 30*time.Second)

		assert.Equal(t, exit.NotAcquired, clitest.Command(t, s, "acquire", "deploy", "-n").Run())
		assert.Equal(t, 7, clitest.Command(t, s, "acquire", "deploy", "--wait", "2", "-E", "7").Run())
		require.Equal(t, 0, by(t, s, token, "renew", "--ttl", "1h").Run())
		after := clitest.Inspected(t, rw).Holders[0]
		assert.Greater(t, after.TimeLeft, 50*time.Minute)
		assert.Equal(t, before.Fence, after.Fence)

		p := clitest.Command(t, s, "release", "-")
		p.Cmd.Stdin = strings.NewReader(token + "\n")
		require.Equal(t, 0, p.Run())
		assert.Empty(t, clitest.Inspected(t, rw).Holders)
		for _, verb := range []string{"renew", "release"} {
			p := by(t, s, token, verb)
			assert.Equal(t, exit.Lost, p.Run(), verb)
			assert.Equal(t, "holdfast: the lease on \"deploy\" is over\n", p.Stderr.String())
		}
	})
}

func TestTokenCanBeAnArgument(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	one, two := acquired(t, s, "one", "--kind", "mutex"), acquired(t, s, "two", "--limit", "2", "--permits", "2")
	require.Equal(t, 0, by(t, s, one, "renew", two).Run(), "which comes before the environment")
	p := by(t, s, one, "release", "-")
	p.Cmd.Stdin = strings.NewReader(two)
	require.Equal(t, 0, p.Run(), "and so does -")
	require.Equal(t, 0, clitest.Command(t, s, "release", one).Run())
	for _, args := range [][]string{{"release", "no token"}, {"release", one, two}, {"renew", one, "--ttl", "0"}, {"acquire"}, {"acquire", "a", "b"}} {
		assert.Equal(t, exit.Usage, clitest.Command(t, s, args...).Run(), "%q", args)
	}
}

func TestAcquireTellsProgramsOfTheLease(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	var told struct {
		Token, Name string
		Fence       int64
		Deadline    time.Time
	}
	require.NoError(t, json.Unmarshal([]byte(acquired(t, s, `a "name"`, "--ttl", "1m", "--json")), &told))
	assert.Equal(t, `a "name"`, told.Name)
	assert.InDelta(t, 60, time.Until(told.Deadline).Seconds(), 45)
	locks := clitest.LocksOf(t, s)
	assert.Equal(t, clitest.Inspected(t, locks.RWMutex(`a "name"`)).Holders[0].Fence, told.Fence)

	// A program in Go goes on with it.
	lease, err := locks.Attach(t.Context(), told.Token)
	require.NoError(t, err)
	assert.Equal(t, exit.Lost, by(t, s, told.Token, "renew").Run())
	require.NoError(t, lease.Release(t.Context()))
}

// The script of the documentation.
const script = `#!/usr/bin/env bash
set -euo pipefail
HOLDFAST_TOKEN=$(holdfast acquire deploy --ttl "$1" --wait 30)
export HOLDFAST_TOKEN
trap 'holdfast release' EXIT
echo "$BASHPID" >>"$2"
[ "${3-}" != hang ] || sleep 600
holdfast renew --ttl "$1"
echo done >>"$2"
`

// shellOf returns what runs a script in a directory of its own, with holdfast in its path.
func shellOf(t *testing.T, s *redistest.Server, script string, args ...string) *exec.Cmd {
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	shim := fmt.Sprintf("#!/bin/sh\n%s=holdfast exec '%s' \"$@\"\n", clitest.RoleEnv, self)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "holdfast"), []byte(shim), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "script"), []byte(script), 0o755))
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{filepath.Join(dir, "script")}, args...)...)
	cmd.Env = append(clitest.Command(t, s).Cmd.Env, "PATH="+dir+":"+os.Getenv("PATH"))
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = clitest.Generous
	return cmd
}

// Whoever is killed between acquire and release keeps the others waiting for a TTL.
func TestScriptSurvivesThatItIsKilled(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	steps := filepath.Join(t.TempDir(), "steps")
	rw := clitest.LocksOf(t, s).RWMutex("deploy")
	killed := shellOf(t, s, script, "3", steps, "hang")
	require.NoError(t, killed.Start())
	clitest.Eventually(t, func() bool { b, _ := os.ReadFile(steps); return len(b) > 0 }, "it has the lock")
	require.NoError(t, syscall.Kill(-killed.Process.Pid, syscall.SIGKILL))
	require.Error(t, killed.Wait())
	fence := int64(0)
	if held := clitest.Inspected(t, rw).Holders; len(held) > 0 { // else this machine is slow
		fence = held[0].Fence
	}

	require.NoError(t, shellOf(t, s, script, "60", steps).Run())
	b, err := os.ReadFile(steps)
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(string(b), "done"), "%s", b)
	assert.Empty(t, clitest.Inspected(t, rw).Holders, "released at the end")
	lease, err := rw.TryLease(t.Context())
	require.NoError(t, err)
	assert.Greater(t, lease.Fence(), fence, "FOUL")
	require.NoError(t, lease.Release(t.Context()))
}
