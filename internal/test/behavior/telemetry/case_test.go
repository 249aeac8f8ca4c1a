package telemetry_test

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// The outcomes of TestEveryOutcomeIsTold that take more than a few lines.

const held = "hold mutex exclusive: end_reason=released renewals=0"

// giveUp is to wait in the queue and then to have had enough, as how says.
func giveUp(told string, how func(*lab.Pending)) outcome {
	return outcome{
		run: func(l *lab.Lab, e *telemetry) {
			c, held := l.Far(), l.Lease(l.Near(), "x")
			hearing(l, c)
			w := l.Wait(e.on(c), "x")
			l.UntilQueue("x", 1)
			l.UntilHeard()
			how(w)
			_ = w.Failed(lab.Soon)
			l.GiveBack(held)
		},
		spans:  []string{waitedIn + "outcome=" + told + " wakeups.local=0 wakeups.notify=0 wakeups.poll=0"},
		counts: map[string]int64{"acquire.duration contended=true mode=exclusive outcome=" + told + " primitive=mutex": 1},
	}
}

// timeOut is to wait until a deadline, of a context with that cause or of WithWait.
func timeOut(cause error) outcome {
	return outcome{
		slow: true,
		run: func(l *lab.Lab, e *telemetry) {
			c, held, ctx := l.Far(), l.Lease(l.Near(), "x"), l.T.Context()
			hearing(l, c)
			var opts []holdfast.LockOption
			if cause == nil {
				opts = append(opts, holdfast.WithWait(time.Second))
			} else {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, time.Second, cause)
				defer cancel()
			}
			_, err := e.on(c).Mutex("x", opts...).Lease(ctx)
			require.ErrorIs(l.T, err, holdfast.ErrLocked)
			l.GiveBack(held)
		},
		spans:  []string{waitedIn + "error.type=timeout outcome=timeout wakeups.local=0 wakeups.notify=0 wakeups.poll=0 ERROR"},
		counts: map[string]int64{"acquire.duration contended=true error.type=timeout mode=exclusive outcome=timeout primitive=mutex": 1},
	}
}

var closedWhileWaiting = outcome{
	run: func(l *lab.Lab, e *telemetry) {
		c, held := l.Far(), l.Lease(l.Near(), "x")
		hearing(l, c)
		w := l.Wait(e.on(c), "x")
		l.UntilQueue("x", 1)
		l.UntilHeard()
		require.NoError(l.T, c.Close())
		require.ErrorIs(l.T, w.Failed(lab.Soon), holdfast.ErrClosed)
		l.GiveBack(held)
	},
	spans:  []string{waitedIn + "error.type=closed outcome=error wakeups.local=0 wakeups.notify=0 wakeups.poll=0 ERROR"},
	counts: map[string]int64{"acquire.duration contended=true error.type=closed mode=exclusive outcome=error primitive=mutex": 1},
}

var closedWhileHolding = outcome{
	run: func(l *lab.Lab, e *telemetry) {
		c := e.on(l.Far())
		l.Lease(c, "x")
		require.NoError(l.T, c.Close())
	},
	spans:  []string{acquired, held},
	counts: map[string]int64{acquiredFree: 1, heldTillEnd: 1},
}

var heldAlready = outcome{
	run: func(l *lab.Lab, e *telemetry) {
		c := l.Far()
		lease := l.Lease(c, "x")
		_, err := e.on(c).Mutex("x").Lease(lease.Context())
		require.ErrorIs(l.T, err, holdfast.ErrDeadlock)
		l.GiveBack(lease)
	},
	spans:  []string{"acquire mutex exclusive: attempts=0 contended=false error.type=deadlock outcome=error wakeups.local=0 wakeups.notify=0 wakeups.poll=0 ERROR"},
	counts: map[string]int64{"acquire.duration contended=false error.type=deadlock mode=exclusive outcome=error primitive=mutex": 1},
}

// nested is a lease that counts on another: told like any, but it can be told apart.
var nested = outcome{
	run: func(l *lab.Lab, e *telemetry) {
		mu := e.on(l.Far()).Mutex("x", holdfast.WithReentrancy())
		outer := l.Take(mu.Lease)
		l.GiveBack(l.Nest(outer, mu.Lease), outer)
	},
	spans: []string{acquired, held, released, released + " reentrant=true",
		"acquire mutex exclusive: attempts=0 contended=false fencing_token=N outcome=acquired reentrant=true wakeups.local=0 wakeups.notify=0 wakeups.poll=0",
		"hold mutex exclusive: end_reason=released reentrant=true renewals=0"},
	counts: map[string]int64{
		acquiredFree: 1, heldTillEnd: 1,
		"acquire.duration contended=false mode=exclusive outcome=acquired primitive=mutex reentrant=true": 1,
		"hold.duration end_reason=released mode=exclusive primitive=mutex reentrant=true":                 1,
	},
}

