package locks

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestUnlockAsksOnATerminal(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	m := clitest.Held(t, s, "asked")
	c := clitest.Command(t, s, "unlock", "asked", "--force").OnTerminal(80, 24)
	c.AwaitOutput(`The rwmutex "asked" is held by .*\r\nTake it away\? \[y/N\] `)
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
	c.AwaitOutput(`\x1b\[1A.*rwmutex "drawn": held`)
	c.Types(clitest.CtrlC)
	require.Equal(t, 0, c.Wait())
}

func TestWatchShowsOnATerminalHowOldTheStateIs(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	c := clitest.Command(t, s, "inspect", "--watch", "drawn").OnTerminal(100, 24)
	c.AwaitOutput(`nobody holds "drawn"`)
	s.Kill()
	c.AwaitOutput(`\x1b\[1A.*As it was \d+s ago: .*Redis at .*; trying again\S*\s+nobody holds "drawn"`)
	s.Restart()
	clitest.Held(t, s, "drawn")
	c.AwaitOutput(`\x1b\[2A.*rwmutex "drawn": held`)
	c.Types(clitest.CtrlC)
	require.Equal(t, 0, c.Wait())
}
