//go:build unix

package demo

import (
	"fmt"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
)

// Else a process that ends while it has the lock, or while it is given it, would be taken for one
// that has nothing, and the rest of what it told for a turn without a beginning.
func TestEndOfAProcessComesAfterAllThatItTold(t *testing.T) {
	t.Parallel()
	const lines = 1000 // which a pipe has room for
	c, err := hire([]*exec.Cmd{exec.Command("sh", "-c", fmt.Sprintf(`yes '{"worker":1,"what":"requested"}' | head -n %d`, lines))})
	require.NoError(t, err)
	pid := c.cmds[0].Process.Pid
	clitest.Eventually(t, func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH }, "the parent has seen the end")
	var told []what
	for e := range c.events {
		told = append(told, e.What)
	}
	require.Len(t, told, lines+1)
	require.Equal(t, gone, told[lines])
	require.NotContains(t, told[:lines], gone)
}
