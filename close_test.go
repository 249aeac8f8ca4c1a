package holdfast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// lines is a log that goroutines write and a test reads.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// alone runs the rest of a test in a process of its own, and returns that which has begun it, with
// its output; nil in the new one.
func alone(t *testing.T) (*exec.Cmd, *lines) {
	const asked = "HOLDFAST_TEST_ALONE"
	if os.Getenv(asked) != "" {
		return nil, nil
	}
	cmd, out := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$"), new(lines)
	cmd.Env = append(os.Environ(), asked+"=1")
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(t, cmd.Start())
	return cmd, out
}

// There is nothing that it could return with. The goroutines stay, so they have a process.
func TestLockOfAClosedClientNeverReturns(t *testing.T) {
	t.Parallel()
	if cmd, out := alone(t); cmd != nil {
		require.NoError(t, cmd.Wait(), out.String())
		require.Contains(t, out.String(), "none has returned")
		return
	}
	defer func() {
		if t.Failed() {
			os.Exit(1)
		}
		fmt.Println("none has returned")
		os.Exit(0)
	}()
	d := memdriver.New()
	log := new(lines)
	c := holdfast.Open(d, holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	other := holdfast.Open(d)
	other.Mutex("x").Lock()
	returned := make(chan string, 8)
	begin := func(what string, lock func()) {
		go func() {
			defer func() { returned <- what }() // also after a panic or Goexit
			lock()
		}()
	}
	begin("Lock in the store's queue", c.Mutex("x").Lock)
	require.Eventually(t, func() bool {
		info, err := other.Mutex("x").Inspect(t.Context())
		return err == nil && len(info.Queue) == 1
	}, 10*time.Second, time.Millisecond)
	begin("Lock behind it in this process", c.Mutex("x").Lock)
	other.RWMutex("x").Lock()
	for range 3 {
		begin("RLock together with others", c.RWMutex("x").RLock)
	}
	require.Eventually(t, func() bool {
		info, err := other.RWMutex("x").Inspect(t.Context())
		return err == nil && len(info.Queue) == 1
	}, 10*time.Second, time.Millisecond)
	// A hook that always refuses does not keep a client from ending, either.
	refused := holdfast.Open(d, holdfast.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, refused.Mutex("y").TryDo(t.Context(), func(context.Context) error { return nil }), "it has been of use")
	asked := make(chan struct{}, 100)
	refused.AddHook(lab.Meddler{Acquire: func(holdfast.AcquireFunc, context.Context, *holdfast.AcquireOp) (*holdfast.Lease, error) {
		asked <- struct{}{}
		return nil, errors.New("no")
	}})
	begin("Lock of a client whose hook refuses", refused.Mutex("y").Lock)
	<-asked
	require.NoError(t, refused.Close())

	require.NoError(t, c.Close())
	begin("Lock of a closed client", c.Mutex("y").Lock)
	begin("RLock of a closed client", c.RWMutex("y").RLock)
	other.Mutex("x").Unlock()
	other.RWMutex("x").Unlock()
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "Lock never returns") }, 10*time.Second, time.Millisecond)
	select {
	case what := <-returned:
		t.Fatal(what, "has returned")
	case <-time.After(100 * time.Millisecond):
	}
	assert.Equal(t, 1, strings.Count(log.String(), "Lock never returns"), log.String())
	require.NoError(t, other.Mutex("x").TryDo(t.Context(), func(context.Context) error { return nil }), "nothing is left in the queue")
}

// service is a program as people write it: workers that use Lock, and an end by SIGTERM.
func service() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	locks := holdfast.Open(memdriver.New())
	mu := locks.Mutex("x")
	for range 3 {
		go func() {
			for {
				mu.Lock()
				fmt.Println("working")
				time.Sleep(time.Millisecond)
				mu.Unlock()
			}
		}()
	}
	<-ctx.Done()
	if err := locks.Close(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func TestServiceThatUsesLockEndsQuietly(t *testing.T) {
	t.Parallel()
	cmd, out := alone(t)
	if cmd == nil {
		service()
		os.Exit(0)
	}
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "working") }, 10*time.Second, time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), out.String())
	require.NotContains(t, out.String(), "panic")
}
