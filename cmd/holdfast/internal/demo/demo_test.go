//go:build unix

package demo

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
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
	return clitest.Command(t, s, append([]string{"demo", "--duration", "40s"}, args...)...).InGroup().Start()
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
	code := finish(p, turns)
	require.NotEqual(t, exit.Violation, code, "FOUL: the demo found violations")
	require.Equal(t, 0, code)
	text := p.Stdout.String()
	assert.Zero(t, number(t, text, `(?m)^ violations (\d+):`), "FOUL")
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
	assert.NotRegexp(t, `(?m)^ *[\d.]+ s  [12┄━ ]{0,4}[3-9]`, p.Stdout.String())
}

// Three lines for the beginning, one for the end, and one each second at most, however late.
func TestDemoLogIsShort(t *testing.T) {
	t.Parallel()
	p := startDemo(t, nil)
	require.Equal(t, 0, finish(p, some))
	running, _, _ := strings.Cut(p.Stdout.String(), "\n\n")
	lines := strings.Split(running, "\n")
	took := number(t, lines[len(lines)-1], `^ *(\d+)\.\d\d s `)
	assert.LessOrEqual(t, len(lines), 3+(took+1)+1)
	assert.NotContains(t, running, "\x1b")
}

// texts counts how often a client sends a script as a text, since the server did not know it.
type texts struct{ n int }

func (h *texts) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *texts) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "eval" {
			h.n++
		}
		return next(ctx, cmd)
	}
}

func (h *texts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestEmbeddedRedisHasCompiledTheScriptsBeforeTheDemoBegins(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		d := &demo{kind: k, limit: 3, lock: "x", address: &store.Address{Prefix: "demo"}}
		closeStore, err := d.openStore(t.Context())
		require.NoError(t, err)
		t.Cleanup(closeStore)
		s, err := d.address.Open(t.Context())
		require.NoError(t, err)
		t.Cleanup(s.Close)
		sent := &texts{}
		s.Redis.AddHook(sent)
		locks := holdfast.Open(s.Driver)
		lease, err := k.open(locks, d.lock, d.limit)(t.Context(), 1)
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, locks.Close())
		require.Zero(t, sent.n, k.name)
	}
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
	redistest.SoakOnly(t)
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

// Else a process that ends while it has the lock, or while it is given it, would be taken for one
// that has nothing, and the rest of what it told for a turn without a beginning.
func TestEndOfAProcessComesAfterAllThatItTold(t *testing.T) {
	t.Parallel()
	const lines = 1000 // which a pipe has room for
	d := &demo{}
	require.NoError(t, d.hire([]*exec.Cmd{exec.Command("sh", "-c", fmt.Sprintf(`yes '{"Worker":1,"Asked":1}' | head -n %d`, lines))}))
	clitest.Eventually(t, func() bool { return syscall.Kill(d.crew[0].pid, 0) == syscall.ESRCH }, "the parent has seen the end")
	var told []end
	for e := range d.told {
		told = append(told, e.End)
	}
	require.Len(t, told, lines+1)
	require.Equal(t, gone, told[lines])
	require.NotContains(t, told[:lines], gone)
}
