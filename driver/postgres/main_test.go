package pgdriver_test

import (
	"flag"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// Most of the time of these tests is waiting for leases to end.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "8")
	redistest.HeavyMain(m)
}
