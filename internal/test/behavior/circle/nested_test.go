//go:build unix

package circle_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/deadlock"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/crew"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func init() { crew.Register("nester", nester) }

// nested says for how long processes nest locks. Results of several runs add up.
var nested = flag.Duration("nested", 0, "how long TestNoCircleIsToldWhereLocksHaveOneOrder takes; 5 s, or 3 min with HOLDFAST_SOAK")

// tally is a report of a nester: what it has done since the last one.
type tally struct {
	Pairs, GaveUp, Victims, Long int // Long waits are looked at
	Looks, Reports               int32
}

func (t *tally) add(o tally) {
	*t = tally{t.Pairs + o.Pairs, t.GaveUp + o.GaveUp, t.Victims + o.Victims, t.Long + o.Long, t.Looks + o.Looks, t.Reports + o.Reports}
}

// looking counts how often somebody looks at a lock.
type looking struct {
	*redisdriver.Driver
	looks atomic.Int32
}

func (l *looking) Inspect(ctx context.Context, k driver.Kind, name string) (driver.Info, error) {
	l.looks.Add(1)
	return l.Driver.Inspect(ctx, k, name)
}

const (
	few     = 20 * time.Millisecond // the pause of a nester
	workers = 64                    // of a nester
	names   = 4000                  // some are wanted more than others
)

// nester takes pairs of locks in one order, by several goroutines, and gives some waits up.
func nester() {
	rdb := redis.NewClient(&redis.Options{Network: os.Getenv("MEMBER_NETWORK"), Addr: os.Getenv("MEMBER_ADDR")})
	quiet := slog.New(slog.DiscardHandler)
	store := &looking{Driver: redisdriver.New(rdb, redisdriver.WithPrefix(os.Getenv("MEMBER_PREFIX")))}
	c := holdfast.Open(store, holdfast.WithTTL(time.Second), holdfast.WithLogger(quiet))
	var told reports
	c.AddHook(deadlock.New(c, deadlock.WithPause(few), deadlock.WithLogger(slog.New(slog.NewTextHandler(&told, nil)))))
	var mu sync.Mutex
	var sum tally
	for range workers {
		go func() {
			for {
				done := pair(c)
				mu.Lock()
				sum.add(done)
				mu.Unlock()
			}
		}()
	}
	for ; ; time.Sleep(50 * time.Millisecond) {
		mu.Lock()
		now := sum
		sum = tally{}
		mu.Unlock()
		now.Looks, now.Reports = store.looks.Swap(0), told.Swap(0)
		crew.Report(now)
	}
}

// spell is for how long locks have one order. Then they have the other one: notes of the dead and
// the stopped that say otherwise are there, and no wait.
//
// In the gap between them all must have ended what they had begun, also on a machine that stands still.
const spell, gap = 4 * time.Second, spell / 3

// pair takes a lock, and within it a later one. Most are held for a moment.
func pair(c *holdfast.Client) (t tally) {
	now := time.Now()
	left := now.Truncate(spell).Add(spell - gap).Sub(now)
	if left <= 0 {
		time.Sleep(left + gap)
		return t
	}
	last := names
	if rand.IntN(50) == 0 {
		last = 20
	}
	i := rand.IntN(last - 1)
	j := i + 1 + rand.IntN(last-1-i)
	if now.Unix()/int64(spell/time.Second)%2 == 0 {
		i, j = j, i
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(left, time.Duration(rand.IntN(int(2*time.Second)))))
	defer cancel()
	err := c.Mutex(fmt.Sprint("n", i)).Do(ctx, func(ctx context.Context) error {
		began := time.Now()
		err := c.Mutex(fmt.Sprint("n", j)).Do(ctx, func(context.Context) error {
			if rand.IntN(10) == 0 {
				time.Sleep(time.Duration(rand.IntN(int(10 * time.Millisecond))))
			}
			return nil
		})
		if time.Since(began) > few {
			t.Long++
		}
		return err
	})
	switch {
	case err == nil:
		t.Pairs++
	case errors.Is(err, holdfast.ErrDeadlock):
		t.Victims++
	default:
		t.GaveUp++
	}
	return t
}

// Processes that take locks in one order are killed, stopped and cut off, and some waits are given up.
func TestNoCircleIsToldWhereLocksHaveOneOrder(t *testing.T) {
	duration := *nested
	switch {
	case duration > 0:
	case redistest.Again():
		duration = 3 * time.Minute
	default:
		duration = 5 * time.Second
	}
	s := redistest.Real(t)
	proxy := redistest.NewProxy(t, s)
	type address interface {
		Network() string
		Addr() string
	}
	at := []address{s, s, proxy, proxy}
	start := func(at address) *crew.Process {
		return crew.Start(t, "nester", "MEMBER_NETWORK="+at.Network(), "MEMBER_ADDR="+at.Addr(), "MEMBER_PREFIX="+s.Prefix())
	}
	var sum tally
	add := func(p *crew.Process) {
		for _, now := range crew.Said[tally](p) {
			sum.add(now)
		}
	}
	var ps []*crew.Process
	for _, a := range at {
		ps = append(ps, start(a))
	}
	began, killed, stopped, cut := time.Now(), 0, 0, 0
	for time.Since(began) < duration {
		time.Sleep(time.Duration(rand.IntN(int(500 * time.Millisecond))))
		i := rand.IntN(len(ps))
		switch rand.IntN(4) {
		case 0:
			add(ps[i])
			ps[i].Kill()
			ps[i] = start(at[i])
			killed++
		case 1:
			ps[i].Pause()
			time.Sleep(time.Duration(rand.IntN(int(3 * time.Second)))) // some longer than the TTL
			ps[i].Resume()
			stopped++
		case 2:
			proxy.Cut()
			cut++
		case 3:
			proxy.BlackHole(true)
			time.Sleep(time.Duration(rand.IntN(int(2 * time.Second))))
			proxy.BlackHole(false)
			proxy.Cut()
			cut++
		}
		for _, p := range ps {
			add(p)
		}
	}
	t.Logf("%v: %d pairs, %d given up, %d killed, %d stopped, %d cut off; %d waits were longer than the pause, locks were looked at %d times: %d victims, %d reports",
		time.Since(began).Round(time.Second), sum.Pairs, sum.GaveUp, killed, stopped, cut, sum.Long, sum.Looks, sum.Victims, sum.Reports)
	assert.Positive(t, sum.Pairs)
	assert.Zero(t, sum.Victims)
	assert.Zero(t, sum.Reports)
}
