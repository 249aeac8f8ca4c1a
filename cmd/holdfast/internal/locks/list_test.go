//go:build unix

package locks

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"slices"
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

func TestListShowsEveryHolderAndHowManyWait(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		p := clitest.Command(t, s, "ls")
		require.Equal(t, 0, p.Run())
		assert.Empty(t, p.Stdout.String())
		assert.Equal(t, "no locks\n", p.Stderr.String())

		lined(t, s, "orders:1")
		useOnce(t, s, "orders:idle")
		pool := clitest.LocksOf(t, s).Semaphore("pool", 5)
		for _, n := range []int64{1, 2} {
			l, err := pool.TryLease(t.Context(), n)
			require.NoError(t, err)
			t.Cleanup(func() { _ = l.Release(context.Background()) })
		}

		p = clitest.Command(t, s, "ls")
		require.Equal(t, 0, p.Run())
		lines := strings.Split(strings.TrimSpace(p.Stdout.String()), "\n")
		require.Len(t, lines, 4, "a head, and three holders")
		assert.Regexp(t, `^NAME +KIND +HOLDER +HELD +LEFT +FENCE +WAIT$`, lines[0])
		assert.Regexp(t, `^orders:1 +rwmutex +\S+ +\d+s +\d+\.\ds +\d{16} +1 for \d+s$`, lines[1])
		assert.Regexp(t, `^pool +semaphore 1/5 +\S+ +\d+s +\d+\.\ds +\d{16} +0$`, lines[2])
		assert.Regexp(t, `^pool +semaphore 2/5 +\S+ +\d+s +\d+\.\ds +\d{16} +0$`, lines[3])
		for _, line := range lines {
			assert.LessOrEqual(t, len(line), 80)
		}

		p = clitest.Command(t, s, "ls", "orders:")
		require.Equal(t, 0, p.Run())
		assert.Contains(t, p.Stdout.String(), "orders:1")
		assert.NotContains(t, p.Stdout.String(), "pool")

		p = clitest.Command(t, s, "ls", "--json")
		require.Equal(t, 0, p.Run())
		var got []lockJSON
		for lines := bufio.NewScanner(bytes.NewReader(p.Stdout.Bytes())); lines.Scan(); {
			var l lockJSON
			require.NoError(t, json.Unmarshal(lines.Bytes(), &l))
			got = append(got, l)
		}
		require.Len(t, got, 2)
		assert.Len(t, got[0].Queue, 1)
		assert.EqualValues(t, 5, got[1].Limit)
		assert.Len(t, got[1].Holders, 2)
	})
}

func TestListLeavesOutKeysThatAreNoLocks(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	rdb := s.Client(t)
	base := s.Prefix() + ":2:mutex:"
	require.NoError(t, rdb.Set(t.Context(), base+"foreign string", "x", time.Minute).Err())
	for _, key := range []string{"foreign list", "foreign\x1b"} {
		require.NoError(t, rdb.RPush(t.Context(), base+key, "x").Err())
		require.NoError(t, rdb.Expire(t.Context(), base+key, time.Minute).Err())
	}
	clitest.Held(t, s, "a lock")

	p := clitest.Command(t, s, "ls")
	assert.Equal(t, 0, p.Run())
	assert.Equal(t, 2, strings.Count(p.Stdout.String(), "\n"), "a head, and a lock")
	assert.Contains(t, p.Stdout.String(), "a lock")
	lines := strings.Split(strings.TrimSpace(p.Stderr.String()), "\n")
	slices.Sort(lines)
	assert.Equal(t, []string{
		`holdfast: left out the mutex "foreign list": its key holds something that is no lock (WRONGTYPE)`,
		`holdfast: left out the mutex "foreign string": its key holds something that is no lock (WRONGTYPE)`,
		`holdfast: left out the mutex "foreign\x1b": its key holds something that is no lock (WRONGTYPE)`,
	}, lines)

	p = clitest.Command(t, s, "inspect", "foreign list")
	assert.Equal(t, exit.Unavailable, p.Run())
	assert.Contains(t, p.Stderr.String(), "the key of the lock holds something that is no lock (WRONGTYPE)\n")
}

// Else a lock could be held although the list does not show it.
func TestListFailsIfALockCannotBeLookedAt(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	clitest.Held(t, s, "a lock")
	require.NoError(t, s.Client(t).Do(t.Context(), "ACL", "SETUSER", "lister", "on", ">pw", "~*", "&*", "+scan").Err())
	p := clitest.Command(t, s, "ls", "--store", "redis://lister:pw@"+s.Addr())
	assert.Equal(t, exit.Unavailable, p.Run())
	assert.Contains(t, p.Stderr.String(), "the user lacks a right")
	assert.Empty(t, p.Stdout.String())
}

func TestWatchedListIsWrittenWhenItChanges(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	require.NoError(t, s.Client(t).RPush(t.Context(), s.Prefix()+":2:mutex:foreign", "x").Err())
	p := clitest.Command(t, s, "ls", "--watch", "watched:").Start()
	p.AwaitOutput(`no locks on Redis`)
	locks := clitest.LocksOf(t, s)
	for _, name := range []string{"watched:1", "watched:2"} { // of the same holder, one after the other
		lease, err := locks.Mutex(name).TryLease(t.Context())
		require.NoError(t, err)
		p.AwaitOutput(name)
		require.NoError(t, lease.Release(t.Context()))
	}
	p.AwaitOutput(`(?s)watched:2.*no locks`)
	p.Signal(syscall.SIGINT)
	assert.Equal(t, 0, p.Wait())
	assert.Equal(t, 2, strings.Count(p.Stdout.String(), "watched:"), "only changes are written")
	assert.Empty(t, p.Stderr.String(), "what is no lock is left out in silence")
}