var storeRefuses = outcome{
	run: func(l *lab.Lab, e *telemetry) {
		require.NoError(l.T, l.Direct.Set(l.T.Context(), l.Key("x"), "not a lock", time.Minute).Err())
		_, err := e.on(l.Far()).Mutex("x").Lease(l.T.Context())
		require.Error(l.T, err)
		require.NoError(l.T, l.Direct.Del(l.T.Context(), l.Key("x")).Err())
	},
	spans:  []string{"acquire mutex exclusive: attempts=1 contended=false error.type=wrong_type outcome=error wakeups.local=0 wakeups.notify=0 wakeups.poll=0 ERROR"},
	counts: map[string]int64{"acquire.duration contended=false error.type=wrong_type mode=exclusive outcome=error primitive=mutex": 1},
}

// taken is a loss that is found out by a renewal, and the release after it.
var taken = outcome{
	run: func(l *lab.Lab, e *telemetry) {
		lease := l.Lease(e.on(l.Far()), "x")
		require.NoError(l.T, l.Near().Mutex("x").ForceUnlock(l.T.Context()))
		require.ErrorIs(l.T, lease.Renew(l.T.Context()), holdfast.ErrLost)
		require.ErrorIs(l.T, lease.Release(l.T.Context()), holdfast.ErrLost)
	},
	spans: []string{acquired,
		"hold mutex exclusive: end_reason=lost error.type=lock_lost renewals=0 ERROR [renewal failed error.type=not_held]",
		"release mutex exclusive: error.type=lock_lost outcome=error ERROR"},
	counts: map[string]int64{
		acquiredFree: 1,
		"hold.duration end_reason=lost error.type=lock_lost mode=exclusive primitive=mutex": 1,
		"renew.duration error.type=not_held mode=exclusive primitive=mutex":                 1,
		"lease.lost mode=exclusive primitive=mutex":                                         1,
		"renewal.failed mode=exclusive primitive=mutex":                                     1,
	},
}

// expires is the end of a lease that was to end.
var expires = outcome{
	slow: true,
	run: func(l *lab.Lab, e *telemetry) {
		c := l.Far(holdfast.WithTTL(time.Second), holdfast.WithoutRenewal())
		lease := l.Lease(e.on(c), "x")
		require.NoError(l.T, lease.Renew(l.T.Context()))
		l.Loses(lease, time.Second+l.Slack)
	},
	spans: []string{acquired, "hold mutex exclusive: end_reason=expired renewals=1"},
	counts: map[string]int64{
		acquiredFree: 1,
		"hold.duration end_reason=expired mode=exclusive primitive=mutex": 1,
		"renew.duration mode=exclusive primitive=mutex":                   1,
	},
}

// somePermits are released in two parts, of which the first ends nothing.
var somePermits = outcome{
	run: func(l *lab.Lab, e *telemetry) {
		sem := e.on(l.Far()).Semaphore("x", 5)
		require.NoError(l.T, sem.Acquire(l.T.Context(), 3))
		sem.Release(1)
		for _, s := range e.told() {
			assert.NotContains(l.T, s, "hold", "released only in part")
		}
		sem.Release(2)
	},
	spans: []string{
		"acquire semaphore shared: attempts=1 contended=false fencing_token=N outcome=acquired permits=3 wakeups.local=0 wakeups.notify=0 wakeups.poll=0",
		"release semaphore shared: outcome=released permits=3",
		"hold semaphore shared: end_reason=released permits=3 renewals=0",
		"release semaphore shared: outcome=released permits=3",
	},
	counts: map[string]int64{
		"acquire.duration contended=false mode=shared outcome=acquired primitive=semaphore": 1,
		"hold.duration end_reason=released mode=shared primitive=semaphore":                 1,
	},
}

// reading is two readers and a writer who misses the lock for them.
var reading = outcome{
	run: func(l *lab.Lab, e *telemetry) {
		rw := e.on(l.Far()).RWMutex("x")
		rw.RLock()
		other := l.Take(rw.RLease)
		require.False(l.T, rw.TryLock())
		rw.RUnlock()
		l.GiveBack(other)
	},
	spans: []string{
		"acquire rwmutex shared: attempts=1 contended=false fencing_token=N outcome=acquired wakeups.local=0 wakeups.notify=0 wakeups.poll=0",
		"acquire rwmutex shared: attempts=1 contended=false fencing_token=N outcome=acquired wakeups.local=0 wakeups.notify=0 wakeups.poll=0",
		"acquire rwmutex exclusive: attempts=0 contended=true outcome=not_acquired wakeups.local=0 wakeups.notify=0 wakeups.poll=0",
		"hold rwmutex shared: end_reason=released renewals=0", "release rwmutex shared: outcome=released",
		"hold rwmutex shared: end_reason=released renewals=0", "release rwmutex shared: outcome=released",
	},
	counts: map[string]int64{
		"acquire.duration contended=false mode=shared outcome=acquired primitive=rwmutex":       2,
		"acquire.duration contended=true mode=exclusive outcome=not_acquired primitive=rwmutex": 1,
		"hold.duration end_reason=released mode=shared primitive=rwmutex":                       2,
	},
}

