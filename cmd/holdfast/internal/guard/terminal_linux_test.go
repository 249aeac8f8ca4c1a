package guard

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// atShell starts holdfast run from a shell with job control. redirect is what the
// shell does to its input and output, if anything.
func atShell(t *testing.T, s *redistest.Server, redirect string, args ...string) *clitest.Console {
	t.Helper()
	p := under(t, s, "terminal", args...)
	self := p.Cmd.Path
	job := append([]string{"sh", "-c", `exec "$@" ` + redirect, "sh", self}, p.Cmd.Args[1:]...)
	p.Cmd.Args = append([]string{self}, job...)
	p.Cmd.Env = append(p.Cmd.Env, clitest.RoleEnv+"=shell")
	return p.OnTerminal(80, 24)
}

func TestCommandHasTheTerminal(t *testing.T) {
	t.Parallel()
	c := atShell(t, redistest.Mini(t), "", "--", "sh", "-c", "stty -echo; echo ready; exec cat")
	c.AwaitOutput("ready")
	c.Types("one\n")
	c.AwaitOutput("one")

	c.Types(clitest.CtrlZ)
	c.AwaitOutput("shell: stopped")
	c.Types("fg\n")
	c.AwaitOutput("shell: continues")
	c.Types("two\n")
	c.AwaitOutput("two")

	c.Types(clitest.CtrlC)
	c.AwaitOutput("shell: exit 130")
}

// Its input is not the terminal, so it starts in the background: a pager behind it
// in a pipeline can have the terminal.
func TestCommandGetsTheTerminalWhenItAsksForIt(t *testing.T) {
	t.Parallel()
	c := atShell(t, redistest.Mini(t), "< /dev/null", "--", "sh", "-c",
		"ps -o stat= -p $$; stty -echo < /dev/tty; ps -o stat= -p $$; read x < /dev/tty; echo got $x")
	c.AwaitOutput(`\b[DRS]N?\r\n`)
	c.AwaitOutput(`\b[DRS]N?\+\r\n`) // the foreground, as ps shows it
	c.Types("one\n")
	c.AwaitOutput("got one")
	c.AwaitOutput("shell: exit 0")
}

func TestKeysReachACommandInTheBackground(t *testing.T) {
	t.Parallel()
	c := atShell(t, redistest.Mini(t), "< /dev/null", "--", "sh", "-c", "echo ready; exec sleep 1000")
	c.AwaitOutput("ready")
	c.Types(clitest.CtrlZ)
	c.AwaitOutput("shell: stopped")
	c.Types("fg\n")
	c.AwaitOutput("shell: continues")
	c.Types(clitest.CtrlC)
	c.AwaitOutput("shell: exit 130")
}

func TestCommandThatWasStoppedForTooLongIsEnded(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	c := atShell(t, s, "", "--ttl", "3s", "--", "sh", "-c", "echo ready; exec cat")
	c.AwaitOutput("ready")
	c.Types(clitest.CtrlZ)
	c.AwaitOutput("shell: stopped")
	m := clitest.LocksOf(t, s).RWMutex("terminal")
	clitest.Eventually(t, func() bool { return len(clitest.Inspected(t, m).Holders) == 0 }, "the lease ends")
	c.Types("fg\n")
	c.AwaitOutput("shell: continues")
	c.AwaitOutput(`the lease on "terminal" was lost`)
	c.AwaitOutput(fmt.Sprint("shell: exit ", exit.Lost))
}

// Without a shell with job control nobody could continue what is stopped.
func TestStopIsDiscardedWithoutJobControl(t *testing.T) {
	t.Parallel()
	p := under(t, redistest.Mini(t), "terminal", "--", "sh", "-c", "stty -echo; echo ready; exec cat")
	c := p.OnTerminal(80, 24)
	c.AwaitOutput("ready")
	c.Types(clitest.CtrlZ)
	c.Types("one\n")
	c.AwaitOutput("one")
	c.Types(clitest.CtrlC)
	require.Equal(t, exit.Signal+2, c.Wait())
}

func TestRunSaysOnATerminalWhomItWaitsForAndWhenThatChanges(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	m := clitest.LocksOf(t, s).RWMutex("told")
	holder := func() string { return clitest.Inspected(t, m).Holders[0].Holder }
	end := occupy(t, s, "told")
	next := under(t, s, "told", "--", "sh", "-c", "echo ready; read line")
	keyboard, err := next.Cmd.StdinPipe()
	require.NoError(t, err)
	next.Start()
	clitest.AwaitWaiter(t, m)

	c := under(t, s, "told", "--", "true").OnTerminal(100, 24)
	c.AwaitOutput(`holdfast: waiting for "told", held by ` + holder() + " since .*\r\n")
	end()
	next.AwaitOutput("ready")
	c.AwaitOutput(`holdfast: waiting for "told", held by ` + holder() + " since .*\r\n")
	require.NoError(t, keyboard.Close())
	next.Wait()
	require.Equal(t, 0, c.Wait())
	c.AwaitOutput(`holdfast: got "told" after \d+s\r\n`)
	require.Equal(t, 3, strings.Count(c.Stdout.String(), "\n"), "only changes are told")

	quiet := under(t, s, "free", "--", "true").OnTerminal(100, 24)
	require.Equal(t, 0, quiet.Wait())
	require.Empty(t, quiet.Stdout.String())
}

// Nobody said yes to taking the lock from somebody else.
