package main

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
func scene() (*picture, *ledger, int64) {
	l := newLedger(4)
	for i, m := range l.members {
		m.pid = 4194301 + i // as long as they get
	}
	const fence = 1795272102423653
	// Turns of 1 and 2, each of whom asks before the other lets go.
	l.apply(event{2, requested, 1 * ms, 0})
	l.apply(event{2, acquired, 2 * ms, fence})
	for i := range int64(1000) {
		id, at := int(i%2)+1, 29*(i+1)*ms
		l.apply(event{id, requested, at, 0})
		l.apply(event{3 - id, released, at + 1*ms, fence + i})
		l.apply(event{id, acquired, at + 2*ms, fence + i + 1})
	}
	l.apply(event{2, released, 29_970 * ms, fence + 1000})
	l.apply(event{1, requested, 29_960 * ms, 0})
	l.apply(event{1, acquired, 29_980 * ms, fence + 1001})
	l.apply(event{2, requested, 29_990 * ms, 0})
	l.apply(event{4, gone, 29_990 * ms, 0})
	d := &demo{server: "embedded Redis, 127.0.0.1:40545", duration: time.Minute, workers: 4}
	return &picture{demo: d, colour: true}, l, 30_100 * ms
}

func TestPictureFitsTheTerminal(t *testing.T) {
	p, l, now := scene()
	for width := 80; width <= 240; width++ {
		lines := p.draw(l, now, width)
		assert.LessOrEqual(t, len(lines), p.demo.workers+pictureLines)
		for _, line := range lines {
			plain := escape.ReplaceAllString(line, "")
			assert.Less(t, utf8.RuneCountInString(plain), width, "%q", plain)
		}
	}
}

func TestPictureShowsWhoHoldsAndWhoWaits(t *testing.T) {
	p, l, now := scene()
	p.colour = false
	text := strings.Join(p.draw(l, now, 80), "\n")
	for _, want := range []string{
		" 1 4194301 █ HOLDS  120 ms",
		" 2 4194302 ┄ waits  110 ms",
		" 3 4194303   idle  ",
		" 4 4194304 × ended ",
		"…102424654", // the end of the fence
		"0 violations",
		"30.1 of 1m0s",
	} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, text, "\x1b")
}

func TestPictureTellsOfViolations(t *testing.T) {
	p, l, now := scene()
	l.apply(event{2, acquired, 29_995 * ms, 1})
	l.apply(event{2, released, 30_000 * ms, 1})
	l.apply(event{1, released, 30_000 * ms, 2})
	text := strings.Join(p.draw(l, now, 80), "\n")
	assert.Contains(t, text, p.paint(red, "2 violations")) // an overlap, and a fence of 1
}

func TestChartShowsOneMomentPerColumn(t *testing.T) {
	p := &picture{}
	l := newLedger(2)
	// Within 10 ms worker 1 lets go and worker 2 takes over: that is no overlap, and
	// must not look like one.
	for _, e := range []event{
		{1, requested, 10 * ms, 0}, {1, acquired, 11 * ms, 1}, {2, requested, 12 * ms, 0},
		{1, released, 43 * ms, 1}, {2, acquired, 44 * ms, 2}, {2, released, 68 * ms, 2},
	} {
		l.apply(e)
	}
	times := moments(109*ms, 8)
	assert.Equal(t, []int64{80 * ms, 70 * ms, 60 * ms, 50 * ms, 40 * ms, 30 * ms, 20 * ms, 10 * ms}, times)
	assert.Equal(t, "┄███     ", p.chart(l.members[0], times))
	assert.Equal(t, " ┄┄┄██   ", p.chart(l.members[1], times))
}
