//go:build unix

package demo

import (
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
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

// startDemo starts a demo that lasts until finish, or for long.
func startDemo(t *testing.T, s *redistest.Server, args ...string) *clitest.Process {
	t.Helper()
	return clitest.Command(t, s, append([]string{"demo", "--duration", "20s"}, args...)...).InGroup().Start()
}

// Enough turns. Some of many are of each role: that none of 100 is a writer's happens
// once in 5 billion times.
const (
	some = `[1-9]\d+ turns`
	many = `[1-9]\d\d+ turns`
)

// finish interrupts a demo when its output matches pattern.
func finish(p *clitest.Process, pattern string) (code int) {
	p.T.Helper()
	p.AwaitOutput(pattern)
	p.SignalGroup(syscall.SIGINT)
	return p.Wait()
}

// requireGoodDemos runs demos of all kinds at once.
func requireGoodDemos(t *testing.T, s *redistest.Server, args ...string) {
	t.Helper()
	var running []*clitest.Process
	for _, k := range kinds {
		running = append(running, startDemo(t, s, append(args, "--kind", k.name)...))
	}
	for i, k := range kinds {
		requireGoodDemo(t, running[i], k)
	}
}

func requireGoodDemo(t *testing.T, p *clitest.Process, k *kind) {
	t.Helper()
	turns := some
	if len(k.roles) > 1 {
		turns = many
	}
	require.Equal(t, 0, finish(p, turns))
	text := p.Stdout.String()
	assert.Zero(t, number(t, text, `(?m)^ violations (\d+):`))
	assert.Positive(t, number(t, text, `(?m)^ hand-over .* (\d+), from release`))
	assert.Positive(t, number(t, text, `(?m)^ (\d+) turns of 4 processes`))
	for _, r := range k.roles {
		assert.Positive(t, number(t, text, `(?m)^ `+r.wait+` .* (\d+), from ask`))
	}
	assert.Empty(t, p.Stderr.String())
}

func TestDemoFindsNoViolation(t *testing.T) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) { requireGoodDemos(t, nil) })
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		requireGoodDemos(t, s, "--redis", clitest.URL(s))
		s.RequireTTLs(t, s.Prefix())
	})
}

// Each kind of evidence must find something when there is something to be found.
func TestDemoWithoutLockFindsViolations(t *testing.T) {
	t.Parallel()
	const overlaps, counts = `(\d+) turns? overlap`, `(\d+) counts? (?:is|are) wrong`
	evidence := map[string][]string{
		"mutex":     {overlaps, counts},
		"rwmutex":   {overlaps, counts, `(\d+) reads? saw a change`},
		"semaphore": {`(\d+) turns? exceeds? the limit`},
	}
	running := map[string]*clitest.Process{}
	for kind := range evidence {
		running[kind] = startDemo(t, nil, "--kind", kind, "--no-lock")
	}
	for kind, p := range running {
		require.Equal(t, exit.Violation, finish(p, many), kind)
		n := number(t, p.Stdout.String(), `VIOLATIONS (\d+):`)
		for _, pattern := range evidence[kind] {
			assert.Positive(t, number(t, p.Stdout.String(), pattern), kind)
		}
		assert.Equal(t, n, number(t, p.Stderr.String(), `holdfast: (\d+) violations`), kind)
	}
}

func TestDemoTellsWhichKindsThereAre(t *testing.T) {
	t.Parallel()
	p := clitest.Command(t, nil, "demo", "--kind", "nonsense")
	assert.Equal(t, exit.Usage, p.Run())
	assert.Contains(t, p.Stderr.String(), `"nonsense" is not one of: mutex, rwmutex, semaphore`)
}

func TestDemoOfASemaphoreHasTheLimitThatWasAskedFor(t *testing.T) {
	t.Parallel()
	p := startDemo(t, nil, "--kind", "semaphore", "--workers", "5", "--limit", "2")
	require.Equal(t, 0, finish(p, many))
	assert.Positive(t, number(t, p.Stdout.String(), `for more .* (\d+), from ask to held`), "turns with 2 permits")
	assert.NotRegexp(t, `×[3-9] `, p.Stdout.String())
}

func TestDemoLogIsShort(t *testing.T) {
	t.Parallel()
	p := clitest.Command(t, nil, "demo", "--duration", "1s")
	require.Equal(t, 0, p.Run())
	// One line for the beginning, one per 250 ms, one for the end.
	running, _, _ := strings.Cut(p.Stdout.String(), "\n\n")
	assert.LessOrEqual(t, strings.Count(running, "\n")+1, 6+2)
	assert.NotContains(t, running, "\x1b")

	assert.Equal(t, 90*time.Second, newLog(&clitest.Buffer{}, &demo{kind: kindNamed("mutex"), duration: time.Hour}, 0).every())
}

func TestDemoEndsWithASummaryWhenInterrupted(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			p := startDemo(t, nil)
			p.AwaitOutput(`[1-9]\d* hand-overs`)
			p.SignalGroup(sig)
			assert.Equal(t, 0, p.Wait())
			assert.Contains(t, p.Stdout.String(), "violations 0:")
			p.AwaitGroupGone()
		})
	}
}

func TestOthersGoOnAfterAHolderIsKilled(t *testing.T) {
	t.Parallel()
	var running []*clitest.Process
	for _, k := range kinds {
		running = append(running, clitest.Command(t, nil, "demo", "--fault", "--duration", "8s", "--kind", k.name).Start())
	}
	for _, p := range running {
		assert.Equal(t, 0, p.Wait())
		assert.Regexp(t, `(?m)^holder \d was killed; its lease lasts up to 2s$`, p.Stdout.String())
		assert.Regexp(t, `(?m)^ fault +holder \d was killed; the others went on after [\d.]+ m?s$`, p.Stdout.String())
		assert.Contains(t, p.Stdout.String(), "violations 0:")
		assert.NotContains(t, p.Stderr.String(), "killed", "that was no accident")
	}
}

func TestDemoEndsWithWhatToTryNext(t *testing.T) {
	t.Parallel()
	p := startDemo(t, nil, "--kind", "semaphore")
	require.Equal(t, 0, finish(p, some))
	_, next, _ := strings.Cut(p.Stdout.String(), "\n next:")
	tried := regexp.MustCompile(`--\w+ \S+|--fault`).FindAllString(next, -1)
	assert.Equal(t, []string{"--fault", "--kind mutex", "--kind rwmutex", "--store redis://127.0.0.1:6379"}, tried)
	for line := range strings.Lines(next) {
		assert.Less(t, len(line), 80, line)
	}
}

func TestDemoWithoutRedisEndsWith69(t *testing.T) {
	t.Parallel()
	p := clitest.Command(t, nil, "demo", "--redis", clitest.Nowhere(t))
	assert.Equal(t, exit.Unavailable, p.Run())
	assert.Contains(t, p.Stderr.String(), "no Redis at /")
}

func TestSummarySaysThatNobodyHadATurn(t *testing.T) {
	s := newSummary(&demo{kind: kindNamed("mutex"), limit: 1, workers: 2}, newLedger(2, 1), 0)
	assert.ErrorContains(t, s.failure(), "nobody had a turn")
	assert.Contains(t, s.String(), "0 turns of 2 processes")
}
