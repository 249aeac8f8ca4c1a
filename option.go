package holdfast

import (
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/local"
)

// Option changes a [Client] and the locks made from it.
type Option interface{ apply(*config) }

// LockOption changes one lock. Given to [New] or [Open], it is the default for all locks, and of no
// account for those that cannot have it, such as an owner for permits. A method that makes a lock panics if
// it is given one that the lock cannot have.
type LockOption interface {
	Option
	lockOption()
}

type config struct {
	options     local.Options
	lockOptions *local.Options // what locks use: options without what the store cannot do, one for all that are equal
	wait        time.Duration  // 0: as long as the context allows
	prefix      string         // of New; empty for the default

	maxWaiters int64 // 0: as many as there are
	batch      *bool // nil: unless there is a tracing hook
	labels     bool  // for profiles
	traced     bool  // commands that nobody asked for are in traces
}

var defaults = config{
	options: local.Options{TTL: 10 * time.Second},
}

// lingers panics if one of the options that were given is WithLinger, and others that apply leave it nothing
// to do.
func (c *config) lingers(given *config) {
	o := &c.options
	if given.options.Linger > 0 && (o.Fixed || o.Strict || o.MinHold > 0 || o.Owner != "") {
		panic("holdfast: WithLinger does nothing beside WithoutRenewal, WithStrictFIFO, WithMinHold or WithOwner")
	}
}

// ofPermits panics if one of the options that were given to a Semaphore is not for permits.
func (c *config) ofPermits() {
	o := &c.options
	if o.Linger > 0 || o.Owner != "" || o.Nested {
		panic("holdfast: a Semaphore has no WithLinger, WithOwner or WithReentrancy")
	}
}

type option func(*config)

func (f option) apply(c *config) { f(c) }

type lockOption func(*config)

func (f lockOption) apply(c *config) { f(c) }
func (lockOption) lockOption()       {}

// WithTTL sets how long a lease lasts unless it is renewed, which happens every d/3. So d
// is how soon the lock is free after its holder crashed. It is also how long a holder can
// be cut off from Redis before it loses the lock. If the machine is suspended for 2/3 of d,
// or its wall clock jumps by as much, the lease can be lost. WithTTL panics if d is below
// 10 ms or above 24 h. Some stores need a longer TTL, see [driver.Granular]. There a lock with
// a shorter one cannot be acquired: the error matches [errors.ErrUnsupported]. The default is
// 10 s.
func WithTTL(d time.Duration) LockOption {
	if d < driver.MinTTL || d > driver.MaxTTL {
		panic(fmt.Sprintf("holdfast: TTL of %v, must be %v to %v", d, driver.MinTTL, driver.MaxTTL))
	}
	return lockOption(func(c *config) { c.options.TTL = d })
}

// WithoutRenewal makes leases that end after their TTL unless [Lease.Renew] is called. The
// holder stops earlier than the store, by TTL/100 + 2 ms, for clocks that do not advance
// alike. So a lease of 24 h lasts 23 h 45 min. If the lock was waited for, its TTL counts
// from the last time that the waiter asked. Such a lease can be shorter by up to a third,
// see [Lease.Deadline]. The default is to renew leases for as long as they are held.
func WithoutRenewal() LockOption {
	return lockOption(func(c *config) { c.options.Fixed = true })
}

// WithWait bounds how long a lock is waited for, as a deadline of the context would. It
// does not apply to [Mutex.Lock], which cannot fail; TryLock waits for the store no longer than
// this, too. WithWait panics if d is not positive.
// The default is no bound.
func WithWait(d time.Duration) LockOption {
	if d <= 0 {
		panic(fmt.Sprintf("holdfast: waiting time of %v, must be positive", d))
	}
	return lockOption(func(c *config) { c.wait = d })
}

