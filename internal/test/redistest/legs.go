package redistest

import (
	"fmt"
	"os"
	"testing"
)

// legs is HOLDFAST_LEGS: in which surroundings to run what could run in several.
//
//   - Unset: in virtual time, and on a real Redis what waits for no time to pass. That is each property
//     once where it is sharpest, and the real thing.
//   - virtual: in virtual time alone. A machine that stands still fails no such test.
//   - real: on real servers alone, and on miniredis in real time where no redis-server is installed.
//   - all: everywhere, also with short leases on a real Redis and with miniredis in real time. They
//     depend on the machine and prove nothing that the others do not.
func legs() string {
	l := os.Getenv("HOLDFAST_LEGS")
	switch l {
	case "", "virtual", "real", "all":
		return l
	}
	panic(fmt.Sprintf("HOLDFAST_LEGS=%s: want virtual, real or all", l))
}

// Virtually reports whether tests run in virtual time.
func Virtually() bool { return legs() != "real" }

// Really reports whether tests run on real servers.
func Really() bool { return legs() != "virtual" }

// Everywhere reports whether tests also run where they prove nothing more and depend on the machine.
func Everywhere() bool { return legs() == "all" }

// RequireReal skips a test that is about real servers or processes where only virtual time is wanted.
func RequireReal(tb testing.TB) {
	tb.Helper()
	if !Really() {
		tb.Skip("needs real time; HOLDFAST_LEGS=virtual")
	}
}
