package redisdriver_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// freight counts what goes in pipelines.
type freight struct {
	through
	texts, hashes, bytes int
}

func (f *freight) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			switch cmd.Name() {
			case "eval":
				f.texts++
			case "evalsha":
				f.hashes++
			}
			for _, arg := range cmd.Args() {
				f.bytes += len(fmt.Sprint(arg))
			}
		}
		return next(ctx, cmds)
	}
}

// After a failover, or SCRIPT FLUSH, the server knows no script. Every lease is renewed
// nevertheless, and the text is sent once to each node: 256 of them would be 6 MB. One server
// has 64 leases renewed by a command, and a Cluster one.
func TestRenewalsTeachAServerEachScriptOnce(t *testing.T) {
	t.Parallel()
	t.Run("server", func(t *testing.T) {
		redistest.Each(t, func(t *testing.T, s *redistest.Server) {
			open := func() redis.UniversalClient { return s.Client(t) }
			renewAfterFlush(t, open, s.Prefix(), 1, 4, func() { require.NoError(t, s.Client(t).ScriptFlush(t.Context()).Err()) })
		})
	})
	t.Run("cluster", func(t *testing.T) {
		c := redistest.NewCluster(t)
		open := func() redis.UniversalClient { return c.Client(t) }
		renewAfterFlush(t, open, "holdfast", 3, 256, func() {
			for _, node := range c.Nodes {
				require.NoError(t, node.Client(t).ScriptFlush(t.Context()).Err())
			}
		})
	})
}

func renewAfterFlush(t *testing.T, open func() redis.UniversalClient, prefix string, nodes, commands int, flush func()) {
	t.Helper()
	client := func() (redis.UniversalClient, *redisdriver.Driver) {
		rdb := open()
		d := redisdriver.New(rdb, redisdriver.WithPrefix(prefix))
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		return rdb, d
	}
	_, d := client()
	var leases []driver.Lease
	for i := range 256 {
		r := driver.Request{Kind: driver.Mutex, Name: fmt.Sprint("lock", i), Token: fmt.Sprint("t", i), Ask: 1, TTL: time.Minute}
		if i%2 == 1 {
			r.Kind = driver.RWMutex
		}
		_, err := d.Acquire(t.Context(), &r)
		require.NoError(t, err)
		leases = append(leases, driver.Lease{Kind: r.Kind, Name: r.Name, Token: r.Token, TTL: r.TTL})
	}
	require.Len(t, d.Renew(t.Context(), leases), len(leases))
	flush()
	rdb, d := client() // which has taught no server anything
	f := &freight{}
	rdb.AddHook(f)
	for i, err := range d.Renew(t.Context(), leases) {
		require.NoError(t, err, "lease %d", i)
	}
	require.Equal(t, nodes, f.texts)
	require.Equal(t, 2*commands-f.texts, f.hashes)
	require.Less(t, f.bytes, nodes*40_000+2*len(leases)*500)
}

// school sees how scripts come to a server. Each command takes some ms.
type school struct {
	through
	mu           sync.Mutex
	texts, loads int
	strike       func(cmd redis.Cmder) error // instead of a text, or SCRIPT LOAD
}

func (s *school) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(5 * time.Millisecond)
		s.mu.Lock()
		var strike func(redis.Cmder) error
		switch cmd.Name() {
		case "eval":
			s.texts++
			strike = s.strike
		case "script":
			s.loads++
			strike = s.strike
		}
		s.mu.Unlock()
		if strike != nil {
			if err := strike(cmd); err != nil {
				return refuse(cmd, err)
			}
		}
		return next(ctx, cmd)
	}
}

// seen are how many texts and loads there were since it was last asked.
func (s *school) seen() [2]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.texts, s.loads = 0, 0 }()
	return [...]int{s.texts, s.loads}
}

// inSchool has a driver whose callers share no calls ask a server that knows no script.
func inSchool(t *testing.T, body func(t *testing.T, s *redistest.Server, d *redisdriver.Driver, seen *school)) {
	t.Helper()
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		rdb, seen := s.Client(t, func(o *redis.Options) { o.PoolSize = 300 }), &school{}
		rdb.AddHook(seen)
		d := open(t, rdb, s)
		d.Batch(false)
		body(t, s, d, seen)
	})
}

// class has many callers ask at once, and returns their errors.
func class(d *redisdriver.Driver, prefix string) (errs []error) {
	errs = make([]error, 129)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { _, errs[i] = d.Acquire(context.Background(), askFor(fmt.Sprint(prefix, i))) })
	}
	all.Wait()
	return errs
}

// The text is some 25 kB: 129 callers who hear at once that it is not known would send 3.3 MB.
func TestCallersTeachAServerAScriptOnce(t *testing.T) {
	inSchool(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver, seen *school) {
		flush := func() { require.NoError(t, s.Client(t).ScriptFlush(t.Context()).Err()) }
		requireNone(t, class(d, "first"))
		require.Equal(t, [2]int{1, 0}, seen.seen())
		time.Sleep(time.Hour)
		flush()
		requireNone(t, class(d, "hours-later"))
		require.Equal(t, [2]int{1, 0}, seen.seen())

		// What is forgotten soon is loaded, so that the server keeps it beside what others send.
		flush()
		requireNone(t, class(d, "soon"))
		require.Equal(t, [2]int{0, 1}, seen.seen())
		flush()
		r := askFor("renewed")
		_, err := d.Acquire(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, [2]int{0, 1}, seen.seen())

		// Not every user has the right to that.
		seen.strike = func(cmd redis.Cmder) error {
			if cmd.Name() == "script" {
				return serverError("NOPERM this user has no permissions to run the 'script|load' command")
			}
			return nil
		}
		flush()
		requireNone(t, class(d, "denied"))
		require.Equal(t, [2]int{1, 1}, seen.seen())
		flush()
		requireNone(t, class(d, "still-denied"))
		require.Equal(t, [2]int{1, 0}, seen.seen())
	})
}

// A caller that comes to no end with a script takes nobody along who waits for it.
func TestTeacherThatFailsFailsNobodyElse(t *testing.T) {
	t.Run("error", func(t *testing.T) {
		inSchool(t, func(t *testing.T, _ *redistest.Server, d *redisdriver.Driver, seen *school) {
			var failed atomic.Bool
			seen.strike = func(redis.Cmder) error {
				if failed.Swap(true) {
					return nil
				}
				return io.EOF
			}
			errs := slices.DeleteFunc(class(d, "error"), func(err error) bool { return err == nil })
			require.Len(t, errs, 1)
			require.ErrorIs(t, errs[0], io.EOF)
			require.Equal(t, [2]int{2, 0}, seen.seen())
		})
	})
	t.Run("silence", func(t *testing.T) {
		inSchool(t, func(t *testing.T, _ *redistest.Server, d *redisdriver.Driver, seen *school) {
			var silent atomic.Bool
			goOn := make(chan struct{})
			seen.strike = func(redis.Cmder) error {
				if !silent.Swap(true) {
					<-goOn
				}
				return nil
			}
			began := time.Now()
			var teacher sync.WaitGroup
			teacher.Go(func() { _, _ = d.Acquire(context.Background(), askFor("teacher")) })
			synctest.Wait()
			time.Sleep(10 * time.Millisecond)

			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := d.Acquire(ctx, askFor("impatient"))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, driver.ErrNotExecuted)
			require.Less(t, time.Since(began), 200*time.Millisecond, "its own context has ended")

			requireNone(t, class(d, "silence"))
			require.Less(t, time.Since(began), 2*time.Second)
			close(goOn)
			teacher.Wait()
		})
	})
}
