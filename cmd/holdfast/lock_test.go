//go:build unix

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// occupy has a command hold a lock until the returned function is called.
func occupy(t *testing.T, s *redistest.Server, lock string, args ...string) (end func()) {
	t.Helper()
	p := under(t, s, lock, append(args, "--", "sh", "-c", "echo ready; read line")...)
	stdin, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	p.start().awaitOutput("ready")
	return func() {
		t.Helper()
		require.NoError(t, stdin.Close())
		p.wait()
	}
}

// As with flock -s and -x on one file.
func TestSharedAndExclusiveCommandsExcludeEachOther(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		first := occupy(t, s, "rw", "--shared")
		second := occupy(t, s, "rw", "-s") // together with the first

		for _, args := range [][]string{{"-n"}, {"-xn"}, {"--exclusive", "-n"}, {"-e", "--timeout", "500ms"}} {
			p := under(t, s, "rw", append(args, "--", "echo", "ran")...)
			assert.Equal(t, exitNotAcquired, p.run(), "%q", args)
			assert.Contains(t, p.stderr.String(), `"rw" is held by 2: `, "%q", args)
			assert.Equal(t, 2, strings.Count(p.stderr.String(), " (shared)"), "%q", args)
		}
		first()
		second()

		end := occupy(t, s, "rw")
		p := under(t, s, "rw", "-sn", "--", "echo", "ran")
		assert.Equal(t, exitNotAcquired, p.run())
		assert.NotContains(t, p.stderr.String(), "shared")
		end()
		assert.Equal(t, 0, under(t, s, "rw", "-sn", "--", "true").run())
	})
}

func TestCommandThatWaitsToBeAloneHoldsUpSharedOnes(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	end := occupy(t, s, "rw", "-s")
	writer := under(t, s, "rw", "--", "true").start()
	awaitWaiter(t, locksOf(t, s).RWMutex("rw"))

	reader := under(t, s, "rw", "-sn", "--", "true")
	assert.Equal(t, exitNotAcquired, reader.run())
	assert.Contains(t, reader.stderr.String(), "(shared); 1 waits", "why a reader cannot join a reader")
	end()
	assert.Equal(t, 0, writer.wait())
}

func TestAsManyCommandsRunAsThereArePermits(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		try := func(args ...string) *process {
			p := under(t, s, "pool", append(args, "-n", "--", "true")...)
			p.run()
			return p
		}
		code := func(p *process) int { return p.cmd.ProcessState.ExitCode() }

		small := occupy(t, s, "pool", "--limit", "3")
		assert.Equal(t, 0, code(try("--limit", "3", "--permits", "2")))
		assert.Equal(t, exitNotAcquired, code(try("--limit", "3", "--permits", "3")))
		large := occupy(t, s, "pool", "--limit", "3", "--permits", "2")

		p := try("--limit", "3")
		assert.Equal(t, exitNotAcquired, code(p))
		assert.Contains(t, p.stderr.String(), `"pool" is held by 2: `)
		assert.Contains(t, p.stderr.String(), "(2 permits); 3 of 3 permits are in use")

		p = try("--limit", "4")
		assert.Equal(t, exitUsage, code(p))
		assert.Contains(t, p.stderr.String(), "in use with --limit 3, not 4")

		assert.Equal(t, 0, code(try()), "the lock of that name is another one")
		large()
		assert.Equal(t, 0, code(try("--limit", "3", "--permits", "2")))
		small()
		assert.Empty(t, inspected(t, locksOf(t, s).Semaphore("pool", 3)).Holders)
	})
}

func TestEachHolderHasItsOwnFence(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	var fences []string
	for range 2 {
		for _, args := range [][]string{{"-s"}, {"-x"}} {
			p := under(t, s, "fences", append(args, "--", "sh", "-c", `echo $HOLDFAST_FENCE`)...)
			require.Equal(t, 0, p.run())
			fences = append(fences, p.stdout.String())
		}
	}
	assert.IsIncreasing(t, fences) // all have as many digits
}

func TestDescribeSaysWhoAndHowMany(t *testing.T) {
	since := time.Date(2026, 11, 21, 17, 0, 0, 0, time.Local)
	by := func(name string) holdfast.Holder { return holdfast.Holder{Holder: name, Since: since} }
	reader := holdfast.Holder{Holder: "r:1", Since: since, Shared: true}
	two := holdfast.Holder{Holder: "s:1", Since: since, Weight: 2}
	waiters := make([]holdfast.Waiter, 2)
	for want, info := range map[string]holdfast.Info{
		"locked": {},
		"held by a:1 since 2026-11-21 17:00:00; 2 wait":                                {Holders: []holdfast.Holder{by("a:1")}, Queue: waiters},
		"held by r:1 since 2026-11-21 17:00:00 (shared); 1 waits":                      {Holders: []holdfast.Holder{reader}, Queue: waiters[:1]},
		"held by s:1 since 2026-11-21 17:00:00 (2 permits); 2 of 2 permits are in use": {Holders: []holdfast.Holder{two}, Limit: 2},
		"held by 4: r:1 since 2026-11-21 17:00:00 (shared), r:1 since 2026-11-21 17:00:00 (shared), " +
			"r:1 since 2026-11-21 17:00:00 (shared) and 1 other": {Holders: []holdfast.Holder{reader, reader, reader, reader}},
	} {
		assert.Equal(t, want, describe(info, true))
	}
	assert.NotContains(t, describe(holdfast.Info{Holders: []holdfast.Holder{by("a:1")}, Queue: waiters}, false), "wait",
		"who has waited is among them")
}
