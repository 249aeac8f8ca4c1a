package pgdriver_test

import (
	"flag"
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// A session of PostgreSQL is a process, which takes long to begin where page faults are slow: with
// eight tests side by side two processors would have too much to do for leases of a second.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "3"); err != nil {
		panic(err)
	}
	redistest.HeavyMain(m)
}
