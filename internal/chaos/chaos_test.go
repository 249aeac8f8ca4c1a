package main

import (
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	runWorker()
	logging.Disable()
	os.Exit(m.Run())
}

// trial is a short run, with a load that a busy machine under the race detector can bear.
func trial(t *testing.T, topology string, length time.Duration) plan {
	return plan{topology: topology, length: length, workers: 3, actors: 6, seed: uint64(time.Now().UnixNano()), load: 5, log: t.Logf}
}

func TestPromisesAreKeptThroughFaults(t *testing.T) {
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
			t.Log("\n" + o.table())
			require.NoError(t, o.err())
		})
	}
}

// A holder that was suspended and does not look is what the rig must see.
func TestHoldersThatIgnoreLossesAreFound(t *testing.T) {
	t.Parallel()
	p := trial(t, "single", 16*time.Second)
	p.sabotage, p.only = ignoreLoss, "worker: SIGSTOP"
	o, err := run(p)
	require.NoError(t, err)
	require.NotZero(t, o.overlaps)
	require.ErrorContains(t, o.err(), "violation")
}

func TestReleasesOfTheLocksOfOthersAreFound(t *testing.T) {
	t.Parallel()
	p := trial(t, "single", 16*time.Second)
	p.sabotage, p.only = releaseAnybody, "worker"
	o, err := run(p)
	require.NoError(t, err)
	require.NotZero(t, o.overlaps)
	require.NotZero(t, o.illegal)
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
