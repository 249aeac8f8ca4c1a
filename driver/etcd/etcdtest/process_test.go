package etcdtest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/contend"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestProcesses(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	endpoint := shared(t)
	t.Run("", func(t *testing.T) { // so that the server outlives the parallel tests
		contend.Run(t, func(testing.TB) string { return fmt.Sprintf("%s/%016x", endpoint, rand.Uint64()) })
	})
}
