package redisdriver_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// Hundreds of asks for one lock are late, their callers give up, and the releases overtake. A lock
// remembers some 150 releases, so some of the asks are granted. Somebody has to hear of that,
// also if the ask was in a call with others.
func TestStormOfCancelledAsksInSharedCallsLeavesTheLockFree(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		rdb, w := s.Client(t, func(o *redis.Options) { o.PoolSize = 400 }), &wire{rtt: 2 * time.Millisecond}
		rdb.AddHook(w)
		c := holdfast.New(rdb, holdfast.WithPrefix(s.Prefix()), holdfast.WithStrictFIFO())
		defer func() { require.NoError(t, c.Close()) }()
		other := holdfast.New(s.Client(t), holdfast.WithPrefix(s.Prefix()))
		defer func() { require.NoError(t, other.Close()) }()
		warm, err := c.Mutex("warm").Lease(t.Context())
		require.NoError(t, err)
		require.NoError(t, warm.Release(t.Context()))

		alone, together := w.seen()[0].script, shared(redisdriver.Scripts()[0])

		// All calls that may be under way are, so what comes now gathers.
		open := w.shut(func(int, run) bool { return true })
		defer func() { open() }()
		var crowd, storm sync.WaitGroup
		for i := range 60 {
			crowd.Go(func() {
				l, err := c.Mutex(fmt.Sprint("crowd", i)).Lease(context.Background())
				if err == nil {
					err = l.Release(context.Background())
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(10 * time.Millisecond)
		// With a deadline that is nearer than the ReadTimeout, nobody waits in place, and so everybody can leave.
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		const callers = 300
		for range callers {
			storm.Go(func() {
				if l, err := c.Mutex("x").Lease(ctx); err == nil {
					_ = l.Release(context.Background())
				}
			})
		}
		time.Sleep(10 * time.Millisecond)
		open()
		isAsk := func(r run) bool {
			return strings.HasSuffix(r.keys[0], ":x") && (r.script == alone || r.script == together)
		}
		open = w.shut(func(_ int, r run) bool { return isAsk(r) })
		crowd.Wait()
		time.Sleep(300 * time.Millisecond)
		shared := 0
		for _, r := range w.seen() {
			if isAsk(r) && len(r.keys) > 1 {
				shared += len(r.keys)
			}
		}
		require.Greater(t, shared, callers/2, "asks in shared calls")

		cancel()
		storm.Wait()
		time.Sleep(2 * time.Second) // all releases are done
		open()
		time.Sleep(time.Second)
		began := time.Now()
		l, err := other.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		require.Less(t, time.Since(began), time.Second)
		require.NoError(t, l.Release(t.Context()))
	})
}

// shared is what a script for many is called on the wire.
func shared(s redisdriver.Script) any {
	sum := sha1.Sum([]byte(s.Text))
	return hex.EncodeToString(sum[:])
}

// A hook of the user that panics must not leave those waiting whose call it was.
func TestCallerThatPanicsLeavesItsCompanyToThemselves(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		d, rdb, w := watched(t, s)
		_, err := d.Acquire(t.Context(), askFor("warm"))
		require.NoError(t, err)
		rdb.AddHook(bomb{})
		open := w.shut(func(int, run) bool { return true })
		const callers = 60
		answered := make(chan error, callers)
		var panics atomic.Int64
		for i := range callers {
			go func() {
				err := errors.New("it has panicked")
				defer func() {
					if recover() != nil {
						panics.Add(1)
					}
					answered <- err
				}()
				_, err = d.Acquire(context.Background(), askFor(fmt.Sprint("bomb", i)))
			}()
		}
		time.Sleep(10 * time.Millisecond)
		require.Positive(t, d.Waiting())
		open()
		failed := 0
		for range callers {
			if <-answered != nil {
				failed++
			}
		}
		require.Positive(t, panics.Load())
		require.EqualValues(t, panics.Load(), failed, "the others go alone")
		require.NoError(t, d.Release(t.Context(), driver.Lease{Kind: driver.Mutex, Name: "warm", Token: "t-warm"}), "nothing is stuck")
	})
}

// Those who are to go with others must return soon, too. The wrong version had them wait for as long as its pool keeps
// the one that makes the call, or the dialer.
func TestSharedCallThatGetsNoConnectionKeepsNobody(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t, func(o *redis.Options) { o.PoolSize = 300 })
		rdb.AddHook(unconnected{})
		d := open(t, rdb, s)
		_, err := d.Acquire(t.Context(), askFor("warm"))
		require.NoError(t, err)
		const callers = 60
		answered := make(chan error, callers)
		began := time.Now()
		for i := range callers {
			go func() {
				_, err := d.Acquire(context.Background(), askFor(fmt.Sprint("unconnected", i)))
				answered <- err
			}()
		}
		failed := 0
		for range callers {
			if err := <-answered; err != nil {
				failed++
				require.ErrorIs(t, err, driver.ErrTransient)
				require.ErrorIs(t, err, driver.ErrNotExecuted)
				require.NotErrorIs(t, err, context.Canceled, "nobody has called it off")
			}
		}
		require.Greater(t, failed, 1)
		require.Less(t, time.Since(began), 5*time.Second)
	})
}

// But what is written is waited for, and what follows from the answer is sent: a server that does not know the script
// is taught it, however far it is.
func TestSharedCallOverAFarWayIsNotGivenUp(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		d, _, w := watched(t, s)
		w.rtt = 3 * time.Second / 2
		requireNone(t, w.crowd(t, d, "far", 60))
		_, most := locksIn(w.seen())
		require.Greater(t, most, 1)
	})
}

// unconnected is a hook that keeps what is for many locks until its context ends, as a pool without connections. It
// does not look at what it is.
type unconnected struct{ through }

func (unconnected) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c, ours := cmd.(interface {
			Procedure() (string, context.Context)
		})
		if ours {
			if name, _ := c.Procedure(); strings.HasPrefix(name, "holdfast.locks.") {
				<-ctx.Done()
				return ctx.Err()
			}
			time.Sleep(2 * time.Millisecond)
		}
		return next(ctx, cmd)
	}
}

// bomb is a hook that panics at what is for many locks.
type bomb struct{ through }

func (bomb) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); cmd.Name() == "evalsha" && args[2].(int) > 1 {
			panic("bomb")
		}
		return next(ctx, cmd)
	}
}

// A shared call is made by one of its callers: when they have their answers, nothing of it is left.
func TestSharedCallsHaveNoGoroutinesOfTheirOwn(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		d, _, w := watched(t, s)
		requireNone(t, w.crowd(t, d, "own", 60))
		_, most := locksIn(w.seen())
		require.Greater(t, most, 1)
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		require.NotContains(t, string(stacks), "redisdriver.(*group)")
		require.NotContains(t, string(stacks), "redisdriver.(*Driver)")
	})
}
