package redistest

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

//go:embed shim/clock.c
var clockShim []byte

// Clock is the wall clock of a server of [RealWithClock].
type Clock struct {
	tb   testing.TB
	file *os.File // mapped by the server
}

// RealWithClock is [Real] with a wall clock that the test may step, as NTP or an operator
// would. The server's TIME, the expiry of its keys and the timeouts of its blocking
// commands follow that clock. RealWithClock needs Linux, and gcc to build the few lines in
// shim/clock.c.
func RealWithClock(tb testing.TB, args ...string) (*Server, *Clock) {
	tb.Helper()
	if runtime.GOOS != "linux" {
		tb.Skip("redistest: LD_PRELOAD is for Linux; this test did not run")
	}
	requireBinary(tb, "gcc")
	dir := tb.TempDir()
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockShim, 0o600); err != nil {
		tb.Fatal(err)
	}
	out, err := exec.Command("gcc", "-O1", "-shared", "-fPIC", "-o", library, source).CombinedOutput()
	if err != nil {
		tb.Fatalf("redistest: gcc: %v\n%s", err, out)
	}
	file, err := os.Create(filepath.Join(dir, "offset"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = file.Close() })
	c := &Clock{tb: tb, file: file}
	c.Set(0)
	return startReal(tb, program(), args, []string{"LD_PRELOAD=" + library, "HOLDFAST_CLOCK=" + file.Name()}), c
}

// Set lets the server's clock be ahead of the real one by offset, or behind if
// that is negative, from now on.
func (c *Clock) Set(offset time.Duration) {
	c.tb.Helper()
	// One aligned word in one write: the server sees the old value or the new one.
	word := binary.NativeEndian.AppendUint64(nil, uint64(offset.Microseconds()))
	if _, err := c.file.WriteAt(word, 0); err != nil {
		c.tb.Fatalf("redistest: clock: %v", err)
	}
}
