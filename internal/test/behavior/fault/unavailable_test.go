package fault_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// troubles are what docs/operations.md has a row for. LOADING and CLUSTERDOWN are only said: a server
// that loads for as long as a test takes has gigabytes of data.
var troubles = map[string]func(l *lab.Lab, says func(answer string)){
	"refused":    func(l *lab.Lab, _ func(string)) { l.Link.Refuse(true); l.Link.Cut() },
	"black hole": func(l *lab.Lab, _ func(string)) { l.Link.BlackHole(true) },
	"`LOADING`":  func(_ *lab.Lab, says func(string)) { says("LOADING Redis is loading the dataset in memory") },
	"`READONLY`": func(l *lab.Lab, _ func(string)) {
		require.NoError(l.T, l.Direct.ReplicaOf(l.T.Context(), "127.0.0.1", "1").Err())
	},
	"an answer that nobody knows": func(_ *lab.Lab, says func(string)) { says("upstream failure") },
	"a hook says no":              func(_ *lab.Lab, says func(string)) { says("!the circuit is open") },
	"`CLUSTERDOWN`":               func(_ *lab.Lab, says func(string)) { says("CLUSTERDOWN The cluster is down") },
	"`OOM`": func(l *lab.Lab, _ func(string)) {
		require.NoError(l.T, l.Direct.ConfigSet(l.T.Context(), "maxmemory", "1").Err())
	},
	"`NOREPLICAS`": func(l *lab.Lab, _ func(string)) {
		require.NoError(l.T, l.Direct.ConfigSet(l.T.Context(), "min-replicas-to-write", "1").Err())
	},
	"wrong password": func(l *lab.Lab, _ func(string)) {
		require.NoError(l.T, l.Direct.Do(l.T.Context(), "ACL", "SETUSER", "app", "resetpass", ">other").Err())
		l.Link.Cut()
	},
	"`NOPERM`": func(l *lab.Lab, _ func(string)) {
		require.NoError(l.T, l.Direct.Do(l.T.Context(), "ACL", "SETUSER", "app", "-evalsha", "-eval").Err())
	},
}

// answer is an error that a server says.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// mouth is a hook of go-redis that says what a server would, or after a ! what no server does.
type mouth struct {
	mu   sync.Mutex
	says error
}

func (m *mouth) say(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch own, is := strings.CutPrefix(text, "!"); {
	case text == "":
		m.says = nil
	case is:
		m.says = errors.New(own)
	default:
		m.says = answer(text)
	}
}

func (m *mouth) DialHook(next redis.DialHook) redis.DialHook { return next }
func (m *mouth) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		m.mu.Lock()
		says := m.says
		m.mu.Unlock()
		if says != nil && strings.HasPrefix(cmd.Name(), "eval") {
			cmd.SetErr(says)
			return says
		}
		return next(ctx, cmd)
	}
}
func (m *mouth) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	one := m.ProcessHook(func(context.Context, redis.Cmder) error { return nil })
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if err := one(ctx, cmd); err != nil {
				return err
			}
		}
		return next(ctx, cmds)
	}
}

// tableOfTroubles reads the table in docs/operations.md: what each call returns in each trouble.
func tableOfTroubles(t *testing.T) map[string]map[string]string {
	text, err := os.ReadFile("../../../../docs/operations.md")
	require.NoError(t, err)
	var calls []string
	table := map[string]map[string]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case cells[0] == "trouble":
			calls = cells[1:]
		case calls != nil && len(cells) == len(calls)+1 && !strings.HasPrefix(cells[0], "-"):
			table[cells[0]] = map[string]string{}
			for i, c := range calls {
				table[cells[0]][strings.Trim(c, "`")] = cells[i+1]
			}
		case strings.TrimSpace(line) == "":
			calls = nil
		}
	}
	return table
}

