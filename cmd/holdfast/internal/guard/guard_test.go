//go:build unix

package guard

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
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

// under prepares holdfast run with that lock.
func under(t *testing.T, s *redistest.Server, lock string, args ...string) *clitest.Process {
	t.Helper()
	return clitest.Command(t, s, append([]string{"run", "--lock", lock}, args...)...)
}

func TestRunReturnsTheExitCodeOfTheCommand(t *testing.T) {
	t.Parallel()
	notExecutable := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(notExecutable, []byte("#!/bin/sh\n"), 0o600))
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		for _, c := range []struct {
			code int
			argv []string
		}{
			{0, []string{"true"}},
			{1, []string{"false"}},
			{75, []string{"sh", "-c", "exit 75"}},
			{exit.Signal + 9, []string{"sh", "-c", "kill -KILL $$"}},
			{exit.Signal + 15, []string{"sh", "-c", "kill -TERM $$"}},
			{exit.NotFound, []string{"holdfast-has-no-such-command"}},
			{exit.NotFound, []string{"./holdfast-has-no-such-command"}},
			{exit.CannotExecute, []string{notExecutable}},
		} {
			p := under(t, s, "codes", append([]string{"--"}, c.argv...)...)
			assert.Equal(t, c.code, p.Run(), "%q", c.argv)
			ours := c.code == exit.NotFound || c.code == exit.CannotExecute
			assert.Equal(t, ours, p.Stderr.String() != "", "stderr of %q: %s", c.argv, &p.Stderr)
		}
		assert.Empty(t, clitest.Inspected(t, clitest.LocksOf(t, s).RWMutex("codes")).Holders)
	})
}

func TestCommandSeesItsLockAndLargerFenceEachTime(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		var fences []int64
		for _, kind := range []string{"-x", "-s", "-x", "-s"} {
			p := under(t, s, "my lock", kind, "--", "sh", "-c", `echo "$HOLDFAST_LOCK=$HOLDFAST_FENCE"`)
			require.Equal(t, 0, p.Run())
			fence, ok := strings.CutPrefix(strings.TrimSpace(p.Stdout.String()), "my lock=")
			require.True(t, ok)
			n, err := strconv.ParseInt(fence, 10, 64)
			require.NoError(t, err)
			fences = append(fences, n)
		}
		assert.Positive(t, fences[0])
		assert.IsIncreasing(t, fences, "FOUL")
	})
}

func TestCommandGetsItsArgumentsAndInputAsTheyAre(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	p := under(t, s, "args", "--", "printf", `[%s]`, "--", "--help", "", " a  b ", "-n")
	require.Equal(t, 0, p.Run())
	assert.Equal(t, "[--][--help][][ a  b ][-n]", p.Stdout.String())

	p = under(t, s, "args", "--", "cat")
	p.Cmd.Stdin = strings.NewReader("in\x00put")
	require.Equal(t, 0, p.Run())
	assert.Equal(t, "in\x00put", p.Stdout.String())
}

func TestCommandsUnderOneLockRunOneAtATime(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		log := filepath.Join(t.TempDir(), "log")
		var running []*clitest.Process
		for range 5 {
			// Nobody but one can be between its two lines.
			p := under(t, s, "one", "--", "sh", "-c", `echo in >> "$0"; sleep 0.02; echo out >> "$0"`, log)
			running = append(running, p.Start())
		}
		for _, p := range running {
			assert.Equal(t, 0, p.Wait())
		}
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		assert.Equal(t, strings.Repeat("in\nout\n", 5), string(text), "FOUL: two commands ran at once")
	})
}

func TestRunGivesUpWhenTheLockIsHeld(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		m := clitest.Held(t, s, "busy")
		for _, args := range [][]string{{"-n"}, {"--no-wait"}, {"--timeout", "2s"}} {
			p := under(t, s, "busy", append(args, "--", "echo", "ran")...)
			assert.Equal(t, exit.NotAcquired, p.Run(), "%q", args)
			assert.Empty(t, p.Stdout.String(), "%q", args)
			holders := clitest.Inspected(t, m).Holders
			require.Len(t, holders, 1)
			assert.Contains(t, p.Stderr.String(), fmt.Sprintf(`"busy" is held by %s since`, holders[0].Holder), "%q", args)
			assert.Empty(t, clitest.Inspected(t, m).Queue, "%q left a waiter behind", args)
		}
	})
}

