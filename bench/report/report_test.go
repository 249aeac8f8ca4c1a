package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/bench"
)

func result(work, contender string, figures map[bench.Figure]float64) bench.Result {
	h := new(bench.Histogram)
	for d := time.Microsecond; d < time.Second; d *= 2 {
		h.Add(d)
	}
	return bench.Result{Work: work, Contender: contender, Turns: 3, Figures: figures, Waits: h, Each: []bench.Turn{{Figures: figures}}}
}

// chapters are results as a run could have had.
func chapters() []chapter {
	w := bench.Work{Name: "Clients/64/hold=0s", Title: "T", About: "A.", Columns: []bench.Figure{bench.Throughput, bench.WaitP99, bench.Jain}}
	return []chapter{{
		Work: w,
		results: []bench.Result{
			result(w.Name, "holdfast", map[bench.Figure]float64{bench.Throughput: 8000, bench.WaitP99: 9_900, bench.Jain: 0.9996}),
			result(w.Name, "redsync", map[bench.Figure]float64{bench.Throughput: 7400, bench.WaitP99: 307_000, bench.Jain: 0.85, bench.Stuck: 0}),
			result(w.Name, "rueidislock", map[bench.Figure]float64{bench.Throughput: 16000, bench.WaitP99: 10, bench.Stuck: 2}),
		},
		absent: []string{"etcd: no etcd in PATH"},
	}}
}

func TestPageHasTablesTargetsAndWhoIsAbsent(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, publish(dir, page{machine: []fact{{"Go", "go1"}}, quick: true, chapters: chapters()}))
	text, err := os.ReadFile(filepath.Join(dir, "RESULTS.md"))
	require.NoError(t, err)
	page := string(text)
	for _, want := range []string{
		"A trial run",
		"| contender   |  ops/s |     p99 |  jain | stuck |\n|-------------|-------:|--------:|------:|------:|\n",
		"| holdfast    |  8,000 | 9.90 ms | 1.000 |     – |\n",
		"| redsync     |  7,400 |  307 ms | 0.850 |     0 |\n",
		"| rueidislock | 16,000 |   10 µs |     – |     2 |\n",
		"Absent: etcd: no etcd in PATH.",
		"| Go ",
		"![64 clients on one lock: how long they wait](waits.svg)",
	} {
		require.Contains(t, page, want)
	}
	// The best other is faster, and those who are stuck are no measure of waits.
	require.Regexp(t, `throughput ÷ that of the best peer +\| +≥ 1 \| +0.50 \| +\*\*no\*\*`, page)
	require.Regexp(t, `throughput ÷ that of the best peer with a Jain index of 0.9 +\| +≥ 1.5 \| +– \| +not measured`, page)
	require.Regexp(t, `p99 wait ÷ that of the best peer +\| +≤ 0.08 \| +0.03 \| +yes`, page)
	require.Regexp(t, `10,000 waiters ÷ with 10 +\| +≤ 1.3 \| +– \| +not measured`, page)
	for _, bad := range []string{"NaN", "Inf", "%!"} {
		require.NotContains(t, page, bad)
	}
}

func TestTablesAreAligned(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(table([][]string{{"a", "ops/s"}, {"µs – here", "1"}}, 1)), "\n")
	require.Len(t, lines, 3)
	for _, l := range lines {
		require.Equal(t, len([]rune(lines[0])), len([]rune(l)), l)
	}
}

func TestFiguresHaveThreeDigitsAndUnits(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 1234567: "1,234,567", -1: "-1", -1234: "-1,234", 0.05: "0.05", 0.00196: "0.0020", -0.0001: "-0.00010"} {
		require.Equal(t, want, number(v))
	}
	for v, want := range map[float64]string{0.03: "30 ns", 1.5: "1.50 µs", 62: "62 µs", 307e3: "307 ms", 2.5e6: "2.50 s"} {
		require.Equal(t, want, duration(v))
	}
}

func TestPlotsAreDrawnWithEveryContenderThatHasResults(t *testing.T) {
	dir := t.TempDir()
	all := chapters()
	for _, name := range []string{"Waiters/10", "Waiters/10000", "Clients/8/hold=0s", "Clients/8/hold=1ms"} {
		all = append(all, chapter{Work: bench.Work{Name: name}, results: []bench.Result{result(name, "holdfast",
			map[bench.Figure]float64{bench.WaitP50: 100, bench.RedisCPU: 7, bench.Throughput: 9})}})
	}
	drawn, err := drawAll(dir, all)
	require.NoError(t, err)
	require.Len(t, drawn, 4)
	for _, d := range drawn {
		svg, err := os.ReadFile(filepath.Join(dir, d.file))
		require.NoError(t, err)
		require.Contains(t, string(svg), ">holdfast<")
		require.NotContains(t, string(svg), "NaN")
	}
	waits, err := os.ReadFile(filepath.Join(dir, "waits.svg"))
	require.NoError(t, err)
	require.Contains(t, string(waits), ">rueidislock<")
	require.NotContains(t, string(waits), ">etcd<")
}

func TestLabelsAreRoundTimes(t *testing.T) {
	for power, unit := range map[float64][]string{1e-6: {"1µs", "2µs", "5µs"}, 1e-5: {"10µs", "20µs", "50µs"}, 1e-2: {"10ms", "20ms", "50ms"}, 1: {"1s", "2s", "5s"}} {
		for i, digit := range []float64{1, 2, 5} {
			require.Equal(t, unit[i], seconds(digit*power))
		}
	}
}

func TestTargetsAreOfWorksThatThereAre(t *testing.T) {
	names := map[string]bool{}
	for _, w := range bench.Works() {
		require.False(t, names[w.Name], "two works called %s", w.Name)
		names[w.Name] = true
	}
	for _, goal := range targets {
		require.True(t, names[goal.work], goal.work)
	}
}

func TestReportRunsFromServerToJSON(t *testing.T) {
	var out, progress bytes.Buffer
	o := options{quick: true, json: true, only: regexp.MustCompile("^Clients/8/hold=1ms$"), redis: os.Getenv("HOLDFAST_REDIS_ADDR")}
	require.NoError(t, run(t.Context(), o, &out, &progress))
	got := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		var r bench.Result
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		require.Equal(t, "Clients/8/hold=1ms", r.Work)
		require.Positive(t, r.Figures[bench.WaitP50])
		got[r.Contender] = true
	}
	require.Subset(t, got, map[string]bool{"holdfast": true, "raw": true, "redsync": true, "redislock": true, "in process": true})
	require.Contains(t, progress.String(), "Clients/8/hold=1ms")
}
