//go:build unix

package crew_test

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/crew"
)

func TestMain(m *testing.M) {
	crew.Enter()
	os.Exit(m.Run())
}

func init() {
	crew.Register("echo", func() {
		for text := range crew.Orders[string]() {
			crew.Report(os.Getenv("GREETING") + " " + text)
		}
	})
	crew.Register("unwell", func() {
		fmt.Fprintln(os.Stderr, "I am unwell")
		os.Exit(3)
	})
	crew.Register("chatter", func() {
		for i := range 20_000 {
			crew.Report(i)
		}
	})
}

func TestProcessTakesOrdersAndReports(t *testing.T) {
	p := crew.Start(t, "echo", "GREETING=hello")
	p.Tell("world")
	assert.Equal(t, "hello world", crew.Hear[string](p))
	p.Dismiss()
	require.NoError(t, p.Wait())
	_, err := crew.Listen[string](p, nil)
	assert.ErrorIs(t, err, crew.ErrEnded)
}

func TestPausedProcessSaysNothingAndGoesOn(t *testing.T) {
	p := crew.Start(t, "echo")
	p.Tell("a")
	crew.Hear[string](p)
	p.Pause()
	p.Tell("b")
	_, err := crew.Listen[string](p, time.After(50*time.Millisecond))
	require.ErrorIs(t, err, crew.ErrSilent)
	p.Resume()
	assert.Equal(t, " b", crew.Hear[string](p))
}

func TestProcessIsKilledEvenWhenPaused(t *testing.T) {
	p := crew.Start(t, "echo")
	p.Pause()
	p.Kill()
	var exit *exec.ExitError
	require.ErrorAs(t, p.Wait(), &exit)
	assert.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
}

func TestProcessTellsHowItEnded(t *testing.T) {
	p := crew.Start(t, "unwell")
	var exit *exec.ExitError
	require.ErrorAs(t, p.Wait(), &exit)
	assert.Equal(t, 3, exit.ExitCode())
	assert.Equal(t, "I am unwell\n", p.Stderr())
}

func TestProcessDoesNotHangOnReportsThatNobodyHears(t *testing.T) {
	p := crew.Start(t, "chatter")
	require.NoError(t, p.Wait())
	assert.Equal(t, 0, crew.Hear[int](p))
	assert.NotEmpty(t, crew.Said[int](p))
}