// The store that is down is not a lock that is held, whatever the trouble and the call.
func TestEveryTroubleOfTheStoreIsToldFromAHolder(t *testing.T) {
	t.Parallel()
	table := tableOfTroubles(t)
	require.Len(t, table, len(troubles))
	for trouble, strike := range troubles {
		t.Run(strings.Trim(trouble, "`"), func(t *testing.T) {
			t.Parallel()
			const endures = 3 * time.Second // what is denied is told at once
			l := lab.New(t, redistest.Real(t))
			l.Remember()
			l.User("app", "~*", "&*", "+@all")
			rdb := l.Link.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
			var m mouth
			rdb.AddHook(&m)
			c := l.Open(rdb, holdfast.WithOutageWait(endures), holdfast.WithTTL(lab.Ages))
			l.Ready(c)
			renewed, released := l.Lease(c, "renewed"), l.Lease(c, "released")
			token, err := l.Lease(c, "detached").Detach(t.Context())
			require.NoError(t, err)
			strike(l, m.say)

			var calls sync.WaitGroup
			for call, f := range map[string]func() error{
				"Lease":    func() error { _, err := c.Mutex("leased").Lease(t.Context()); return err },
				"TryLease": func() error { _, err := c.RWMutex("tried").TryRLease(t.Context()); return err },
				"Do": func() error {
					return c.Mutex("done").Do(t.Context(), func(context.Context) error { return nil })
				},
				"Renew":   func() error { return renewed.Renew(t.Context()) },
				"Release": func() error { return released.Release(t.Context()) },
				"Attach":  func() error { _, err := c.Attach(t.Context(), token); return err },
				"Inspect": func() error { _, err := c.Mutex("inspected").Inspect(t.Context()); return err },
				"Acquire": func() error { return c.Semaphore("acquired", 1).Acquire(t.Context(), 1) },
			} {
				calls.Go(func() {
					began := time.Now()
					err := f()
					requireOutcome(t, call, table[trouble][call], err, time.Since(began), endures)
				})
			}
			locked := lab.Begin(c.Mutex("locked").Lock)
			calls.Wait()
			assert.Equal(t, "waits", table[trouble]["Lock"])
			l.Stays(locked)
			m.say("")
			heal(l)
			l.Ends(locked)
			c.Mutex("locked").Unlock()
		})
	}
}

// heal ends all troubles.
func heal(l *lab.Lab) {
	l.Link.Refuse(false)
	l.Heal()
	require.NoError(l.T, l.Direct.ReplicaOf(l.T.Context(), "no", "one").Err())
	require.NoError(l.T, l.Direct.ConfigSet(l.T.Context(), "maxmemory", "0").Err())
	require.NoError(l.T, l.Direct.ConfigSet(l.T.Context(), "min-replicas-to-write", "0").Err())
	l.User("app", "~*", "&*", "+@all")
}

// requireOutcome holds the outcome of a call against the word in the table.
func requireOutcome(t *testing.T, call, want string, err error, took, endures time.Duration) {
	t.Logf("%s: %s: %v after %v", call, want, err, took)
	assert.NotErrorIs(t, err, holdfast.ErrLocked, call)
	var failed *holdfast.LockError
	if errors.As(err, &failed) {
		assert.NotContains(t, []string{"locked", "timeout"}, failed.ErrorType(), call)
	}
	switch want {
	case "works":
		assert.NoError(t, err, call)
	case "denied":
		assert.ErrorIs(t, err, driver.ErrDenied, call)
		assert.NotErrorIs(t, err, holdfast.ErrUnavailable, call)
		assert.Less(t, took, endures, call)
	case "unavailable", "unavailable soon", "unavailable, denied":
		assert.ErrorIs(t, err, holdfast.ErrUnavailable, call)
		assert.Equal(t, strings.Contains(want, "denied"), errors.Is(err, driver.ErrDenied), call)
		if want != "unavailable soon" {
			assert.GreaterOrEqual(t, took, endures-time.Millisecond, call)
		}
		assert.Less(t, took, endures+lab.Soon, call)
	default:
		t.Errorf("%s: %q", call, want)
	}
}

// errorType is the word that telemetry has for an error.
func errorType(t *testing.T, err error) string {
	t.Helper()
	var failed *holdfast.LockError
	require.ErrorAs(t, err, &failed)
	return failed.ErrorType()
}

func TestHolderIsWaitedForLongerThanTheStore(t *testing.T) {
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		wait := 3 * time.Second
		if l.Virtual {
			wait = 30 * time.Second
		}
		c := l.FarMates(holdfast.WithWait(wait), holdfast.WithOutageWait(time.Second))
		lease := l.Lease(l.Near(), "x")
		first, second := l.Wait(c, "x"), l.Wait(c, "x")
		began := time.Now()
		for _, w := range []*lab.Pending{first, second} {
			err := w.Failed(wait + lab.Soon)
			require.ErrorIs(t, err, holdfast.ErrLocked)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, holdfast.ErrUnavailable)
			require.Equal(t, "timeout", errorType(t, err))
		}
		require.GreaterOrEqual(t, time.Since(began), wait-100*time.Millisecond)
		require.NoError(t, lease.Release(t.Context()))
	})
}

var outages = map[string]func(l *lab.Lab){
	"refused": func(l *lab.Lab) { l.Link.Refuse(true); l.Link.Cut() },
	"silent":  func(l *lab.Lab) { l.Link.BlackHole(true) },
}

