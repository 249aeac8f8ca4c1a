//go:build unix

package circle_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/deadlock"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/crew"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func init() { crew.Register("member", member) }

const pause = 300 * time.Millisecond

// order tells a member what to hold and what to want then. It wants it when it is told once more.
type order struct{ Holds, Wants lock }

type lock struct {
	Kind   driver.Kind
	Name   string
	Shared bool
}

// outcome is a report of a member: held, or ended and how.
type outcome struct {
	Held    bool
	Victim  bool
	Err     string
	Circle  int           // members, by the victim's error
	Waited  time.Duration // for what it wanted
	Reports int32         // of this round
}

// do is Do of a lock.
func (l lock) do(ctx context.Context, c *holdfast.Client, f func(context.Context) error) error {
	switch {
	case l.Kind == driver.Mutex:
		return c.Mutex(l.Name).Do(ctx, f)
	case l.Shared:
		return c.RWMutex(l.Name).RDo(ctx, f)
	default:
		return c.RWMutex(l.Name).Do(ctx, f)
	}
}

// reports counts lines of the log that tell of a circle.
type reports struct{ atomic.Int32 }

func (r *reports) Write(line []byte) (int, error) {
	if strings.Contains(string(line), `msg="holdfast: deadlock"`) {
		r.Add(1)
	}
	return len(line), nil
}

// member is a process that does as it is told, one round after the other.
func member() {
	rdb := redis.NewClient(&redis.Options{Network: os.Getenv("MEMBER_NETWORK"), Addr: os.Getenv("MEMBER_ADDR")})
	c := holdfast.New(rdb, holdfast.WithPrefix(os.Getenv("MEMBER_PREFIX")), holdfast.WithTTL(10*time.Second))
	var told reports
	c.AddHook(deadlock.New(c, deadlock.WithPause(pause), deadlock.WithLogger(slog.New(slog.NewTextHandler(&told, nil)))))
	for o := range crew.Orders[order]() {
		before, end := told.Load(), outcome{}
		err := o.Holds.do(context.Background(), c, func(ctx context.Context) error {
			crew.Report(outcome{Held: true})
			crew.Order[order]() // go
			began := time.Now()
			err := o.Wants.do(ctx, c, func(context.Context) error { return nil })
			end.Waited = time.Since(began)
			return err
		})
		var circle *deadlock.Error
		if end.Victim = errors.As(err, &circle); end.Victim {
			end.Circle = len(circle.Circle)
		}
		if err != nil {
			end.Err = err.Error()
		}
		end.Reports = told.Load() - before
		crew.Report(end)
	}
}

// members starts processes.
func members(t *testing.T, s *redistest.Server, n int) (ps []*crew.Process) {
	for range n {
		ps = append(ps, crew.Start(t, "member", "MEMBER_NETWORK="+s.Network(), "MEMBER_ADDR="+s.Addr(), "MEMBER_PREFIX="+s.Prefix()))
	}
	return ps
}

// closeCircle closes a circle: each holds a lock and wants that of the next, mutexes and RWMutexes in
// turn, the latter by readers and writers.
func closeCircle(t *testing.T, ps []*crew.Process, round int) {
	at := func(i int) lock {
		i %= len(ps)
		return lock{Kind: []driver.Kind{driver.Mutex, driver.RWMutex}[(i+round)%2], Name: fmt.Sprint("l", i)}
	}
	for i, p := range ps {
		holds := at(i)
		holds.Shared = holds.Kind == driver.RWMutex && round%4 < 2
		p.Tell(order{holds, at(i + 1)})
	}
	for _, p := range ps {
		require.True(t, crew.Hear[outcome](p).Held)
	}
	for _, p := range ps {
		p.Tell(order{})
	}
}

func TestCircleOfProcessesEndsByOneVictim(t *testing.T) {
	t.Parallel()
	sizes, rounds := []int{3}, 2
	if redistest.Again() {
		sizes, rounds = []int{2, 3, 5, 10}, 250
	}
	for _, n := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			ps := members(t, redistest.Real(t), n)
			var longest time.Duration
			late := 0
			for round := range rounds {
				closeCircle(t, ps, round)
				victims, told := 0, int32(0)
				for _, p := range ps {
					end := crew.Hear[outcome](p)
					told += end.Reports
					if !end.Victim {
						require.Empty(t, end.Err)
						continue
					}
					victims++
					require.Equal(t, n, end.Circle)
					longest = max(longest, end.Waited)
					if end.Waited > 2*pause+100*time.Millisecond {
						late++
					}
				}
				require.Equal(t, 1, victims, "round %d", round)
				require.EqualValues(t, 1, told, "round %d", round)
			}
			t.Logf("%d rounds: the longest ended after %v, %d after more than twice the pause and 100 ms", rounds, longest, late)
		})
	}
}

// A member that is killed waits for nobody any more.
func TestCircleWithAKilledProcessOpensByItself(t *testing.T) {
	t.Parallel()
	ps := members(t, redistest.Real(t), 2)
	closeCircle(t, ps, 0)
	ps[0].Kill()
	end := crew.Hear[outcome](ps[1])
	assert.False(t, end.Victim, end.Err)
	assert.Zero(t, end.Reports)
}

// A member that is stopped for a while delays the end of its circle, and nothing else.
func TestCircleWithAStoppedProcessEndsWhenThatGoesOn(t *testing.T) {
	t.Parallel()
	ps := members(t, redistest.Real(t), 3)
	closeCircle(t, ps, 1)
	ps[1].Pause()
	time.Sleep(4 * pause)
	ps[1].Resume()
	victims, told := 0, int32(0)
	for _, p := range ps {
		end := crew.Hear[outcome](p)
		told += end.Reports
		if end.Victim {
			victims++
		}
	}
	assert.LessOrEqual(t, victims, 1)
	assert.EqualValues(t, victims, told)
}
