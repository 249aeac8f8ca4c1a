package zkdriver_test

import (
	"flag"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/internal/test/zktest"
)

// shared is the server of all tests that do nothing to it. They do not meet: each has names or a prefix
// of its own.
var shared = zktest.Share()

// Most of the time of these tests is waiting for leases to end, so many run at a time.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "24")
	redistest.Main(m)
}
