package etcdtest

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/contend"
)

func TestProcesses(t *testing.T) {
	contend.Run(t, func(tb testing.TB) string { return embedded(tb) })
}
