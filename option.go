package holdfast

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/local"
)

// Option changes a [Client] and the locks made from it.
type Option interface{ apply(*config) }

// LockOption changes one lock. Given to [New] or [Open] it is the default for all.
type LockOption interface {
	Option
	lockOption()
}

type config struct {
	options local.Options
	hold    *local.Options // the same, as all locks with these options have it
	wait    time.Duration  // 0: as long as the context allows
	prefix  string
	batch   *bool // nil: unless there is a tracing hook
}

var defaults = config{
	options: local.Options{TTL: 10 * time.Second},
	prefix:  "holdfast",
}

type option func(*config)

func (f option) apply(c *config) { f(c) }

type lockOption func(*config)

func (f lockOption) apply(c *config) { f(c) }
func (lockOption) lockOption()       {}

// WithTTL sets how long a lease lasts unless it is renewed: how soon the lock is free
// after its holder crashed, and how long a holder can be cut off from Redis before it
// loses the lock. It is renewed every third of that. A suspension of the machine, or a jump
// of its wall clock, by 2/3 of that can cost the lease. It panics if d is below 10 ms or
// above 24 h. Some stores need a longer TTL, see [driver.Granular]; there a lock with a shorter
// one cannot be acquired, and the error matches [errors.ErrUnsupported]. The default is 10 s.
func WithTTL(d time.Duration) LockOption {
	if d < driver.MinTTL || d > driver.MaxTTL {
		panic(fmt.Sprintf("holdfast: TTL of %v, must be %v to %v", d, driver.MinTTL, driver.MaxTTL))
	}
	return lockOption(func(c *config) { c.options.TTL = d })
}