// WithOutageWait bounds how long a call waits for a store that does not answer: it gives up when the
// store has left it without an answer for d, with an error that matches [ErrUnavailable]. The call
// goes on waiting for a holder, for as long as its context and [WithWait] allow. So a caller can
// wait a minute for its turn, and yet do without the lock, or fail, soon after the store is down.
//
// While others hold the lock the store is asked every TTL/3, so an outage can begin that much
// earlier than it is noticed, though the loss of a connection is noticed within about a second. An
// answer that only refuses for now, such as LOADING, is none. The option bounds all
// calls that return an error, including [Lease.Renew] and Inspect. It does not apply to
// [Mutex.Lock], which cannot fail. WithOutageWait panics if d is not positive. The default is
// to wait for the store as for a holder.
func WithOutageWait(d time.Duration) LockOption {
	if d <= 0 {
		panic(fmt.Sprintf("holdfast: waiting time for the store of %v, must be positive", d))
	}
	return lockOption(func(c *config) { c.options.Endure = d })
}

// WithMaxHold bounds how long a lease lasts. A lease that is not released within d is lost,
// as if it could not be renewed: its context ends, with a cause that matches [ErrLost] and
// [ErrHeldTooLong], and the log says so. About 1 s later, in which code that works under
// the lease can stop, the lock is given to the next. It is meant for a holder that hangs, whose
// lease would be renewed for ever. So d should be far longer than the work under the lock
// takes. A lease that is nested in another, see [WithReentrancy], is counted from its
// own beginning; if it is lost, so are all that it is nested in.
//
// [Mutex.Lock] and its like cannot tell of a loss: other processes get the lock, but for Lock
// and its like it stays locked in this process until Unlock. WithMaxHold panics if d is below 10 ms. The default
// is that a lease lasts for as long as it is renewed.
func WithMaxHold(d time.Duration) LockOption {
	if d < driver.MinTTL {
		panic(fmt.Sprintf("holdfast: hold of at most %v, must be at least %v", d, driver.MinTTL))
	}
	return lockOption(func(c *config) { c.options.MaxHold = d })
}

// WithMinHold keeps the lock taken until d after it was granted, even if it is released
// earlier. So a job that is due once in a while is done once, by the process that comes
// first, though the others come a little later because their clocks differ:
//
//	tick := locks.Mutex("report:hourly", holdfast.WithMinHold(5*time.Minute))
//	lease, err := tick.TryLease(ctx) // ErrLocked: another process has done it, or does it
//
// [Mutex.Do] and [Mutex.Lease] do not fit: they wait until the lock is free, and the job is
// done again.
// d should be longer than clocks and schedules can differ, and shorter than the time between
// two ticks. It is measured on the store, where the lock stays although this process ends.
// The lock is free, and the first waiter gets it, at most half a second after d. Until then
// Inspect shows this process as the holder, with a fence that no lease has; ForceUnlock
// frees the lock. If the store cannot be told before the lease is over, the lock is free early:
// [Lease.Release] returns [ErrLost], and the log says so. Permits of a Semaphore that are given up in part are free at once. A holder
// that crashes, or loses the lease, keeps the lock for no longer than its TTL: another may
// then do the job again. Goroutines of one client do not pass the lock on.
//
// If the store cannot do this, being no [driver.Attacher], a lock cannot be acquired: the
// error matches [errors.ErrUnsupported]. WithMinHold panics if d is below 10 ms or above 24 h.
// The default is that a lock is free when it is released.
func WithMinHold(d time.Duration) LockOption {
	if d < driver.MinTTL || d > driver.MaxTTL {
		panic(fmt.Sprintf("holdfast: hold of at least %v, must be %v to %v", d, driver.MinTTL, driver.MaxTTL))
	}
	return lockOption(func(c *config) { c.options.MinHold = d })
}

// WithMaxWaiters bounds the queue. If n wait for the lock already, [Mutex.Lease] and its like
// return at once an error that matches [ErrQueueFull] and [ErrLocked]. So callers that would
// wait for too long can be turned away while there is still time.
//
// The store counts all waiters, also of other clients and without a bound, in the step in
// which a caller joins them. So of a crowd that comes at one moment n wait. Each
// caller waits in the store's queue, as with [WithStrictFIFO]. Two kinds of waiter may make
// a difference. One that was let in and then taken for dead comes back to the queue, even if
// that is full. One that crashed counts until the store finds it dead, within 2/3 of its TTL
// while the queue is short. On Redis a place counts as part of the queue until those before
// it are gone; of a queue of more than 8 places only 8 are searched for each caller.
//
// With driver/redlock the first server that answers decides. The option does not apply to
// [Mutex.Lock], which cannot fail: goroutines that wait in Lock do so together, and count as one
// waiter. A store without a queue turns nobody away. WithMaxWaiters
// panics if n is below 1. The default is no bound.
func WithMaxWaiters(n int) LockOption {
	if n < 1 {
		panic(fmt.Sprintf("holdfast: at most %d waiters, must be at least 1", n))
	}
	return lockOption(func(c *config) { c.maxWaiters = int64(n) })
}