// lowered is a writer who goes on as a reader. It is told of as a writer: a lease has one
// mode, or what goes up and down would not come to 0.
var lowered = outcome{
	run: func(l *lab.Lab, e *telemetry) {
		lease := l.Take(e.on(l.Far()).RWMutex("x").Lease)
		require.NoError(l.T, lease.Downgrade(l.T.Context()))
		l.GiveBack(lease)
	},
	spans: []string{
		"acquire rwmutex exclusive: attempts=1 contended=false fencing_token=N outcome=acquired wakeups.local=0 wakeups.notify=0 wakeups.poll=0",
		"hold rwmutex exclusive: end_reason=released renewals=0", "release rwmutex exclusive: outcome=released",
	},
	counts: map[string]int64{
		"acquire.duration contended=false mode=exclusive outcome=acquired primitive=rwmutex": 1,
		"hold.duration end_reason=released mode=exclusive primitive=rwmutex":                 1,
	},
}

// renewalFails once, which is no loss.
var renewalFails = outcome{
	run: func(l *lab.Lab, e *telemetry) {
		c, fail := e.on(l.Far()), true
		c.AddHook(lab.Meddler{Renew: func(next holdfast.RenewFunc, ctx context.Context, op *holdfast.RenewOp) []error {
			if fail {
				return []error{errors.New("out of order")}
			}
			return next(ctx, op)
		}})
		lease := l.Lease(c, "x")
		require.ErrorContains(l.T, lease.Renew(l.T.Context()), "out of order")
		fail = false
		require.NoError(l.T, lease.Renew(l.T.Context()))
		l.GiveBack(lease)
	},
	spans: []string{acquired, "hold mutex exclusive: end_reason=released renewals=1 [renewal failed error.type=store]", released},
	counts: map[string]int64{
		acquiredFree: 1, heldTillEnd: 1,
		"renew.duration error.type=store mode=exclusive primitive=mutex": 1,
		"renewal.failed mode=exclusive primitive=mutex":                  1,
		"renew.duration mode=exclusive primitive=mutex":                  1,
	},
}

// late is a renewal that the lease does not need any more: nothing happens.
var late = outcome{
	run: func(l *lab.Lab, e *telemetry) {
		lease := l.Lease(e.on(l.Far()), "x")
		l.GiveBack(lease)
		require.ErrorIs(l.T, lease.Renew(l.T.Context()), holdfast.ErrNotHeld)
	},
	spans:  []string{acquired, held, released},
	counts: map[string]int64{acquiredFree: 1, heldTillEnd: 1},
}

// vetoed is an error of a hook that says what it is.
type vetoed struct{}

func (*vetoed) Error() string { return "vetoed" }

func (*vetoed) ErrorType() string { return "vetoed" }

func (*vetoed) Is(e error) bool { _, ok := e.(*vetoed); return ok }

// givenBack is a hook that releases what it got and refuses.
var givenBack = outcome{
	run: func(l *lab.Lab, e *telemetry) {
		c := e.on(l.Far())
		c.AddHook(lab.Meddler{Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			lease, err := next(ctx, op)
			require.NoError(l.T, err)
			require.NoError(l.T, lease.Release(ctx))
			return nil, &vetoed{}
		}})
		_, err := c.Mutex("x").Lease(l.T.Context())
		require.ErrorIs(l.T, err, &vetoed{})
	},
	spans: []string{
		"acquire mutex exclusive: attempts=1 contended=false error.type=vetoed outcome=error wakeups.local=0 wakeups.notify=0 wakeups.poll=0 ERROR",
		held, released},
	counts: map[string]int64{
		"acquire.duration contended=false error.type=vetoed mode=exclusive outcome=error primitive=mutex": 1,
		heldTillEnd: 1,
	},
}

// keptBack is a hook that refuses and forgets to release: the lease is given back.
var keptBack = outcome{
	run: func(l *lab.Lab, e *telemetry) {
		c := e.on(l.Far())
		c.AddHook(lab.Meddler{Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			_, err := next(ctx, op)
			require.NoError(l.T, err)
			return nil, errors.New("refused")
		}})
		_, err := c.Mutex("x").Lease(l.T.Context())
		require.ErrorContains(l.T, err, "refused")
	},
	spans: []string{
		"acquire mutex exclusive: attempts=1 contended=false error.type=*errors.errorString outcome=error wakeups.local=0 wakeups.notify=0 wakeups.poll=0 ERROR",
		held, released},
	counts: map[string]int64{
		"acquire.duration contended=false error.type=*errors.errorString mode=exclusive outcome=error primitive=mutex": 1,
		heldTillEnd: 1,
	},
}
