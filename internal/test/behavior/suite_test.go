package behavior_test

import (
	"flag"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/driver/setnx"
	"github.com/holdfast-go/holdfast/internal/test/behavior"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // what the suite does most is wait
	redistest.Main(m)
}

func TestStoresKeepThePromises(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		t.Parallel() // what the suite does most is wait
		store := memdriver.New()
		behavior.Run(t, over(func(testing.TB) driver.Driver { return store }))
	})
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		t.Parallel()
		behavior.Run(t, over(func(t testing.TB) driver.Driver {
			return redisdriver.New(s.Client(t), redisdriver.WithPrefix(s.Prefix()))
		}))
	})
	t.Run("setnx", func(t *testing.T) { // without a queue
		t.Parallel()
		s := redistest.Mini(t)
		behavior.Run(t, over(func(t testing.TB) driver.Driver { return setnx.New(s.Client(t)) }))
	})
	t.Run("bare", func(t *testing.T) { // without optional abilities
		t.Parallel()
		store := memdriver.New()
		behavior.Run(t, over(func(testing.TB) driver.Driver { return lab.Bare{Driver: store} }))
	})
}

func over(open func(testing.TB) driver.Driver) behavior.Open {
	return func(t testing.TB, opts ...holdfast.Option) *holdfast.Client {
		return holdfast.Open(open(t), opts...)
	}
}
