//go:build unix

package guard

import (
	"os"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
)

func TestMain(m *testing.M) {
	clitest.Main(m, func() int {
		if len(os.Args) > 1 && os.Args[1] == WatchVerb {
			Watch(os.Args[2:])
			return 0
		}
		var command []string
		os.Args, command = Split(os.Args)
		return clitest.Verbs(Command(command), Acquire(), Renew(), Release())()
	})
}
