// Package connection_test has the ways in which a client can be connected to a server.
package connection_test

import (
	"flag"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // what the suite does most is wait
	redistest.Main(m)
}
