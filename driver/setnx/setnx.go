package setnx

import (
	"context"
	"embed"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/plain"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

//go:embed script
var files embed.FS

var protocol = plain.New("setnx", "", files)

// mutexes is an alias so that the field with them is not exported.
type mutexes = plain.Driver

// Driver keeps mutexes on Redis. See the package for how. It implements [driver.Driver],
// [driver.Inspector], [driver.Lister] and [driver.Router].
type Driver struct {
	*mutexes
	uptime *redisscript.Uptime
}

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

// WithPoll sets for how long a waiter pauses between two asks, give or take half of that. A shorter
// pause gets the lock more often beside programs that poll faster or lock again at once, for more
// commands: one for each pause and waiter. More than a third of the waiter's TTL counts as a third.
// WithPoll panics if d is below 1 ms. The default is 100 ms.
func WithPoll(d time.Duration) Option {
	if d < time.Millisecond {
		panic("setnx: WithPoll is below 1 ms")
	}
	return optionFunc(func(with *plain.Options) { with.Poll = d })
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
	return &Driver{protocol.Open(rdb, with), redisscript.NewUptime(rdb)}
}

// Uptime implements [github.com/holdfast-go/holdfast/driver/redlock.Uptimer] for a client of one
// server, with INFO.
func (d *Driver) Uptime(ctx context.Context) (sure, said time.Duration, err error) {
	return d.uptime.AtLeast(ctx)
}
