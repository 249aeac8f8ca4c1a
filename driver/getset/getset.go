package getset

import (
	"embed"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/plain"
)

//go:embed script
var files embed.FS

var protocol = plain.New("getset", "holdfast:getset:", files)

// mutexes is an alias so that the field with them is not exported.
type mutexes = plain.Driver

// Driver keeps mutexes on Redis. See the package for how. It implements [driver.Driver],
// [driver.Inspector], [driver.Lister] and [driver.Router].
type Driver struct{ *mutexes }

var _ driver.Driver = (*Driver)(nil)

// Option changes a Driver.
type Option interface{ apply(*plain.Options) }

type optionFunc func(*plain.Options)

func (f optionFunc) apply(with *plain.Options) { f(with) }

// WithPrefix sets what comes before the name of a lock in its key, such as the
// "myapp:lock:" of the other programs. The default is the empty prefix.
func WithPrefix(prefix string) Option {
	return optionFunc(func(with *plain.Options) { with.Prefix = prefix })
}

// New returns a driver that sends its commands through rdb, with rdb's hooks and
// limits, and does not close it.
//
// It panics if rdb is nil or a [redis.Ring]. A Ring moves names to other servers
// when one fails, and then two holders would have the same lock.
func New(rdb redis.UniversalClient, opts ...Option) *Driver {
	var with plain.Options
	for _, o := range opts {
		o.apply(&with)
	}
	return &Driver{protocol.Open(rdb, with)}
}