func TestSignalEndsTheWaitingAndLeavesNoWaiter(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		m := clitest.Held(t, s, "busy")
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
			p := under(t, s, "busy", "--", "echo", "ran").Start()
			clitest.AwaitWaiter(t, m)
			p.Signal(syscall.SIGUSR1) // ends nothing
			p.Signal(sig)
			assert.Equal(t, exit.Signal+int(sig), p.Wait(), "%v", sig)
			assert.Empty(t, p.Stdout.String(), "%v", sig)
			assert.Empty(t, clitest.Inspected(t, m).Queue, "%v left a waiter behind", sig)
		}
	})
}

func TestSignalsReachTheCommand(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	for name, sig := range map[string]syscall.Signal{
		"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP,
		"QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
	} {
		t.Run(name, func(t *testing.T) {
			// The loop's sleep is in the group as well, so the shell gets to its trap.
			p := under(t, s, name, "--", "sh", "-c",
				`trap 'echo got $0; exit 9' $0; echo ready; while :; do sleep 1; done`, name).Start()
			p.AwaitOutput("ready")
			p.Signal(sig)
			assert.Equal(t, 9, p.Wait())
			assert.Contains(t, p.Stdout.String(), "got "+name)
		})
	}
}

// As where a collector of logs is stuck.
func TestSignalsReachTheCommandThoughNobodyReadsStandardError(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	require.NoError(t, w.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	_, err = w.Write(make([]byte, 1<<20)) // until it is full
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	p := under(t, s, "stuck", "--ttl", "3s", "--grace", "1h", "--", "sh", "-c",
		`exec 2> /dev/null; trap 'echo got TERM' TERM; trap 'exit 9' USR1; echo ready; while :; do sleep 0.1; done`)
	p.Cmd.Stderr = w
	p.Start().AwaitOutput("ready")
	require.NoError(t, w.Close())
	lose(t, s, "stuck")
	p.AwaitOutput("got TERM")
	p.Signal(syscall.SIGTERM)
	p.AwaitOutput("got TERM\ngot TERM")
	p.Signal(syscall.SIGUSR1)
	assert.Equal(t, exit.Lost, p.Wait())
}

// lose takes the lease of a command away behind its back.
func lose(t *testing.T, s *redistest.Server, lock string) {
	t.Helper()
	n, err := s.Client(t).Del(t.Context(), s.Prefix()+":2:rwmutex:"+lock).Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

func TestLostLeaseEndsTheCommand(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		t.Run("with TERM", func(t *testing.T) {
			p := under(t, s, "lost", "--ttl", "3s", "--grace", "1h", "--", "sh", "-c",
				`trap 'echo got TERM; exit 0' TERM; echo ready; while :; do sleep 1; done`).Start()
			p.AwaitOutput("ready")
			lose(t, s, "lost")
			assert.Equal(t, exit.Lost, p.Wait(), "although the command returned 0")
			assert.Contains(t, p.Stdout.String(), "got TERM")
			assert.Regexp(t, `^(Terminated\n)?holdfast: the lease on "lost" was lost: .+; the command gets TERM, and after 1h0m0s KILL\n(Terminated\n)?$`, p.Stderr.String())
		})
		t.Run("with KILL if it ignores TERM", func(t *testing.T) {
			p := under(t, s, "lost", "--ttl", "3s", "--grace", "1s", "--", "sh", "-c",
				`trap 'echo got TERM' TERM; echo group $$; while :; do sleep 0.01; done`).Start()
			group := groupOf(t, p)
			lose(t, s, "lost")
			assert.Equal(t, exit.Lost, p.Wait())
			assert.Contains(t, p.Stdout.String(), "got TERM", "TERM comes before KILL")
			clitest.AwaitGroupGone(t, group)
		})
		t.Run("with KILL at once if it is told to", func(t *testing.T) {
			p := under(t, s, "lost", "--ttl", "3s", "--grace", "1h", "--on-lost", "kill", "--", "sh", "-c",
				`trap 'echo got TERM; exit 0' TERM; echo group $$; while :; do sleep 0.01; done`).Start()
			group := groupOf(t, p)
			lose(t, s, "lost")
			assert.Equal(t, exit.Lost, p.Wait())
			assert.NotContains(t, p.Stdout.String(), "got TERM")
			clitest.AwaitGroupGone(t, group)
		})
		t.Run("unless it is to go on", func(t *testing.T) {
			late := filepath.Join(t.TempDir(), "late")
			p := under(t, s, "lost", "--ttl", "3s", "--on-lost", "ignore", "--", "sh", "-c",
				`trap 'echo got TERM; exit 0' TERM; (sleep 3; touch "$0") > /dev/null 2>&1 & echo group $$; read line; echo done`, late)
			stdin, err := p.Cmd.StdinPipe()
			require.NoError(t, err)
			group := groupOf(t, p.Start())
			lose(t, s, "lost")
			clitest.Eventually(t, func() bool { return strings.Contains(p.Stderr.String(), "goes on without the lock") }, "the loss is told")
			_, err = stdin.Write([]byte("\n"))
			require.NoError(t, err)
			assert.Equal(t, exit.Lost, p.Wait(), "although nothing was done about it")
			assert.Equal(t, fmt.Sprintf("group %d\ndone\n", group), p.Stdout.String())
			clitest.Eventually(t, func() bool { _, err := os.Stat(late); return err == nil }, "what it left in the background goes on, too")
		})
		t.Run("and what it left in its group", func(t *testing.T) {
			p := under(t, s, "lost", "--ttl", "3s", "--grace", "200ms", "--", "sh", "-c",
				`(trap '' TERM; echo group $$; while :; do sleep 0.01; done) & wait`).Start()
			group := groupOf(t, p)
			lose(t, s, "lost")
			assert.Equal(t, exit.Lost, p.Wait())
			clitest.AwaitGroupGone(t, group)
		})
	})
}

