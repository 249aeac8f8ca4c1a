//go:build unix

package redistest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func init() {
	redistest.RegisterChild("echo", func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			fmt.Println(os.Getenv("GREETING"), in.Text())
		}
	})
	redistest.RegisterChild("exit 3", func() {
		fmt.Fprintln(os.Stderr, "I am unwell")
		os.Exit(3)
	})
	redistest.RegisterChild("chatter", func() {
		for i := range 20_000 {
			fmt.Println("line", i)
		}
	})
	redistest.RegisterChild("owner of a server", func() {
		// A testing.T outside a test is enough for what Real does when all is well.
		s := redistest.Real(&orphan{})
		fmt.Println(s.Addr())
		select {}
	})
}

// orphan is the testing.TB of a process that will run no cleanup.
type orphan struct{ testing.T }

func (*orphan) Cleanup(func())            {}
func (*orphan) Name() string              { return "orphan" }
func (*orphan) Helper()                   {}
func (*orphan) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

func TestChildTalksAndListens(t *testing.T) {
	p := redistest.Child(t, "echo", "GREETING=hello")
	_, err := fmt.Fprintln(p.Stdin(), "world")
	require.NoError(t, err)
	assert.Equal(t, "hello world", <-p.Lines())
	require.NoError(t, p.Stdin().Close())
	require.NoError(t, p.Wait())
	_, more := <-p.Lines()
	assert.False(t, more)
	assert.ErrorIs(t, p.Signal(syscall.SIGTERM), os.ErrProcessDone)
}

func TestChildIsKilledEvenWhenFrozen(t *testing.T) {
	p := redistest.Child(t, "echo")
	require.NoError(t, p.Signal(syscall.SIGSTOP))
	p.Kill()
	var exit *exec.ExitError
	require.ErrorAs(t, p.Wait(), &exit)
	assert.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
}

func TestChildTellsHowItEnded(t *testing.T) {
	p := redistest.Child(t, "exit 3")
	var exit *exec.ExitError
	require.ErrorAs(t, p.Wait(), &exit)
	assert.Equal(t, 3, exit.ExitCode())
	assert.Equal(t, "I am unwell\n", p.Stderr())
}

func TestChildDoesNotHangOnLinesThatNobodyReads(t *testing.T) {
	p := redistest.Child(t, "chatter")
	require.NoError(t, p.Wait())
	assert.Equal(t, "line 0", <-p.Lines())
}

func TestServersDieWithAKilledTestBinary(t *testing.T) {
	if !redistest.Installed() {
		redistest.Real(t) // skips or fails as the environment says
	}
	// It cannot delete its files, so they go where this test deletes them.
	p := redistest.Child(t, "owner of a server", "TMPDIR="+t.TempDir())
	addr := <-p.Lines()
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1})
	defer func() { _ = c.Close() }()
	require.NoError(t, c.Ping(t.Context()).Err())
	defer func() {
		if t.Failed() {
			c.ShutdownNoSave(context.Background())
		}
	}()
	p.Kill()
	require.Eventually(t, func() bool {
		return errors.Is(c.Ping(t.Context()).Err(), syscall.ECONNREFUSED)
	}, 10*time.Second, 5*time.Millisecond)
}
