package etcdtest

import (
	"testing"

	"github.com/holdfast-go/holdfast"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
	"github.com/holdfast-go/holdfast/internal/test/behavior"
)

func TestBehavior(t *testing.T) {
	t.Parallel()
	endpoint := shared(t)
	t.Run("", func(t *testing.T) { // so that the server outlives the parallel tests
		behavior.Run(t, func(t testing.TB, opts ...holdfast.Option) *holdfast.Client {
			return holdfast.Open(etcddriver.New(connect(t, endpoint)), opts...)
		})
	})
}
