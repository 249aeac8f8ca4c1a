package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/crew"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestMain(m *testing.M) {
	crew.Enter()
	logging.Disable()
	os.Exit(m.Run())
}

// trial is a short run. The load says only that locks are granted before the first fault: how many a
// machine under the race detector can bear, with other tests beside, is not what is tried.
func trial(t *testing.T, topology string, length time.Duration) plan {
	return plan{topology: topology, length: length, worlds: 1, workers: 3, actors: 6, seed: uint64(time.Now().UnixNano()), load: 1, log: t.Logf}
}

// requireKept skips a run that is void, which is neither good nor bad. The soak counts such lines.
func requireKept(t *testing.T, o *outcome) {
	t.Helper()
	s := o.sum()
	t.Log("\n" + s.table())
	require.Empty(t, s.Broken, "FOUL: a promise was broken")
	if len(s.Void) > 0 {
		t.Skip("void: " + strings.Join(s.Void, "; "))
	}
}

func TestPromisesAreKeptThroughFaults(t *testing.T) {
	redistest.SoakOnly(t)
	for topology, length := range map[string]time.Duration{
		"single":   30 * time.Second,
		"sentinel": 22 * time.Second,
		"cluster":  22 * time.Second,
		"redlock":  28 * time.Second,
	} {
		t.Run(topology, func(t *testing.T) {
			t.Parallel()
			o, err := run(trial(t, topology, length))
			require.NoError(t, err)
			requireKept(t, o)
		})
	}
}

// requireFound runs a trial on one server until all was found that workers with a bug do wrong. It is
// a matter of luck. Only holders that do not yield need a calm to be found, which a busy machine may not have.
func requireFound(t *testing.T, bug, only string, found func(*outcome) []int) {
	redistest.SoakOnly(t)
	t.Parallel()
	all, calms := make([]bool, len(found(&outcome{}))), 0
	for range 5 {
		p := trial(t, "single", 16*time.Second)
		p.sabotage, p.only = bug, only
		o, err := run(p)
		require.NoError(t, err)
		calms += o.calms
		for i, n := range found(o) {
			all[i] = all[i] || n > 0
		}
		if !slices.Contains(all, false) {
			require.NotEmpty(t, o.sum().Broken)
			return
		}
	}
	if bug == neverYield && calms == 0 {
		t.Skip("void: there was no calm in five runs")
	}
	t.Fatalf("found: %v", all)
}

// A holder that was suspended and does not look is what the rig must see.
func TestHoldersThatIgnoreLossesAreFound(t *testing.T) {
	requireFound(t, ignoreLoss, "worker: SIGSTOP", func(o *outcome) []int { return []int{o.overlaps, o.deaf} })
}

func TestReleasesOfTheLocksOfOthersAreFound(t *testing.T) {
	requireFound(t, releaseAnybody, "worker", func(o *outcome) []int { return []int{o.overlaps, o.illegal} })
}

// A thief that is killed excuses whoever holds the lock.
func TestThievesThatDoNotAskTheStoreAreFound(t *testing.T) {
	requireFound(t, forgeTheft, "link: latency", func(o *outcome) []int { return []int{o.third, o.illegal} })
}

func TestHoldersThatDoNotYieldAreFound(t *testing.T) {
	requireFound(t, neverYield, "worker: SIGKILL", func(o *outcome) []int { return []int{o.unheard} })
}

func TestRunWithoutFaultsIsVoid(t *testing.T) {
	o := &outcome{felt: map[string]int{}}
	o.feel(nil)
	require.Equal(t, []string{"no faults"}, o.void)
}

func TestFaultsThatNobodyFeelsMakeARunVoid(t *testing.T) {
	o := &outcome{plan: plan{load: 10}, felt: map[string]int{}}
	for range 3 {
		o.events = append(o.events,
			event{fault: fault{kind: "a", symptoms: []string{broken}}, start: 100, end: 200},
			event{fault: fault{kind: "b", symptoms: []string{broken}}, start: 100 + 10*aftermath, end: 200 + 10*aftermath})
	}
	o.feel([]record{{at: 300, class: broken}, {at: 10*aftermath + 150, class: late}})
	require.Len(t, o.void, 2)
	require.Contains(t, o.void[0], "0 grants/s")
	require.Contains(t, o.void[1], "of this kind: b")
}
