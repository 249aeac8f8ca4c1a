//go:build unix

package guard

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestScriptOfTheHelpRunsNoStepWithoutTheLock(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	_, text, found := strings.Cut(Acquire().Description, "   #!")
	require.True(t, found)
	text, _, found = strings.Cut("#!"+text, "\n\n")
	require.True(t, found)
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\n   ", "\n"), "--wait 5m", "--wait 2")
	run := func() (code int, steps string) {
		cmd := shellOf(t, s, text)
		for _, step := range []string{"step-one.sh", "step-two.sh"} {
			require.NoError(t, os.WriteFile(filepath.Join(cmd.Dir, step), []byte("#!/bin/sh\necho $0 >>steps\n"), 0o755))
		}
		_ = cmd.Run() // the exit code is in ProcessState
		b, _ := os.ReadFile(filepath.Join(cmd.Dir, "steps"))
		return cmd.ProcessState.ExitCode(), string(b)
	}
	code, steps := run()
	assert.Equal(t, 0, code)
	assert.Equal(t, "./step-one.sh\n./step-two.sh\n", steps)
	rw := clitest.Held(t, s, "deploy") // so it was released
	code, steps = run()
	assert.Equal(t, exit.NotAcquired, code)
	assert.Empty(t, steps)
	assert.Len(t, clitest.Inspected(t, rw).Holders, 1)
}

func TestTokenThatIsMissingIsNotAwaited(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	token := acquired(t, s, "deploy")
	for _, verb := range []string{"renew", "release"} {
		for name, p := range map[string]*clitest.Process{
			"nothing":           clitest.Command(t, s, verb),
			"empty environment": by(t, s, "", verb),
			"blank environment": by(t, s, " \r\n", verb),
			"empty argument":    by(t, s, token, verb, ""),
		} {
			stdin, open, err := os.Pipe()
			require.NoError(t, err)
			p.Cmd.Stdin = stdin
			assert.Equal(t, exit.Usage, p.Run(), "%s: %s", verb, name)
			assert.Contains(t, p.Stderr.String(), "where is the token?")
			require.NoError(t, open.Close())
			require.NoError(t, stdin.Close())
		}
		assert.Equal(t, exit.Usage, by(t, s, token, verb, "-").Run(), "%s: empty input", verb)
	}
	assert.Len(t, clitest.Inspected(t, clitest.LocksOf(t, s).RWMutex("deploy")).Holders, 1)
}

func TestTokenMayHaveTheLineEndOfAFile(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	token := acquired(t, s, " a\nb") // white space elsewhere stays
	for _, end := range []string{"", "\n", "\r\n", " \t\n\n"} {
		assert.Equal(t, 0, by(t, s, token+end, "renew").Run(), "%q", end)
		p := clitest.Command(t, s, "renew", "-")
		p.Cmd.Stdin = strings.NewReader(token + end)
		assert.Equal(t, 0, p.Run(), "%q", end)
	}
}

func TestNameThatItsTokenWouldLoseIsRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	for _, end := range []string{"\n", "\r", " ", "\t", "\u00a0"} {
		p := clitest.Command(t, s, "acquire", "deploy"+end)
		assert.Equal(t, exit.Usage, p.Run(), "%q", end)
		assert.Contains(t, p.Stderr.String(), "ends in white space")
		assert.Empty(t, clitest.Inspected(t, clitest.LocksOf(t, s).RWMutex("deploy"+end)).Holders)
	}
}

func TestAcquireWhoseTokenNobodyGetsLeavesNoLock(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rw := clitest.LocksOf(t, s).RWMutex("deploy")
		for _, flag := range []string{"--json=false", "--json"} {
			r, w, err := os.Pipe()
			require.NoError(t, err)
			require.NoError(t, r.Close())
			p := clitest.Command(t, s, "acquire", "deploy", flag)
			p.Cmd.Stdout = w
			assert.Equal(t, exit.Unavailable, p.Run())
			require.NoError(t, w.Close())
			assert.Regexp(t, `^holdfast: cannot write the token: .*pipe\n$`, p.Stderr.String())
			assert.Empty(t, clitest.Inspected(t, rw).Holders)
		}
		for _, c := range []struct {
			to            string
			code, holders int
		}{
			{"&-", exit.Unavailable, 0},
			{"/dev/null", 0, 1}, // as for a job that runs once in a while
		} {
			p := clitest.Command(t, s, "acquire", "deploy", "-n")
			p.Cmd.Args = append([]string{"sh", "-c", `exec "$@" >` + c.to, "sh", p.Cmd.Path}, p.Cmd.Args[1:]...)
			p.Cmd.Path = "/bin/sh"
			assert.Equal(t, c.code, p.Run(), c.to)
			assert.Len(t, clitest.Inspected(t, rw).Holders, c.holders, c.to)
		}
	})
}
