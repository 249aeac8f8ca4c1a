package demo

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

var escape = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// scene is a demo after 30 s with a process that holds, one that waits, one that is
// idle and one that was killed.
func scene(k *kind) *demo {
	const fence = 1795272102423653
	var turns []turn
	for i := range int64(1000) { // of 1 and 2, each of whom asks before the other lets go
		turns = append(turns, turn{int(i%2) + 1, 1, fence + i, 29*i + 1, 29*i + 3, 29*i + 31, ""})
	}
	turns = append(turns, turn{4, 1, fence + 1000, 29_031, 29_034, 0, ""}, turn{4, 0, 0, 0, 0, 29_040, gone},
		turn{1, 1, fence + 1001, 29_960, 29_980, 0, ""}, turn{2, 1, 0, 29_990, 0, 0, ""})
	d := heard(k, 4, 1, turns...)
	d.victim = 4
	return d
}

func TestPictureFitsTheTerminal(t *testing.T) {
	defer func() { colour = false }()
	colour = true
	for _, k := range kinds {
		d := scene(k)
		for width := 80; width <= 240; width += 5 {
			a := d.tally()
			a.lost = 1
			text := d.picture(30_100*ms, width) + d.summary(a, verdict{}, 30*time.Second, 500)
			assert.LessOrEqual(t, strings.Count(text, "\n"), d.workers+pictureLines)
			assert.Contains(t, text, "\x1b")
			for line := range strings.Lines(escape.ReplaceAllString(text, "")) {
				assert.LessOrEqual(t, utf8.RuneCountInString(line), width, "%q", line)
			}
		}
	}
}

func TestPictureShowsWhoHoldsAndWhoWaits(t *testing.T) {
	text := scene(mutex).picture(30_100*ms, 80)
	for _, want := range []string{
		" 1 4194301 █ HOLDS  120 ms",
		" 2 4194302 ┄ waits  110 ms",
		" 3 4194303   idle  ",
		" 4 4194304 × ended ",
		"…102424654", // the end of the fence
		"30.1 of 1m0s",
	} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, text, "\x1b")
}

func TestSummarySaysWhatWasMeasuredAndFound(t *testing.T) {
	var turns []turn
	for i := range int64(100) {
		turns = append(turns, turn{int(i%2) + 1, 1, i + 1, 1000 * i, 1000*i + 100 - i, 1000*i + 200, ""})
	}
	d := heard(mutex, 2, 1, turns[1:]...)
	text := d.summary(d.tally(), verdict{}, time.Minute, 99)
	assert.Contains(t, text, "p50 50.0 ms  p99 99.0 ms  max 99.0 ms  99, from ask to held")
	assert.Contains(t, text, "fairness 1.000")
	assert.Contains(t, text, "violations 0: one holder at a time, fences increase\n            the file counts 99 of 99")
	text = d.summary(d.tally(), verdict{2, 1, 0, 1}, time.Minute, 98)
	assert.Contains(t, text, "VIOLATIONS 4: 2 turns overlap, 1 fence does not increase, 1 count is wrong")

	assert.InDelta(t, 0.25, fairness([]int{0, 0, 7, 0}), 1e-9)
	assert.Zero(t, fairness([]int{0, 0}))
}

func TestSummarySaysThatNobodyHadATurn(t *testing.T) {
	v := newView(heard(mutex, 2, 1))
	assert.ErrorContains(t, v.end(time.Second, 0, false), "nobody had a turn")
	assert.NoError(t, v.end(time.Second, 0, true), "that was cut")
}

// Within 10 ms a worker lets go and another takes over: that is no overlap, and must not look like one.
func TestChartShowsOneMomentPerColumn(t *testing.T) {
	d := heard(mutex, 2, 1, turn{1, 1, 1, 10, 11, 43, ""}, turn{2, 1, 2, 12, 44, 68, ""})
	times := moments(109*ms, 8)
	assert.Equal(t, []int64{10 * ms, 20 * ms, 30 * ms, 40 * ms, 50 * ms, 60 * ms, 70 * ms, 80 * ms}, times)
	assert.Equal(t, "┄███     ", d.chart(d.crew[0], times))
	assert.Equal(t, " ┄┄┄██   ", d.chart(d.crew[1], times))
}

func TestChartShowsThatReadersWaitBehindAWriter(t *testing.T) {
	d := heard(rwmutex, 3, alone, turn{1, 1, 1, 5, 6, 45, ""}, turn{2, alone, 2, 15, 46, 65, ""}, turn{3, 1, 3, 25, 66, 75, ""})
	times := moments(109*ms, 8)
	assert.Equal(t, "▒▒▒▒     ", d.chart(d.crew[0], times))
	assert.Equal(t, " ━━━██   ", d.chart(d.crew[1], times))
	assert.Equal(t, "  ┄┄┄┄▒  ", d.chart(d.crew[2], times))
	assert.Contains(t, d.line(40*ms), "  ▒━┄ ")
}

func TestChartShowsThePermitsInUse(t *testing.T) {
	d := heard(semaphore, 3, 3, turn{1, 1, 1, 5, 6, 45, ""}, turn{2, 2, 2, 15, 16, 65, ""}, turn{3, 3, 3, 25, 66, 0, ""})
	times := moments(109*ms, 8)
	assert.Equal(t, "1111     ", d.chart(d.crew[0], times))
	assert.Equal(t, " 22222   ", d.chart(d.crew[1], times))
	assert.Equal(t, "  ━━━━33 ", d.chart(d.crew[2], times))
	assert.Equal(t, "    in use, of 3 permits     13332233", d.inUse(times))
	assert.Contains(t, d.line(40*ms), "  12━ ")

	defer func() { colour = false }()
	colour, d.limit = true, 2
	assert.Contains(t, d.inUse(times), paint(red, "3"))
}

func TestLinesOfALongDemoAreFew(t *testing.T) {
	d := heard(mutex, 1, 1)
	d.duration = time.Hour
	assert.Equal(t, 90*time.Second, (&view{demo: d}).every())
}