// groupOf reads which process group the command of p leads.
func groupOf(t *testing.T, p *clitest.Process) int {
	t.Helper()
	line := p.AwaitOutput(`group \d+\n`)
	group, err := strconv.Atoi(strings.Fields(string(line))[1])
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Kill(-group, syscall.SIGKILL) })
	return group
}

func TestLossThatTheReleaseFindsIsALossToo(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	p := under(t, s, "late", "--ttl", "1h", "--", "sh", "-c", `echo ready; read line`)
	stdin, err := p.Cmd.StdinPipe()
	require.NoError(t, err)
	p.Start().AwaitOutput("ready")
	lose(t, s, "late")
	require.NoError(t, stdin.Close()) // long before the next renewal
	assert.Equal(t, exit.Lost, p.Wait())
	assert.Contains(t, p.Stderr.String(), "before the command ended")
}

func TestExitCodeDoesNotWaitForARedisThatIsGone(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	p := under(t, s, "gone", "--ttl", "1h", "--", "sh", "-c", `echo ready; read line; exit 5`)
	stdin, err := p.Cmd.StdinPipe()
	require.NoError(t, err)
	p.Start().AwaitOutput("ready")
	s.Pause()
	t.Cleanup(s.Resume)
	require.NoError(t, stdin.Close())
	assert.Equal(t, 5, p.Wait(), "long before the lease ends")
	assert.Contains(t, p.Stderr.String(), "stays locked for up to 1h0m0s")
}

func TestTimesOfFlockAreUnderstood(t *testing.T) {
	t.Parallel()
	p := under(t, redistest.Mini(t), "times", "--ttl", "60", "--timeout", "60", "--grace", "0.5", "--", "true")
	assert.Equal(t, 0, p.Run())
}

func TestConflictHasTheExitCodeThatIsAskedFor(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	clitest.Held(t, s, "busy")
	for code, args := range map[int][]string{
		0: {"-n", "-E", "0"},
		1: {"-w", "1.5", "-E", "1"},
		9: {"-w", "1500ms", "--conflict-exit-code", "9"},
	} {
		p := under(t, s, "busy", append(args, "-c", "echo ran")...)
		assert.Equal(t, code, p.Run(), "%q", args)
		assert.Empty(t, p.Stdout.String(), "%q", args)
		assert.Contains(t, p.Stderr.String(), `"busy" is held by `, "%q", args)
	}
	p := under(t, s, "free", "-n", "-E", "9", "-c", `echo "$HOLDFAST_LOCK" | tr a-z A-Z; exit 4`)
	assert.Equal(t, 4, p.Run())
	assert.Equal(t, "FREE\n", p.Stdout.String())
}