// WithoutRenewal makes leases that end after their TTL unless [Lease.Renew] is called. The
// holder stops earlier than the store, by TTL/100 + 2 ms, for clocks that do not advance
// alike: a lease of 24 h lasts 23 h 45 min. One that was waited for can be shorter by up to a
// third, since its TTL counts from the last time that the waiter asked; see
// [Lease.Deadline]. The default is to renew leases for as long as they are held.
func WithoutRenewal() LockOption {
	return lockOption(func(c *config) { c.options.Fixed = true })
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

// WithReentrancy lets a lock be acquired again with a context that comes from a lease on
// it, as long as that is held. The new lease is nested: it counts on what this client
// holds already, so nobody has to wait, and the store is not asked.
//
//	func transfer(ctx context.Context) error {
//		return account.Do(ctx, func(ctx context.Context) error { // held
//			return audit(ctx) // which has an account.Do(ctx, …) of its own: counted
//		})
//	}
//
// Nested leases have one fence, one token, one TTL and one renewal, that of the outermost.
// Each has a context of its own, which ends when it is released, in whatever order that
// happens; the lock is given up with the last of them. If it is lost, all of them are. A
// lease for reading can be nested in one for writing, and is a part of that then: other
// readers do not get in. A writer in a reader gets [ErrDeadlock].
//
// It is the context that is reentrant, never a goroutine: what runs without that context,
// or with that of another request, has to wait, on whatever goroutine it runs. So Lock and
// its like, which have no context, are not reentrant. A [Semaphore] has no need: it gives
// out more permits while there are any. The default is [ErrDeadlock].
func WithReentrancy() LockOption {
	return lockOption(func(c *config) { c.options.Nested = true })
}

// WithOwner says on whose behalf a lock is held: of a workflow, an order, a tenant, of
// whatever goes from one goroutine or process to another while it holds a lock.
//
//	mu := locks.Mutex("account:7", holdfast.WithOwner("transfer-4711"))
//
// A caller that asks on behalf of the owner that holds the lock gets it at once, from any
// goroutine and process, and does not queue behind others that wait for that owner. All of
// them have one fence, but each has a lease, a token and a TTL of its own, counted in the
// store: the lock is free when the last has released it, and one that crashes stops counting
// after its TTL. So an owner that keeps asking keeps others waiting.
//
// An owner is no secret, and no thread: two that use the same id by accident share the
// lock. Take the id of what is to be done once; never one of a process, host or worker,
// which does something else next. Everybody can see it with Inspect.
//
// Lock and TryLock, too, let the same owner in again; each needs an Unlock, by a handle with
// that owner. Only a [Mutex],
// and an [RWMutex] held for writing, have an owner. Such a write lock cannot be downgraded.
// If the store knows no owners, the error matches [errors.ErrUnsupported]. It panics if
// the id is empty or longer than 256 bytes. The default is that nobody enters again.
func WithOwner(id string) LockOption {
	if id == "" || len(id) > driver.MaxOwner {
		panic(fmt.Sprintf("holdfast: owner of %d bytes, must have 1 to %d", len(id), driver.MaxOwner))
	}
	return lockOption(func(c *config) { c.options.Owner = id })
}

// WithStrictFIFO makes the goroutines of this process queue individually, in the global
// order. The default is that those of one process
// wait together: the lock passes from one to the next of them without Redis, until it has
// passed 32 times, or 1 ms is over if that takes longer; then the other processes that wait
// get their turn. A quarter of the TTL ends the turn in any case. (For holds that last a
// second each, set this option, or a shorter TTL.) Within the same bounds a goroutine that
// calls [RWMutex.RLock] joins another one that has done so, without Redis; unless the client
// has hooks, which see each for itself.
func WithStrictFIFO() LockOption {
	return lockOption(func(c *config) { c.options.Strict = true })
}

// WithLinger keeps the lock for this process for d after it was unlocked, unless another
// process waits for it. To lock it again then takes no command, and another process gets
// it after two trips to Redis, or at the latest at the next renewal if the message that
// tells of it is lost. If this process crashes the lock is free after its TTL, as if it
// had been held. Meanwhile Inspect shows this process as the holder, and TryLock of others
// fails. It applies to [Mutex], and to [RWMutex] for writing; for fixed and for strict
// locks it does nothing, nor on a store that does not tell when somebody waits
// ([driver.Notifier]), such as that of Redisson. It panics if d is not positive. The
// default is to release the lock at once.
func WithLinger(d time.Duration) LockOption {
	if d <= 0 {
		panic(fmt.Sprintf("holdfast: linger of %v, must be positive", d))
	}
	return lockOption(func(c *config) { c.options.Linger = d })
}

// WithReplicas has n replicas of the store confirm each acquisition before it is believed,
// also when the lock was handed over by another client. When fewer have done so after
// timeout, or after half of the TTL if that is shorter, the lock is given back and the
// error matches [ErrNotReplicated]. TryLease and its like then fail; a waiter tries again
// until its context ends, for replicas come back, at the end of the queue.
//
// It makes it less likely that a failover loses a lock, and does not exclude it. The
// command behind it is WAIT (https://redis.io/docs/latest/commands/wait), which knows of
// copies and nothing of elections: Sentinel or a Cluster may still promote a replica that
// has no copy, even if n is a majority of them. What is confirmed is the grant, not its
// renewals, so the copy may end earlier than the lease. A promoted replica whose clock is
// ahead ends it earlier, too. Where a lost lock would do damage use the fence, or a quorum
// of independent servers.
//
// An acquisition costs two round trips to Redis more, and what the n fastest replicas take;
// meanwhile it occupies a connection, which nothing interrupts before the timeout. The
// user of Redis needs the right +wait. A store that cannot tell, such as a driver without
// [driver.Confirmer], refuses with an error that matches [errors.ErrUnsupported].
//
// It panics if n is below 1 or timeout below 10 ms. The default is to ask no replicas.
func WithReplicas(n int, timeout time.Duration) LockOption {
	if n < 1 || timeout < 10*time.Millisecond {
		panic(fmt.Sprintf("holdfast: confirmation by %d replicas within %v, must be at least 1 and 10 ms", n, timeout))
	}
	return lockOption(func(c *config) { c.options.Replicas, c.options.ReplicaTimeout = n, timeout })
}

// WithPrefix sets what the keys in Redis begin with. Programs exclude each other only
// if they use the same prefix. It has no effect on [Open]. It panics if prefix is
// empty, or contains what keys have between prefix and name, such as ":1:mutex:". The
// default is "holdfast".
func WithPrefix(prefix string) Option {
	if prefix == "" {
		panic("holdfast: empty prefix")
	}
	_ = redisdriver.WithPrefix(prefix) // panics
	return option(func(c *config) { c.prefix = prefix })
}

// WithPipelining says whether commands of many goroutines are sent to Redis together, in
// pipelines of go-redis' AutoPipeline, while at least 16 are under way: it doubles how many
// locks a client can take per second. It is for a [redis.Client] or a failover client, not
// for a Cluster. If neither its AutoPipelineOptions nor an earlier call of AutoPipeline say
// otherwise, up to three pipelines are under way at a time; other users of that AutoPipeline get
// the same. To hooks of the Redis client such commands are a pipeline, whose context
// is that of none of them: a span has no parent, and [GuardHook] cannot tell whose they
// are, though those of this library are not its business. The default is true, but false
// from the time on that a hook of [NewTracingHook] is added.
func WithPipelining(on bool) Option {
	return option(func(c *config) { c.batch = &on })
}

// WithLogger sets where the client reports what it cannot return, at level Warn: leases
// that were lost, outages that [Mutex.Lock] waits out, that waiters poll because Redis does
// not pass news on, and what hooks may not do. Tokens are not logged. The default is [slog.Default].
func WithLogger(l *slog.Logger) Option {
	return option(func(c *config) { c.options.Logger = l })
}
