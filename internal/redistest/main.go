package redistest

import (
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

// inMain tells Child that a new process of this binary would find its way.
var inMain bool

// Main runs the tests of a package, stops what they shared and fails if they left
// goroutines behind. It does not return. In a process started by [Child] it runs
// the registered function instead.
func Main(m *testing.M) {
	inMain = true
	logging.Disable() // go-redis says something for each connection that a test breaks
	runChild()
	code := m.Run()
	shared.stop()
	if code == 0 {
		if err := goleak.Find(own()...); err != nil {
			fmt.Fprintln(os.Stderr, "redistest: the tests passed but left goroutines behind:", err)
			code = 1
		}
	}
	os.Exit(code)
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
	const pkg = "github.com/holdfast-go/holdfast/internal/redistest."
	return []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/holdfast-go/holdfast/internal/tied.starter"),
		goleak.IgnoreAnyFunction(pkg + "waitFor"),
	}
}
