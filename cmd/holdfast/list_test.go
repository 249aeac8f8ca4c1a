//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestListShowsEveryHolderAndHowManyWait(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		p := command(t, s, "ls")
		require.Equal(t, 0, p.run())
		assert.Empty(t, p.stdout.String())
		assert.Equal(t, "no locks\n", p.stderr.String())

		lined(t, s, "orders:1")
		require.Equal(t, 0, under(t, s, "orders:idle", "--", "true").run())
		pool := locksOf(t, s).Semaphore("pool", 5)
		for _, n := range []int64{1, 2} {
			l, err := pool.TryLease(t.Context(), n)
			require.NoError(t, err)
			t.Cleanup(func() { _ = l.Release(context.Background()) })
		}

		p = command(t, s, "ls")
		require.Equal(t, 0, p.run())
		lines := strings.Split(strings.TrimSpace(p.stdout.String()), "\n")
		require.Len(t, lines, 4, "a head, and three holders")
		assert.Regexp(t, `^NAME +KIND +HOLDER +HELD +LEFT +FENCE +WAIT$`, lines[0])
		assert.Regexp(t, `^orders:1 +rwmutex +\S+ +\d+s +\d+\.\ds +\d{16} +1$`, lines[1])
		assert.Regexp(t, `^pool +semaphore 1/5 +\S+ +\d+s +\d+\.\ds +\d{16} +0$`, lines[2])
		assert.Regexp(t, `^pool +semaphore 2/5 +\S+ +\d+s +\d+\.\ds +\d{16} +0$`, lines[3])
		for _, line := range lines {
			assert.LessOrEqual(t, len(line), 80)
		}

		p = command(t, s, "ls", "orders:")
		require.Equal(t, 0, p.run())
		assert.Contains(t, p.stdout.String(), "orders:1")
		assert.NotContains(t, p.stdout.String(), "pool")

		p = command(t, s, "ls", "--json")
		require.Equal(t, 0, p.run())
		var got []lockJSON
		for lines := bufio.NewScanner(bytes.NewReader(p.stdout.Bytes())); lines.Scan(); {
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

func TestListFindsTheLocksOfAllNodesOfACluster(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t)
	locks := holdfast.New(c.Client(t))
	t.Cleanup(func() { require.NoError(t, locks.Close()) })
	for i := range 20 {
		_, err := locks.Mutex(fmt.Sprint("lock ", i)).TryLease(t.Context())
		require.NoError(t, err)
	}
	url := "redis+cluster://" + c.Nodes[0].Addr() + "?addr=" + c.Nodes[1].Addr()
	p := command(t, nil, "ls", "--store", url)
	require.Equal(t, 0, p.run())
	assert.Equal(t, 21, strings.Count(p.stdout.String(), "\n"))

	assert.Equal(t, 0, command(t, nil, "run", "--store", url, "--lock", "x", "--", "true").run())

	// One node alone does not have all locks.
	for _, args := range [][]string{{"ls"}, {"inspect", "lock 1"}, {"run", "--lock", "lock 1", "--", "true"}} {
		p := command(t, nil, append(args[:1:1], append([]string{"--store", "redis://" + c.Nodes[0].Addr()}, args[1:]...)...)...)
		assert.Equal(t, exitUnavailable, p.run(), "%q", args)
		assert.Contains(t, p.stderr.String(), "this is a node of a Cluster: use redis+cluster://", "%q", args)
	}
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
	held(t, s, "a lock")

	p := command(t, s, "ls")
	assert.Equal(t, 0, p.run())
	assert.Equal(t, 2, strings.Count(p.stdout.String(), "\n"), "a head, and a lock")
	assert.Contains(t, p.stdout.String(), "a lock")
	lines := strings.Split(strings.TrimSpace(p.stderr.String()), "\n")
	slices.Sort(lines)
	assert.Equal(t, []string{
		`holdfast: left out the mutex "foreign list": its key holds something that is no lock (WRONGTYPE)`,
		`holdfast: left out the mutex "foreign string": its key holds something that is no lock (WRONGTYPE)`,
		`holdfast: left out the mutex "foreign\x1b": its key holds something that is no lock (WRONGTYPE)`,
	}, lines)

	p = command(t, s, "inspect", "foreign list")
	assert.Equal(t, exitUnavailable, p.run())
	assert.Contains(t, p.stderr.String(), "the key of the lock holds something that is no lock (WRONGTYPE)\n")
}

// Else a lock could be held although the list does not show it.
func TestListFailsIfALockCannotBeLookedAt(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	held(t, s, "a lock")
	require.NoError(t, s.Client(t).Do(t.Context(), "ACL", "SETUSER", "lister", "on", ">pw", "~*", "&*", "+scan").Err())
	p := command(t, s, "ls", "--store", "redis://lister:pw@"+s.Addr())
	assert.Equal(t, exitUnavailable, p.run())
	assert.Contains(t, p.stderr.String(), "the user lacks a right")
	assert.Empty(t, p.stdout.String())
}
