package demo

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/term"
)

// screen draws a picture again and again at the same place of a terminal.
type screen struct {
	out     *os.File
	picture *picture
	width   int
	lines   int // how many the last drawing has, with the cursor below them
}

func newScreen(out *os.File, p *picture) *screen {
	_, _ = out.WriteString(term.HideCursor)
	return &screen{out: out, picture: p}
}

func (*screen) every() time.Duration { return 100 * time.Millisecond }

func (s *screen) show(l *ledger, now int64) {
	width, _, ok := term.Size(s.out)
	if !ok || width == 0 {
		width = 80
	}
	var b strings.Builder
	b.WriteString(term.NoWrap)
	if s.lines > 0 && width == s.width {
		fmt.Fprintf(&b, "\r\x1b[%dA", s.lines)
	}
	// After a change of width nobody knows where the old lines are: draw below.
	s.width = width
	lines := s.picture.draw(l, now, width)
	for _, line := range lines {
		b.WriteString(line + term.ClearLine + "\r\n")
	}
	b.WriteString(term.ClearBelow + term.Wrap)
	s.lines = len(lines)
	_, _ = s.out.WriteString(b.String()) // one write, so that nothing flickers
}

func (s *screen) close() { _, _ = s.out.WriteString(term.ShowCursor) }