// WithReentrancy lets a lock be acquired again with a context that comes from a lease on
// it, as long as that lease is held. The new lease is nested: it counts on what this client
// holds already. So nobody has to wait, and the store is not asked.
//
//	func transfer(ctx context.Context) error {
//		return account.Do(ctx, func(ctx context.Context) error { // held
//			return audit(ctx) // which has an account.Do(ctx, …) of its own: counted
//		})
//	}
//
// Nested leases share the fence, the token, the TTL and the renewal of the outermost one.
// Each has a context of its own, which ends when that lease is released. They may be released
// in any order; the lock is given up with the last of them. If the lock is lost, all of them
// are. A lease for reading can be nested in one for writing. It is then a
// part of that lease: other readers do not get in. A writer in a reader gets [ErrDeadlock].
//
// The context is reentrant, never a goroutine. Code that runs without that context, or with
// that of another request, has to wait, on whatever goroutine it runs. So Lock and its
// like, which have no context, are not reentrant. A [Semaphore] does not need this option:
// it gives out more permits while there are any, and [Client.Semaphore] panics if it is given the
// option. The default is [ErrDeadlock].
func WithReentrancy() LockOption {
	return lockOption(func(c *config) { c.options.Nested = true })
}

// WithOwner says on whose behalf a lock is held, such as a workflow, an order or a tenant.
// An owner can move from one goroutine or process to another while it holds a lock.
//
//	mu := locks.Mutex("account:7", holdfast.WithOwner("transfer-4711"))
//
// A caller that asks on behalf of the owner that holds the lock gets the lock at once, from
// any goroutine and process. It does not queue behind others that wait for that owner. All
// leases of an owner have one fence, but each has a lease, a token and a TTL of its own,
// counted in the store. The lock is free when the last of them has been released. One that
// crashes stops counting after its TTL. So an owner that keeps asking keeps others waiting.
//
// An owner is no secret, and no thread: two users of the same id by accident share the
// lock. Use the id of work that is done once. Never use the id of a process, host or
// worker, which does something else next. Inspect shows the id to everybody.
//
// Lock and TryLock also let the same owner in again; each needs an Unlock, by a handle with
// that owner. Only a [Mutex], and an [RWMutex] held for writing, have an owner. Such a
// write lock cannot be downgraded. If the store knows no owners, the error matches
// [errors.ErrUnsupported]. WithOwner panics if the id is empty or longer than 256 bytes, and
// [Client.Semaphore] if it is given the option.
// The default is no owner: nobody enters a held lock.
func WithOwner(id string) LockOption {
	if id == "" || len(id) > driver.MaxOwner {
		panic(fmt.Sprintf("holdfast: owner of %d bytes, must have 1 to %d", len(id), driver.MaxOwner))
	}
	return lockOption(func(c *config) { c.options.Owner = id })
}

// WithHolder sets the text about the holder that others see: in Inspect, in a [LockError]
// that matches [ErrLocked], and on the command line. It says who holds or waits, such as
// "order 4711 in worker-3". It is no secret, and need not be unique. Goroutines of one
// client pass a lock on among themselves only if their texts are equal. WithHolder panics if
// text is empty, longer than 256 bytes, no UTF-8, or has a NUL. The default is the name of the host and
// the id of the process, as in "web-3:4711".
func WithHolder(text string) LockOption {
	if text == "" || len(text) > maxHolder || !utf8.ValidString(text) || strings.Contains(text, "\x00") {
		panic(fmt.Sprintf("holdfast: holder %q, must be UTF-8 of 1 to %d bytes without a NUL", text, maxHolder))
	}
	return lockOption(func(c *config) { c.options.Holder = text })
}

// maxHolder is the length in bytes of the longest text about a holder. It goes with each
// answer to a waiter.
const maxHolder = 256

