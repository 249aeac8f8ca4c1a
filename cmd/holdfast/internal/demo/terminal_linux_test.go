package demo

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/term"
)

func TestDemoDrawsOnATerminal(t *testing.T) {
	t.Parallel()
	c := clitest.Command(t, nil, "demo", "--duration", "40s").OnTerminal(80, 30)
	clitest.Eventually(t, func() bool { return strings.Count(c.Stdout.String(), "mean wait") > 5 }, "drawn again and again")
	c.Types(clitest.CtrlC)
	require.Equal(t, 0, c.Wait())
	c.AwaitOutput("the file counts")
	text := c.Stdout.String()
	require.Contains(t, text, term.HideCursor)
	require.Contains(t, text, term.ShowCursor)
}
