//go:build unix

package demo

import (
	"flag"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
)

// Each demo is five processes that do what they can.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "4")
	clitest.Main(m, clitest.Verbs(Command()))
}
