package guard

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// adoptEnv makes a holdfast the parent of all below it that lose theirs, as pid 1 is.
const adoptEnv = "HOLDFAST_TEST_ADOPTS"

func init() {
	if os.Getenv(adoptEnv) != "" {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			panic(err)
		}
	}
}

// zombies is how many children of p have ended and were not asked for.
func zombies(t *testing.T, p *clitest.Process) (n int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, path := range all {
		text, _ := os.ReadFile(path)
		// pid (name) state parent, and the name can be anything
		if strings.HasPrefix(string(text[strings.LastIndexByte(string(text), ')')+1:]), fmt.Sprintf(" Z %d ", p.Cmd.Process.Pid)) {
			n++
		}
	}
	return n
}

func awaitNoZombies(t *testing.T, p *clitest.Process) {
	t.Helper()
	clitest.Eventually(t, func() bool { return zombies(t, p) == 0 }, "orphans that have ended are gone")
}

// In a container without an init, holdfast is pid 1.
func TestOrphansOfTheCommandDoNotPileUp(t *testing.T) {
	t.Parallel()
	adopts := func(p *clitest.Process) { p.Cmd.Env = append(p.Cmd.Env, adoptEnv+"=1") }
	for name, prepare := range map[string]func(*clitest.Process){
		"adopted": adopts,
		"of pid 1": func(p *clitest.Process) {
			p.Cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
			if id := os.Getuid(); id != 0 {
				p.Cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
				p.Cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: id, HostID: id, Size: 1}}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := under(t, redistest.Mini(t), "pile", "--", "sh", "-c",
				`for i in $(seq 60); do (sh -c "sleep 0.0$i; echo -n ." &); done; read line; exit 7`)
			prepare(p)
			stdin, err := p.Cmd.StdinPipe()
			require.NoError(t, err)
			p.Start().AwaitOutput(`\.{60}`)
			awaitNoZombies(t, p)
			require.NoError(t, stdin.Close())
			assert.Equal(t, 7, p.Wait(), "the exit code of the command is its own")
		})
	}

	// What was started before us, and what docker exec leaves behind.
	t.Run("before there is a command", func(t *testing.T) {
		t.Parallel()
		s := redistest.Mini(t)
		m := clitest.Held(t, s, "busy")
		p := under(t, s, "busy", "--", "echo", "ran")
		p.Cmd.Args = append([]string{"sh", "-c", `true & exec 3<&0; (read line <&3; echo ended) & exec "$0" "$@" 3<&-`, p.Cmd.Path}, p.Cmd.Args[1:]...)
		p.Cmd.Path = "/bin/sh"
		stdin, err := p.Cmd.StdinPipe()
		require.NoError(t, err)
		p.Start()
		clitest.AwaitWaiter(t, m)
		awaitNoZombies(t, p)
		require.NoError(t, stdin.Close())
		p.AwaitOutput("ended")
		awaitNoZombies(t, p)
		p.Signal(unix.SIGTERM)
		assert.Equal(t, exit.Signal+int(unix.SIGTERM), p.Wait())
	})

	// Else they would be in its group for all of --grace.
	t.Run("after a loss", func(t *testing.T) {
		t.Parallel()
		s := redistest.Mini(t)
		p := under(t, s, "lost", "--ttl", "3s", "--grace", "1h", "--", "sh", "-c", `sleep 1000 & sleep 1000 & echo group $$; wait`)
		adopts(p)
		groupOf(t, p.Start())
		lose(t, s, "lost")
		assert.Equal(t, exit.Lost, p.Wait())
	})
}
