package redistest

import (
	"flag"
	"os"
	"os/exec"
	"testing"
)

// soak says that tests are to run at full length.
func soak() bool { return os.Getenv("HOLDFAST_SOAK") == "1" }

// SoakOnly skips a test that takes long, needs luck, or has a bound that a busy machine cannot keep,
// unless HOLDFAST_SOAK=1. The property has a test that is always run, too, or is in .ci/soak alone.
func SoakOnly(tb testing.TB) {
	tb.Helper()
	if !soak() {
		tb.Skip("takes long or needs luck: HOLDFAST_SOAK=1 runs it")
	}
}

// Rounds is how often to repeat what finds a rare fault by chance: n times if
// HOLDFAST_SOAK=1, a tenth of that otherwise.
func Rounds(n int) int {
	if soak() {
		return n
	}
	return max(1, n/10)
}

// Again reports whether to test in more surroundings what was tested in others: if
// HOLDFAST_SOAK=1, but not under the race detector, which would see nothing new.
func Again() bool { return soak() && !raced }

// Installed reports whether there is a redis-server for [Real].
func Installed() bool {
	_, err := exec.LookPath(program())
	return err == nil
}

// beside is how many tests of a package run at the same time. The default of the go command is the number of
// processors, but our tests mostly wait: for leases to end, or for servers. Those of a package with
// many servers, which is heavy, run four at a time, as more keep two processors from answering.
func beside(heavy bool) string {
	if heavy || raced {
		return "4"
	}
	return "8"
}

// setParallel leaves alone what the command line says.
func setParallel(heavy bool) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", beside(heavy))
	}
}
