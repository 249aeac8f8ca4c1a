package demo

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
)

var escape = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// scene is a demo after 30 s with a process that holds, one that waits, one that is
// idle and one that was killed.
func scene() (*picture, *ledger, int64) {
	l := newLedger(4, 1)
	for i, m := range l.members {
		m.pid = 4194301 + i // as long as they get
	}
	const fence = 1795272102423653
	// Turns of 1 and 2, each of whom asks before the other lets go.
	l.apply(event{2, requested, 1 * ms, 0, 1})
	l.apply(event{2, acquired, 2 * ms, fence, 1})
	for i := range int64(1000) {
		id, at := int(i%2)+1, 29*(i+1)*ms
		l.apply(event{id, requested, at, 0, 1})
		l.apply(event{3 - id, released, at + 1*ms, fence + i, 1})
		l.apply(event{id, acquired, at + 2*ms, fence + i + 1, 1})
	}
	l.apply(event{2, released, 29_970 * ms, fence + 1000, 1})
	l.apply(event{1, requested, 29_960 * ms, 0, 1})
	l.apply(event{1, acquired, 29_980 * ms, fence + 1001, 1})
	l.apply(event{2, requested, 29_990 * ms, 0, 1})
	l.apply(event{4, gone, 29_990 * ms, 0, 1})
	d := &demo{kind: kindNamed("mutex"), limit: 1, server: "embedded Redis, 127.0.0.1:40545", duration: time.Minute, workers: 4}
	return &picture{demo: d, colour: true}, l, 30_100 * ms
}

func TestPictureFitsTheTerminal(t *testing.T) {
	p, l, now := scene()
	for _, k := range kinds {
		p.demo.kind = k
		for width := 80; width <= 240; width += 5 {
			lines := p.draw(l, now, width)
			assert.LessOrEqual(t, len(lines), p.demo.workers+pictureLines)
			for _, line := range lines {
				plain := escape.ReplaceAllString(line, "")
				assert.Less(t, utf8.RuneCountInString(plain), width, "%q", plain)
			}
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
	l.apply(event{2, acquired, 29_995 * ms, 1, 1})
	l.apply(event{2, released, 30_000 * ms, 1, 1})
	l.apply(event{1, released, 30_000 * ms, 2, 1})
	text := strings.Join(p.draw(l, now, 80), "\n")
	assert.Contains(t, text, p.paint(red, "2 violations")) // an overlap, and a fence of 1
}

func TestChartShowsOneMomentPerColumn(t *testing.T) {
	p := &picture{demo: &demo{kind: kindNamed("mutex")}}
	l := newLedger(2, 1)
	// Within 10 ms worker 1 lets go and worker 2 takes over: that is no overlap, and
	// must not look like one.
	for _, e := range []event{
		{1, requested, 10 * ms, 0, 1}, {1, acquired, 11 * ms, 1, 1}, {2, requested, 12 * ms, 0, 1},
		{1, released, 43 * ms, 1, 1}, {2, acquired, 44 * ms, 2, 1}, {2, released, 68 * ms, 2, 1},
	} {
		l.apply(e)
	}
	times := moments(109*ms, 8)
	assert.Equal(t, []int64{80 * ms, 70 * ms, 60 * ms, 50 * ms, 40 * ms, 30 * ms, 20 * ms, 10 * ms}, times)
	assert.Equal(t, "┄███     ", p.chart(l.members[0], times))
	assert.Equal(t, " ┄┄┄██   ", p.chart(l.members[1], times))
}

// crowd is a picture of three workers, and what it shows of the last 80 ms.
func crowd(kind string, limit int64, events ...event) (p *picture, l *ledger, times []int64) {
	for i := range events {
		events[i].At *= ms
	}
	return &picture{demo: &demo{kind: kindNamed(kind), limit: limit, workers: 3}}, toldOf(3, limit, events...), moments(109*ms, 8)
}

func TestChartShowsThatReadersWaitBehindAWriter(t *testing.T) {
	p, l, times := crowd("rwmutex", alone,
		event{1, requested, 5, 0, 1}, event{1, acquired, 6, 1, 1}, event{1, released, 45, 1, 1},
		event{2, requested, 15, 0, alone}, event{2, acquired, 46, 2, alone}, event{2, released, 65, 2, alone},
		event{3, requested, 25, 0, 1}, event{3, acquired, 66, 3, 1}, event{3, released, 75, 3, 1},
	)
	assert.Equal(t, "▒▒▒▒     ", p.chart(l.members[0], times))
	assert.Equal(t, " ━━━██   ", p.chart(l.members[1], times))
	assert.Equal(t, "  ┄┄┄┄▒  ", p.chart(l.members[2], times))
}

func TestChartShowsThePermitsInUse(t *testing.T) {
	p, l, times := crowd("semaphore", 3,
		event{1, requested, 5, 0, 1}, event{1, acquired, 6, 1, 1}, event{1, released, 45, 1, 1},
		event{2, requested, 15, 0, 2}, event{2, acquired, 16, 2, 2}, event{2, released, 65, 2, 2},
		event{3, requested, 25, 0, 3}, event{3, acquired, 66, 3, 3},
	)
	assert.Equal(t, "1111     ", p.chart(l.members[0], times))
	assert.Equal(t, " 22222   ", p.chart(l.members[1], times))
	assert.Equal(t, "  ━━━━33 ", p.chart(l.members[2], times))
	assert.Equal(t, "    in use, of 3 permits     13332233", p.inUse(l, times))

	p.colour, l.limit = true, 2
	assert.Contains(t, p.inUse(l, times), p.paint(red, "3"))
}

func TestLogShowsRolesAndPermits(t *testing.T) {
	var out clitest.Buffer
	p, l, _ := crowd("rwmutex", alone,
		event{2, requested, 5, 0, 1}, event{2, acquired, 6, 1, 1}, event{3, requested, 7, 0, alone}, event{1, requested, 8, 0, 1})
	newLog(&out, p.demo, 0).show(l, 10*ms)
	assert.Contains(t, out.String(), "w writes")
	assert.Regexp(t, `holds 2 +waits 3w 1 `, out.String())

	p, l, _ = crowd("semaphore", 3, event{1, requested, 5, 0, 2}, event{1, acquired, 6, 1, 2}, event{2, requested, 7, 0, 3})
	newLog(&out, p.demo, 0).show(l, 10*ms)
	assert.Regexp(t, `holds 1×2 +waits 2×3 `, out.String())
}
