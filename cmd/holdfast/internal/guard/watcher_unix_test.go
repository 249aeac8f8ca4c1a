//go:build unix

package guard

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// The commands say who they are after half a second, when the watcher surely knows of them: it is told
// right after they have begun.
func TestCommandEndsIfHoldfastIsKilled(t *testing.T) {
	t.Parallel()
	p := under(t, redistest.Mini(t), "orphan", "--", "sh", "-c",
		`trap 'echo got TERM; exit' TERM; sleep 0.5; echo group $$; while :; do sleep 0.01; done`).Start()
	group := groupOf(t, p)
	p.Signal(syscall.SIGKILL)
	p.AwaitOutput("got TERM")
	clitest.AwaitGroupGone(t, group)
}

// Nobody renews the lease any more, so all that works under it must end.
func TestChildrenOfTheCommandEndIfHoldfastIsKilled(t *testing.T) {
	t.Parallel()
	for _, script := range []string{
		`sleep 0.5; echo group $$; sleep 1000 & sleep 1000`,
		`trap '' TERM; sleep 0.5; echo group $$; sleep 1000 & sleep 1000`, // which takes KILL
	} {
		p := under(t, redistest.Mini(t), "orphans", "--ttl", "2s", "--", "sh", "-c", script).Start()
		group := groupOf(t, p)
		p.Signal(syscall.SIGKILL)
		clitest.AwaitGroupGone(t, group)
	}
}

// What a command leaves behind when it ends is none of ours.
func TestBackgroundProcessOutlivesItsCommand(t *testing.T) {
	t.Parallel()
	late := filepath.Join(t.TempDir(), "late")
	p := under(t, redistest.Mini(t), "left", "--", "sh", "-c", `(sleep 2; touch "$0") > /dev/null 2>&1 & echo group $$`, late)
	require.Equal(t, 0, p.Run())
	clitest.Eventually(t, func() bool { _, err := os.Stat(late); return err == nil }, "the background process ends its work")
}