// WithStrictFIFO makes the goroutines of this process queue individually, in the global
// order. By default they wait together, and the lock passes from one to the next without
// Redis. If another process waits, their turn ends after 32 passes, or after 1 ms if those take
// less, and after a quarter of the TTL in any case; see the promises of the package. For holds that
// last a second each, set this option or a shorter TTL.
//
// By default, within the same bounds, a goroutine that calls [RWMutex.RLock] joins another
// one that has done so, without Redis. If the client has hooks, which see each acquisition,
// nobody joins.
func WithStrictFIFO() LockOption {
	return lockOption(func(c *config) { c.options.Strict = true })
}

// WithLinger keeps the lock for this process for up to d after it was unlocked, unless another
// process waits for it. To lock it again then takes no command. If another process asks, it gets the
// lock after two trips to Redis. If the message that tells of it is lost, it gets the lock at
// the next renewal at the latest. If this process crashes, the lock is free after its TTL, as
// if it had been held. Meanwhile Inspect shows this process as the holder, and TryLock in other
// processes fails.
//
// WithLinger applies to [Mutex], and to [RWMutex] for writing. A Lease needs a fence of its own, and a
// lock that Redis did not know before has but one: it does not linger. WithLinger does nothing on a store that does
// not tell when somebody waits ([driver.Notifier]), such as that of Redisson: the lock is released
// at once. WithLinger panics if d is not positive. Whoever is given it panics if it can do nothing:
// [Client.Semaphore], and any beside [WithoutRenewal], [WithStrictFIFO], [WithMinHold] or
// [WithOwner]. A lock may have one of these where WithLinger is the default of its client. The
// default is to release the lock at once.
func WithLinger(d time.Duration) LockOption {
	if d <= 0 {
		panic(fmt.Sprintf("holdfast: linger of %v, must be positive", d))
	}
	return lockOption(func(c *config) { c.options.Linger = d })
}

// WithReplicas has n replicas of the store confirm each acquisition before it is trusted.
// That includes a lock that another client has handed over. The replicas have timeout to
// confirm, or half of the TTL if that is shorter. If fewer than n have confirmed by then,
// the lock is given back, and the error matches [ErrNotConfirmed]. TryLease and its like
// then fail. A waiter tries again until its context ends, at the end of the queue, for
// replicas come back.
//
// The option makes it less likely that a failover loses a lock, and does not exclude it. It
// uses WAIT (https://redis.io/docs/latest/commands/wait), which knows of copies and nothing
// of elections. Sentinel or a Cluster may still promote a replica that has no copy, even if
// n is a majority of the replicas. Replicas confirm the grant, not its renewals, so the
// copy may end earlier than the lease. If the clock of a promoted replica is ahead, the
// copy also ends earlier. Where a lost lock would do damage, use the fence, or a quorum of
// independent servers.
//
// An acquisition costs two more round trips to Redis, and the time that the n fastest
// replicas take. Meanwhile it occupies a connection, which nothing interrupts before the
// timeout. The user of Redis needs the right +wait. A store that cannot confirm, such as a
// driver without [driver.Confirmer], refuses with an error that matches
// [errors.ErrUnsupported].
//
// WithReplicas panics if n is below 1 or timeout below 10 ms. The default is to ask no
// replicas.
func WithReplicas(n int, timeout time.Duration) LockOption {
	if n < 1 || timeout < 10*time.Millisecond {
		panic(fmt.Sprintf("holdfast: confirmation by %d replicas within %v, must be at least 1 and 10 ms", n, timeout))
	}
	return lockOption(func(c *config) { c.options.Replicas = driver.Confirmation{Replicas: n, Timeout: timeout} })
}

