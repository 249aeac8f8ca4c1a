package holdfast

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Option changes a [Client] and the locks made from it.
type Option interface{ apply(*config) }

// LockOption changes one lock. Given to [New] or [Open] it is the default for all.
type LockOption interface {
	Option
	lockOption()
}

type config struct {
	ttl    time.Duration
	fixed  bool
	wait   time.Duration // 0: as long as the context allows
	loud   bool          // log what keeps a lock from being acquired
	copies copies
	prefix string
	logger *slog.Logger // nil: slog.Default(), as it is when something is logged
}

var defaults = config{
	ttl:    10 * time.Second,
	prefix: "holdfast",
}

type option func(*config)

func (f option) apply(c *config) { f(c) }

type lockOption func(*config)

func (f lockOption) apply(c *config) { f(c) }
func (lockOption) lockOption()       {}

// WithTTL sets how long a lease lasts unless it is renewed: how soon the lock is free
// after its holder crashed, and how long a holder can be cut off from Redis before it
// loses the lock. It is renewed every third of that. It panics if d is below 10 ms or
// above 24 h. The default is 10 s.
func WithTTL(d time.Duration) LockOption {
	if d < driver.MinTTL || d > driver.MaxTTL {
		panic(fmt.Sprintf("holdfast: TTL of %v, must be %v to %v", d, driver.MinTTL, driver.MaxTTL))
	}
	return lockOption(func(c *config) { c.ttl = d })
}

// WithoutRenewal makes leases that end after their TTL unless [Lease.Renew] is
// called. The default is to renew them for as long as they are held.
func WithoutRenewal() LockOption {
	return lockOption(func(c *config) { c.fixed = true })
}

// WithWait bounds how long a lock is waited for, as a deadline of the context would;
// it does not apply to [Mutex.Lock], which cannot fail. It panics if d is not
// positive. The default is no bound.
func WithWait(d time.Duration) LockOption {
	if d <= 0 {
		panic(fmt.Sprintf("holdfast: waiting time of %v, must be positive", d))
	}
	return lockOption(func(c *config) { c.wait = d })
}

// WithPrefix sets what the keys in Redis begin with. Programs exclude each other only
// if they use the same prefix. It has no effect on [Open]. It panics if prefix is
// empty. The default is "holdfast".
func WithPrefix(prefix string) Option {
	if prefix == "" {
		panic("holdfast: empty prefix")
	}
	return option(func(c *config) { c.prefix = prefix })
}

// WithLogger sets where the client reports what it cannot return, at level Warn: leases
// that were lost, outages that [Mutex.Lock] waits out, and what hooks may not do. Tokens
// are not logged. The default is [slog.Default].
func WithLogger(l *slog.Logger) Option {
	return option(func(c *config) { c.logger = l })
}

func (c config) log() *slog.Logger {
	if c.logger == nil {
		return slog.Default()
	}
	return c.logger
}

// with returns the config changed by options for one lock.
func (c config) with(opts []LockOption) config {
	for _, o := range opts {
		o.apply(&c)
	}
	return c
}
