//go:build unix

package doctor

import (
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, clitest.Verbs(Command())) }