// WithFsync has each acquisition written to disk before it is trusted, including a lock that
// another client has handed over: to that of the server, and to those of n replicas, or of
// none if n is 0. If that takes longer than timeout, or than half of the TTL, the lock is given
// back, as with [WithReplicas]. Given both options, a lock is confirmed in both ways.
//
// It is for a server with appendfsync everysec: a crash of its machine then loses the last
// second, and with it grants, but none that is trusted. Such a lock takes most of a second. The
// other commands of the server need not wait for the disk, as with appendfsync always.
//
// That needs Redis 8. With everysec, Redis 7.2.2 to 7.4 and all Valkey up to 9.1 at least answer
// before the grant is on the disk (https://github.com/redis/redis/pull/13793): on these the
// option changes nothing, and only appendfsync always keeps grants over a crash of the machine.
//
// Give it 3 s or more, as the server writes once a second. Renewals do not wait for the disk, so
// after a crash the copy may end earlier than the lease, by a third of the TTL. A disk that says
// it has written what it has not can lose a lock nevertheless.
//
// The option uses WAITAOF (https://redis.io/docs/latest/commands/waitaof), which Redis 7.2 and
// Valkey have, with appendonly yes on the server and on the replicas that count. A server
// without it refuses: the error matches [errors.ErrUnsupported]. With appendfsync no the server
// does not know when something is on the disk, and nothing is confirmed. The user of Redis
// needs the right +waitaof. All else is as with WithReplicas.
//
// WithFsync panics if n is below 0 or timeout below 10 ms. The default is to wait for no disk.
func WithFsync(n int, timeout time.Duration) LockOption {
	if n < 0 || timeout < 10*time.Millisecond {
		panic(fmt.Sprintf("holdfast: on disk, and that of %d replicas, within %v, must be at least 0 and 10 ms", n, timeout))
	}
	return lockOption(func(c *config) {
		c.options.Fsync = driver.Confirmation{Replicas: n, Disk: true, Timeout: timeout}
	})
}

// WithPrefix sets what the keys in Redis begin with. Programs exclude each other only if
// they use the same prefix. It is for [New]; [Open] panics. WithPrefix panics if prefix is
// empty, or contains what keys have between prefix and name, such as ":2:mutex:". The
// default is "holdfast".
func WithPrefix(prefix string) Option {
	if prefix == "" {
		panic("holdfast: empty prefix")
	}
	_ = redisdriver.WithPrefix(prefix) // panics
	return option(func(c *config) { c.prefix = prefix })
}

// WithPipelining says whether locks of many goroutines are acquired and released together: up
// to 64 in one call of a script, each handled by itself. Goroutines gather while such a call is
// under way; if the server is far, up to 16 are. A caller on its own waits for nobody.
// On a Cluster such a call is for locks of one node, unless the client has ReadOnly set. Switch it
// off if the client talks to a proxy that spreads keys over several servers, such as
// Envoy: such a call has keys of many locks, and a proxy may look at the first one only.
//
// To hooks of the Redis client such a call is one command, whose context belongs to none of
// the callers. So a span has no parent, and [GuardHook] cannot tell whose the command is.
// It need not guard commands of this library. The default is true, but false from the
// time on that a hook of [NewTracingHook] is added, until [Client.Close].
func WithPipelining(on bool) Option {
	return option(func(c *config) { c.batch = &on })
}

// WithBackgroundSpans has what nobody asked for run in the trace of what it is for. That is every
// renewal of a lease, each time that a waiter asks again after the fourth, and the question of whether
// anybody waits for a lock that passes from hand to hand. A lease of 10 s is renewed 26,000 times a
// day, all in the trace of the request that acquired it. By default these commands have a parent that
// is not sampled, so an SDK makes no spans of them, whichever hook or library asks for one, unless its
// sampler does not heed parents. Nor does it of subscriptions and pings, which are in nobody's trace
// in any case. Metrics have it all.
func WithBackgroundSpans() Option {
	return option(func(c *config) { c.traced = true })
}

// WithLogger sets where the client reports events that no call returns, at level Warn. It reports
// lost leases, many with one cause in one line, outages that [Mutex.Lock] waits out, and forbidden acts of hooks. It also
// reports that waiters poll because Redis does not pass messages on. Tokens are not logged.
// The default is [slog.Default].
//
// During an outage go-redis writes lines of its own to standard error, see
// SetLogger there.
func WithLogger(l *slog.Logger) Option {
	return option(func(c *config) { c.options.Logger = l })
}

// WithProfileLabels has Do and TryDo set labels of package [runtime/pprof] while they run their
// function: holdfast.kind, holdfast.lock and holdfast.fence. So a profile of goroutines tells which
// of them holds which lock, and a profile of processors which locks the time is spent under.
// Goroutines that the function starts have the labels, too. It costs about 0.2 µs for each call. The
// default is no labels.
func WithProfileLabels() Option {
	return option(func(c *config) { c.labels = true })
}
