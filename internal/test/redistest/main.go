package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/test/crew"
)

// Main runs the tests of a package, stops what they shared and fails if they left
// goroutines behind. Tests that are parallel run eight at a time unless -parallel says
// otherwise. It does not return. A process of a crew does its work instead.
func Main(m *testing.M) {
	enter()
	run(m, false)
}

func enter() {
	logging.Disable() // go-redis says something for each connection that a test breaks
	crew.Enter()
}

func run(m *testing.M, heavy bool) {
	setParallel(heavy)
	sayWhatIsSkipped()
	code := m.Run()
	shared.stop()
	if code == 0 {
		if err := leaks(); err != nil {
			fmt.Fprintln(os.Stderr, "redistest: the tests passed but left goroutines behind:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// HeavyMain is [Main] for a package that starts many servers and processes. Of these packages one runs
// at a time on this machine: the servers of two keep each other from answering. Its tests run four at a time.
func HeavyMain(m *testing.M) {
	enter()
	heavy := Really()
	if heavy {
		defer oneAtATime()() // run exits, which lets the next one go, too
	}
	run(m, heavy)
}

// leaks looks for goroutines that are left. goleak looks for half a second, in which a goroutine that is
// about to end gets no processor on a busy machine. One that has leaked is still there after 5 s.
func leaks() (err error) {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		if err = goleak.Find(own()...); err == nil {
			return nil
		}
	}
	return err
}

// sayWhatIsSkipped tells a person at a terminal, in one line, what does not run for want of a server. go test
// shows nothing that a package which passes prints. The first of our packages speaks for all.
func sayWhatIsSkipped() {
	dir, err := os.Getwd()
	if err != nil || Installed() || !Really() || os.Getenv("HOLDFAST_REDIS_ADDR") != "" {
		return
	}
	if _, err := os.Stat(filepath.Join(dir, "mutex.go")); err != nil { // not the package at the root
		return
	}
	terminal, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0)
	if err != nil {
		return
	}
	_, _ = fmt.Fprintf(terminal, "holdfast: there is no %s in PATH, so the tests on real servers are skipped\n", program())
	_ = terminal.Close()
}

// RequireNoLeaks fails the test if, after all cleanups registered later than this
// call, there are goroutines that were not there before it.
func RequireNoLeaks(tb testing.TB) {
	tb.Helper()
	before := append(own(), goleak.IgnoreCurrent())
	tb.Cleanup(func() { goleak.VerifyNone(tb, before...) })
}

// own are the goroutines of this package that outlive a test: the one that starts
// processes, and the one that waits for the shared redis-server.
func own() []goleak.Option {
	const pkg = "github.com/holdfast-go/holdfast/internal/test/redistest."
	return []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/holdfast-go/holdfast/internal/test/tied.starter"),
		goleak.IgnoreAnyFunction(pkg + "waitFor"),
	}
}