func TestVerboseSaysWhomItWaitsForAndWhenThatChanges(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		m := clitest.LocksOf(t, s).RWMutex("told")
		first, err := m.TryLease(t.Context())
		require.NoError(t, err)
		p := under(t, s, "told", "--verbose", "--", "true").Start()
		waiting := `waiting for "told", held by ` + clitest.Inspected(t, m).Holders[0].Holder
		clitest.Eventually(t, func() bool { return strings.Contains(p.Stderr.String(), waiting) }, "it says %s", waiting)
		// When another one has looked, the first has looked twice.
		other := under(t, s, "told", "--verbose", "-s", "--", "true").Start()
		clitest.Eventually(t, func() bool { return strings.Contains(other.Stderr.String(), waiting) }, "the other says %s", waiting)
		require.NoError(t, first.Release(t.Context()))
		require.Equal(t, 0, p.Wait())
		require.Equal(t, 0, other.Wait())
		assert.Contains(t, p.Stderr.String(), `got "told" after `)
		assert.Equal(t, 2, strings.Count(p.Stderr.String(), "\n"), "only changes are told")
	})
	s := redistest.Mini(t)
	p := under(t, s, "free", "--verbose", "--", "true")
	require.Equal(t, 0, p.Run())
	assert.Empty(t, p.Stderr.String())
}

func TestOtherLimitIsAWrongCommandLine(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		lease, err := clitest.LocksOf(t, s).Semaphore("api", 2).TryLease(t.Context(), 1)
		require.NoError(t, err)
		for _, args := range [][]string{{"--limit", "3"}, {"--limit", "3", "-n"}, {"--limit", "3", "--timeout", "20"}, {"--limit", "1", "-n", "-E", "0"}} {
			p := under(t, s, "api", append(args, "--", "echo", "ran")...)
			assert.Equal(t, exit.Usage, p.Run(), "%q", args)
			assert.Empty(t, p.Stdout.String(), "%q", args)
			assert.Equal(t, fmt.Sprintf("holdfast: the semaphore \"api\" is in use with --limit 2, not %s; holdfast resize changes that\n", args[1]), p.Stderr.String(), "%q", args)
		}
		require.NoError(t, lease.Release(t.Context()))
	})
}

// A Semaphore can get another limit while it is in use, which then is in force.
func TestMorePermitsThanAResizedSemaphoreHasAreAWrongCommandLine(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		sem := clitest.LocksOf(t, s).Semaphore("api", 5)
		lease, err := sem.TryLease(t.Context(), 1)
		require.NoError(t, err)
		require.NoError(t, sem.Resize(t.Context(), 2))
		p := under(t, s, "api", "--limit", "5", "--permits", "3", "--", "echo", "ran")
		assert.Equal(t, exit.Usage, p.Run())
		assert.Equal(t, "holdfast: the semaphore \"api\" is in use with --limit 2, too few for --permits 3\n", p.Stderr.String())
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestWarningsOfTheLibraryAreLinesOfTheCommand(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	m := clitest.Held(t, s, "silent")
	p := under(t, s, "silent", "--ttl", "1s", "--timeout", "25s", "--", "true").Start()
	clitest.AwaitWaiter(t, m)
	s.Pause()
	t.Cleanup(s.Resume)
	clitest.Eventually(t, func() bool { return strings.Contains(p.Stderr.String(), "\n") }, "it complains")
	line, _, _ := strings.Cut(p.Stderr.String(), "\n")
	assert.Regexp(t, `^holdfast: still waiting for the store \(op acquire, kind rwmutex, lock silent, waited [0-9.]+s, store Redis at .+, error .+\)$`, line)
	s.Resume()
	p.Signal(syscall.SIGTERM)
	p.Wait()
}
