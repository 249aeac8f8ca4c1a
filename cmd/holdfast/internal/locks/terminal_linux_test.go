package locks

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestUnlockAsksOnATerminal(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	m := clitest.Held(t, s, "asked")
	c := clitest.Command(t, s, "unlock", "asked", "--force").OnTerminal(80, 24)
	c.AwaitOutput(`The rwmutex "asked" on Redis at [^ ]+ is held by .*\r\nTake it away\? \[y/N\] `)
	c.Types("\n")
	require.Equal(t, 1, c.Wait())
	require.Len(t, clitest.Inspected(t, m).Holders, 1, "no answer is a no")

	c = clitest.Command(t, s, "unlock", "asked", "--force").OnTerminal(80, 24)
	c.AwaitOutput(`\[y/N\] `)
	c.Types("y\n")
	require.Equal(t, 0, c.Wait())
	require.Empty(t, clitest.Inspected(t, m).Holders)
}

func TestUnlockAsksAgainIfTheHolderHasChanged(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	locks := clitest.LocksOf(t, s)
	first, err := locks.RWMutex("changed", holdfast.WithHolder("first")).TryLease(t.Context())
	require.NoError(t, err)
	c := clitest.Command(t, s, "unlock", "changed", "--force").OnTerminal(80, 24)
	c.AwaitOutput(`\[y/N\] `)
	require.NoError(t, first.Release(t.Context()))
	second, err := locks.RWMutex("changed", holdfast.WithHolder("second")).TryLease(t.Context())
	require.NoError(t, err)
	c.Types("y\n")
	c.AwaitOutput(`That has changed\.`)
	c.Types("n\n")
	require.Equal(t, 1, c.Wait())
	require.NoError(t, second.Release(t.Context()))
}

func TestWatchDrawsAtTheSamePlaceOfATerminal(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	c := clitest.Command(t, s, "inspect", "--watch", "drawn").OnTerminal(80, 24)
	c.AwaitOutput(`nobody holds "drawn"`)
	clitest.Held(t, s, "drawn")
	c.AwaitOutput(`(?s)\x1b\[2A.*Redis at \S+?\x1b.*rwmutex "drawn": held`)
	c.Types(clitest.CtrlC)
	require.Equal(t, 0, c.Wait())
}

func TestWatchShowsOnATerminalHowOldTheStateIs(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	c := clitest.Command(t, s, "inspect", "--watch", "drawn").OnTerminal(100, 24)
	c.AwaitOutput(`nobody holds "drawn"`)
	s.Kill()
	c.AwaitOutput(`(?s)\x1b\[2A.*As it was \d+s ago: .*Redis at .*; trying again.*nobody holds "drawn"`)
	s.Restart()
	clitest.Held(t, s, "drawn")
	c.AwaitOutput(`(?s)\x1b\[3A.*rwmutex "drawn": held`)
	c.Types(clitest.CtrlC)
	require.Equal(t, 0, c.Wait())
}

func TestListOnATerminalHasOneLineForEachHolder(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	long := "invoices:customer-4711:" + strings.Repeat("x", 60) + ":2026-11"
	clitest.Held(t, s, long)
	clitest.Held(t, s, "short")
	c := clitest.Command(t, s, "ls").OnTerminal(80, 24)
	require.Equal(t, 0, c.Wait())
	c.AwaitOutput(`short .*\r\n`)
	lines := strings.Split(strings.TrimSpace(c.Stdout.String()), "\r\n")
	require.Len(t, lines, 3)
	require.Regexp(t, `^invoices:\S*…\S*:2026-11  rwmutex  `, lines[1])
	for _, line := range lines {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 80, line)
	}

	p := clitest.Command(t, s, "ls")
	require.Equal(t, 0, p.Run())
	require.Contains(t, p.Stdout.String(), long, "programs read it whole")
}

func TestWatchedListIsDrawnAtTheSamePlaceOfATerminal(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	c := clitest.Command(t, s, "ls", "--watch").OnTerminal(80, 24)
	c.AwaitOutput(`no locks on Redis`)
	long := "invoices:customer-4711:" + strings.Repeat("x", 60) + ":2026-11"
	clitest.Held(t, s, long)
	start(t, s, program{"web-1", "a", "b"}, program{"web-2", "b", "a"})
	c.AwaitOutput(`(?s)\x1b\[1A.*NAME +KIND.*a  .* 1, circle\x1b.*b  .* 1, circle\x1b.*\S+…\S+:2026-11  rwmutex  `)
	c.AwaitOutput(`(?s)\x1b\[4A\x1b`)
	c.Types(clitest.CtrlC)
	require.Equal(t, 0, c.Wait())
	for line := range strings.SplitSeq(regexp.MustCompile(`\x1b\[\??\d*[A-Za-z]`).ReplaceAllString(c.Stdout.String(), ""), "\r\n") {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.Trim(line, "\r")), 80, line)
	}
}

func TestListFitsANarrowTerminal(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	start(t, s, program{"web-1.example.org:4711", "accounts:4711", "accounts:4712"}, program{"web-2.example.org:4711", "accounts:4712", "accounts:4711"})
	for columns, head := range map[uint16]string{
		100: "NAME KIND HOLDER HELD LEFT FENCE WAIT",
		65:  "NAME KIND HOLDER HELD LEFT WAIT",
		40:  "NAME HOLDER WAIT",
		30:  "NAME HOLDER WAIT",
	} {
		for _, args := range [][]string{{"ls"}, {"ls", "--watch"}} {
			c := clitest.Command(t, s, args...).OnTerminal(columns, 24)
			c.AwaitOutput(`(?s)WAIT.*circle.*circle`)
			if len(args) > 1 {
				c.Types(clitest.CtrlC)
			}
			require.Equal(t, 0, c.Wait())
			text := strings.ReplaceAll(regexp.MustCompile(`\x1b\[\??\d*[A-Za-z]`).ReplaceAllString(c.Stdout.String(), ""), "\r", "")
			require.Contains(t, strings.Join(strings.Fields(text), " "), head)
			for line := range strings.SplitSeq(text, "\n") {
				require.LessOrEqual(t, utf8.RuneCountInString(line), int(columns), text)
			}
		}
	}
}
