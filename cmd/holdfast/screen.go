package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// Control sequences of ECMA-48 and DEC terminals, which all terminals know.
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	noWrap     = "\x1b[?7l" // a line that is too long is cut, and stays one line
	wrap       = "\x1b[?7h"
	clearLine  = "\x1b[K"
	clearBelow = "\x1b[J"
)

// screen draws a picture again and again at the same place of a terminal.
type screen struct {
	out     *os.File
	picture *picture
	width   int
	lines   int // how many the last drawing has, with the cursor below them
}

func newScreen(out *os.File, p *picture) *screen {
	_, _ = out.WriteString(hideCursor)
	return &screen{out: out, picture: p}
}

func (*screen) every() time.Duration { return 100 * time.Millisecond }

func (s *screen) show(l *ledger, now int64) {
	width, _, ok := sizeOf(s.out)
	if !ok || width == 0 {
		width = 80
	}
	var b strings.Builder
	b.WriteString(noWrap)
	if s.lines > 0 && width == s.width {
		fmt.Fprintf(&b, "\r\x1b[%dA", s.lines)
	}
	// After a change of width nobody knows where the old lines are: draw below.
	s.width = width
	lines := s.picture.draw(l, now, width)
	for _, line := range lines {
		b.WriteString(line + clearLine + "\r\n")
	}
	b.WriteString(clearBelow + wrap)
	s.lines = len(lines)
	_, _ = s.out.WriteString(b.String()) // one write, so that nothing flickers
}

func (s *screen) close() { _, _ = s.out.WriteString(showCursor) }