func TestOutageEndsAWaitSoon(t *testing.T) {
	for name, strike := range outages {
		t.Run(name, func(t *testing.T) {
			lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
				c := l.Far(holdfast.WithWait(30*time.Second), holdfast.WithOutageWait(time.Second))
				l.Ready(c)
				strike(l)
				began := time.Now()
				_, err := c.Mutex("x").Lease(t.Context())
				require.ErrorIs(t, err, holdfast.ErrUnavailable)
				require.NotErrorIs(t, err, holdfast.ErrLocked)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, "unavailable", errorType(t, err))
				require.GreaterOrEqual(t, time.Since(began), time.Second)
				require.Less(t, time.Since(began), 1300*time.Millisecond+l.Slack)
				l.Link.Refuse(false)
				l.Heal()
			})
		})
	}
}

// They wait behind the one of them that is at the store, each with a patience of its own. None has
// to wait for those before it to lose theirs.
func TestOutageEndsTheWaitsOfAllThatWaitInOneProcess(t *testing.T) {
	for name, strike := range outages {
		t.Run(name, func(t *testing.T) {
			lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
				c := l.FarMates(holdfast.WithTTL(lab.Ages))
				lease := l.Lease(l.Near(), "x")
				stays := l.Wait(c, "x")
				l.UntilQueue("x", 1)
				var endure []*lab.Pending
				for _, d := range []time.Duration{2 * time.Second, 300 * time.Millisecond, time.Second, 2 * time.Second, 2 * time.Second} {
					endure = append(endure, l.Wait(c, "x", holdfast.WithOutageWait(d)))
				}
				time.Sleep(5 * time.Second)
				strike(l)
				// The news stops, and so a waiter asks, within 2 s or so.
				began := time.Now()
				for _, w := range endure {
					err := w.Failed(lab.Ages)
					require.ErrorIs(t, err, holdfast.ErrUnavailable)
					require.NotErrorIs(t, err, holdfast.ErrLocked)
					require.Equal(t, "unavailable", errorType(t, err))
				}
				require.GreaterOrEqual(t, time.Since(began), 2*time.Second)
				require.Less(t, time.Since(began), 15*time.Second)
				l.Link.Refuse(false)
				l.Heal()
				require.NoError(t, lease.Release(t.Context()))
				require.NoError(t, stays.Granted(lab.Ages).Release(t.Context()))
			})
		})
	}
}

// Nobody knows of a lock whose store has never answered that another holds it.
func TestTimeoutTellsSilenceFromAHolder(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c := l.FarMates(holdfast.WithTTL(lab.Ages))
		l.Ready(c)
		lease := l.Lease(l.Near(), "held")
		answered := l.Wait(c, "held", holdfast.WithWait(20*time.Second))
		l.UntilQueue("held", 1)
		l.Link.BlackHole(true)
		for _, wait := range []time.Duration{500 * time.Millisecond, 5 * time.Second} {
			first, second := l.Wait(c, "x", holdfast.WithWait(wait)), l.Wait(c, "x", holdfast.WithWait(wait))
			for _, w := range []*lab.Pending{first, second} {
				err := w.Failed(lab.Ages)
				require.ErrorIs(t, err, holdfast.ErrUnavailable)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, holdfast.ErrLocked)
			}
		}
		err := answered.Failed(lab.Ages)
		require.ErrorIs(t, err, holdfast.ErrUnavailable, "it has been silent for long")
		require.NotErrorIs(t, err, holdfast.ErrLocked)
		l.Heal()
		require.NoError(t, lease.Release(t.Context()))
	})
}

// curt is a store whose answers a context cuts short, but for the first.
type curt struct {
	lab.Instant
	end func(ctx context.Context) error
}

func (c curt) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if r.Ask == 1 {
		return driver.Grant{Status: driver.Queued}, nil
	}
	return driver.Grant{}, c.end(ctx)
}

// The end of its context cuts the ask short that is under way just then, which says nothing of the
// store.
func TestTimeoutOfAWaiterThatAsksJustThenIsThatOfAHolder(t *testing.T) {
	for name, end := range map[string]func(context.Context) error{
		"the context": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"a read": func(ctx context.Context) error {
			end, _ := ctx.Deadline()
			time.Sleep(time.Until(end))
			return fmt.Errorf("i/o timeout: %w", driver.ErrTransient)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := holdfast.Open(curt{end: end}, holdfast.WithTTL(9*time.Second))
				for range 100 { // which of the two the waiter hears of first is left to chance
					ctx, cancel := context.WithTimeout(t.Context(), 3050*time.Millisecond)
					_, err := c.Mutex("x").Lease(ctx)
					cancel()
					require.ErrorIs(t, err, holdfast.ErrLocked)
					require.NotErrorIs(t, err, holdfast.ErrUnavailable)
				}
				// An answer that has been owed for more than a second says something.
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err := c.Mutex("x").Lease(ctx)
				require.ErrorIs(t, err, holdfast.ErrUnavailable)
				require.NotErrorIs(t, err, holdfast.ErrLocked)
				require.NoError(t, c.Close())
			})
		})
	}
}
