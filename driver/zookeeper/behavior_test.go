package zkdriver_test

import (
	"testing"

	"github.com/holdfast-go/holdfast"
	zkdriver "github.com/holdfast-go/holdfast/driver/zookeeper"
	"github.com/holdfast-go/holdfast/internal/test/behavior"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestBehavior(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	server := shared.Use(t)
	t.Run("", func(t *testing.T) { // so that the server outlives the parallel tests
		behavior.Run(t, func(t testing.TB, opts ...holdfast.Option) *holdfast.Client {
			return holdfast.Open(zkdriver.New([]string{server.Addr}), opts...)
		})
	})
}
