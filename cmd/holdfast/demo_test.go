//go:build unix

package main

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// number finds the first number that pattern captures.
func number(t *testing.T, text, pattern string) int {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	require.NotNil(t, m, "no %s in:\n%s", pattern, text)
	n, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	return n
}

func requireGoodDemo(t *testing.T, p *process) {
	t.Helper()
	require.Equal(t, 0, p.run())
	text := p.stdout.String()
	assert.Zero(t, number(t, text, `(?m)^ violations (\d+):`))
	assert.Positive(t, number(t, text, `(?m)^ hand-over .* (\d+), from release`))
	assert.Positive(t, number(t, text, `(?m)^ (\d+) turns of 4 processes`))
	assert.Empty(t, p.stderr.String())
}

func TestDemoFindsNoViolation(t *testing.T) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		requireGoodDemo(t, command(t, nil, "demo", "--duration", "1s"))
	})
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		requireGoodDemo(t, command(t, s, "demo", "--duration", "1s", "--redis", urlOf(s)))
		s.RequireTTLs(t, s.Prefix())
	})
}

func TestDemoWithoutLockFindsViolations(t *testing.T) {
	t.Parallel()
	p := command(t, nil, "demo", "--duration", "1s", "--no-lock")
	require.Equal(t, exitViolation, p.run())
	text := p.stdout.String()
	assert.Positive(t, number(t, text, `VIOLATIONS (\d+):`))
	assert.Positive(t, number(t, text, `(\d+) turns? overlap`))
	assert.Positive(t, number(t, text, `(\d+) counts? (?:is|are) wrong`))
	assert.Contains(t, p.stderr.String(), "mutual exclusion was violated")
}

func TestDemoLogIsShort(t *testing.T) {
	t.Parallel()
	p := command(t, nil, "demo", "--duration", "1s")
	require.Equal(t, 0, p.run())
	// One line for the beginning, one per 250 ms, one for the end.
	running, _, _ := strings.Cut(p.stdout.String(), "\n\n")
	assert.LessOrEqual(t, strings.Count(running, "\n")+1, 6+2)
	assert.NotContains(t, running, "\x1b")

	assert.Equal(t, 90*time.Second, newLog(&buffer{}, &demo{duration: time.Hour}, 0).every())
}

func TestDemoEndsWithASummaryWhenInterrupted(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			p := command(t, nil, "demo", "--duration", "10s").inGroup().start()
			p.awaitOutput(`[1-9]\d* hand-overs`)
			p.signalGroup(sig)
			assert.Equal(t, 0, p.wait())
			assert.Contains(t, p.stdout.String(), "violations 0:")
			p.awaitGroupGone()
		})
	}
}

func TestDemoWithoutRedisEndsWith69(t *testing.T) {
	t.Parallel()
	p := command(t, nil, "demo", "--redis", nowhere(t))
	assert.Equal(t, exitUnavailable, p.run())
	assert.Contains(t, p.stderr.String(), "no Redis at /")
}

// nowhere is the URL of a Redis that is not there.
func nowhere(t *testing.T) string { return "unix://" + filepath.Join(t.TempDir(), "none") }

func TestSummarySaysThatNobodyHadATurn(t *testing.T) {
	s := &summary{demo: &demo{workers: 2}, ledger: newLedger(2)}
	assert.ErrorContains(t, s.failure(), "nobody had a turn")
	assert.Contains(t, s.String(), "0 turns of 2 processes")
}
