//go:build unix

package guard

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// occupy has a command hold a lock until the returned function is called.
func occupy(t *testing.T, s *redistest.Server, lock string, args ...string) (end func()) {
	t.Helper()
	p := under(t, s, lock, append(args, "--", "sh", "-c", "echo ready; read line")...)
	stdin, err := p.Cmd.StdinPipe()
	require.NoError(t, err)
	p.Start().AwaitOutput("ready")
	return func() {
		t.Helper()
		require.NoError(t, stdin.Close())
		p.Wait()
	}
}

// As with flock -s and -x on one file.
func TestSharedAndExclusiveCommandsExcludeEachOther(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		first := occupy(t, s, "rw", "--shared")
		second := occupy(t, s, "rw", "-s") // together with the first

		for _, args := range [][]string{{"-n"}, {"-xn"}, {"--exclusive", "-n"}, {"-e", "--timeout", "2s"}} {
			p := under(t, s, "rw", append(args, "--", "echo", "ran")...)
			assert.Equal(t, exit.NotAcquired, p.Run(), "%q", args)
			assert.Contains(t, p.Stderr.String(), `"rw" is held by 2: `, "%q", args)
			assert.Equal(t, 2, strings.Count(p.Stderr.String(), " (shared)"), "%q", args)
		}
		first()
		second()

		end := occupy(t, s, "rw")
		p := under(t, s, "rw", "-sn", "--", "echo", "ran")
		assert.Equal(t, exit.NotAcquired, p.Run())
		assert.NotContains(t, p.Stderr.String(), "shared")
		end()
		assert.Equal(t, 0, under(t, s, "rw", "-sn", "--", "true").Run())
	})
}

func TestCommandThatWaitsToBeAloneHoldsUpSharedOnes(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	end := occupy(t, s, "rw", "-s")
	writer := under(t, s, "rw", "--", "true").Start()
	clitest.AwaitWaiter(t, clitest.LocksOf(t, s).RWMutex("rw"))

	reader := under(t, s, "rw", "-sn", "--", "true")
	assert.Equal(t, exit.NotAcquired, reader.Run())
	assert.Contains(t, reader.Stderr.String(), "(shared); 1 waits", "why a reader cannot join a reader")
	end()
	assert.Equal(t, 0, writer.Wait())
}

func TestAsManyCommandsRunAsThereArePermits(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		try := func(args ...string) *clitest.Process {
			p := under(t, s, "pool", append(args, "-n", "--", "true")...)
			p.Run()
			return p
		}
		code := func(p *clitest.Process) int { return p.Cmd.ProcessState.ExitCode() }

		small := occupy(t, s, "pool", "--limit", "3")
		assert.Equal(t, 0, code(try("--limit", "3", "--permits", "2")))
		assert.Equal(t, exit.NotAcquired, code(try("--limit", "3", "--permits", "3")))
		large := occupy(t, s, "pool", "--limit", "3", "--permits", "2")

		p := try("--limit", "3")
		assert.Equal(t, exit.NotAcquired, code(p))
		assert.Contains(t, p.Stderr.String(), `"pool" is held by 2: `)
		assert.Contains(t, p.Stderr.String(), "(2 permits); 3 of 3 permits are in use")

		p = try("--limit", "4")
		assert.Equal(t, exit.Usage, code(p))
		assert.Contains(t, p.Stderr.String(), "in use with --limit 3, not 4")

		assert.Equal(t, 0, code(try()), "the lock of that name is another one")
		large()
		assert.Equal(t, 0, code(try("--limit", "3", "--permits", "2")))
		small()
		assert.Empty(t, clitest.Inspected(t, clitest.LocksOf(t, s).Semaphore("pool", 3)).Holders)
	})
}

// The mutex of a name, the rwmutex and the semaphore do not meet.
func TestCommandTakesTheKindOfLockThatAProgramHolds(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	locks := clitest.LocksOf(t, s)
	lease, err := locks.Mutex("orders:42", holdfast.WithHolder("a program")).TryLease(t.Context())
	require.NoError(t, err)
	p := under(t, s, "orders:42", "--kind", "mutex", "-n", "--", "true")
	require.Equal(t, exit.NotAcquired, p.Run())
	require.Contains(t, p.Stderr.String(), `"orders:42" is held by a program since `)
	for _, other := range [][]string{{"--kind", "rwmutex"}, {}, {"--kind", "semaphore", "--limit", "1"}} {
		require.Equal(t, 0, under(t, s, "orders:42", append(other, "-n", "--", "true")...).Run(), "%q", other)
	}
	require.NoError(t, lease.Release(t.Context()))

	end := occupy(t, s, "orders:42", "--kind", "mutex", "--holder", "repair by eve")
	require.Equal(t, "repair by eve", clitest.Inspected(t, locks.Mutex("orders:42")).Holders[0].Holder)
	_, err = locks.Mutex("orders:42").TryLease(t.Context())
	require.ErrorIs(t, err, holdfast.ErrLocked)
	end()
}

func TestRunRefusesAReplica(t *testing.T) {
	t.Parallel()
	p := under(t, redistest.Real(t).Replica(t), "a", "--", "true")
	require.Equal(t, exit.Unavailable, p.Run())
	require.Regexp(t, `^holdfast: Redis at \S+: this is a replica, which takes no writes: use the master, or redis\+sentinel://.*\n$`, p.Stderr.String())
}
