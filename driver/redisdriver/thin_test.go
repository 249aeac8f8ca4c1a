package redisdriver_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// The operations on a thin lock have scripts of their own. A lock that is fat for a tombstone goes
// through all the others. The same history of both must look the same, at the same times of a
// clock that stands still meanwhile.
func TestThinAndFatLocksAnswerAlike(t *testing.T) {
	for name, shape := range map[string]driver.Request{
		"mutex":       {Kind: driver.Mutex, TTL: 10 * time.Second},
		"brief":       {Kind: driver.Mutex, TTL: 60 * time.Millisecond},
		"long":        {Kind: driver.Mutex, TTL: 40 * time.Second}, // for more than half the retention
		"many fences": {Kind: driver.Mutex, TTL: 10 * time.Second, Fences: 200_000_000},
		"writer":      {Kind: driver.RWMutex, TTL: 10 * time.Second, Fences: 32},
		"reader":      {Kind: driver.RWMutex, TTL: 20 * time.Second, Shared: true},
		"permits":     {Kind: driver.Semaphore, TTL: 9 * time.Second, Weight: 5, Limit: 7},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T, s *redistest.Server) { twins(t, s, shape) })
		})
	}
}

const thin, fat = "thin", "fat"

func twins(t *testing.T, s *redistest.Server, shape driver.Request) {
	rdb := s.Client(t)
	d := open(t, rdb, s)
	ctx := t.Context()
	lease := func(name, token string) driver.Lease {
		return driver.Lease{Kind: shape.Kind, Name: name, Token: token, TTL: shape.TTL, HolderTag: "tag-of-" + token}
	}
	asks := map[string]uint64{}
	ask := func(token string) func(string) (any, error) {
		return func(name string) (any, error) {
			asks[token+name]++
			r := shape
			r.Name, r.Token, r.Ask, r.Holder = name, token, asks[token+name], "some text"
			return d.Acquire(ctx, &r)
		}
	}
	hasty := func(name string) (any, error) { // asks for all there is
		r := driver.Request{Kind: shape.Kind, Name: name, Token: "hasty", Ask: 1, TTL: time.Second, Weight: shape.Limit, Limit: shape.Limit}
		return d.Acquire(ctx, &r)
	}
	renew := func(token string) func(string) (any, error) {
		return func(name string) (any, error) { return nil, d.Renew(ctx, []driver.Lease{lease(name, token)})[0] }
	}
	release := func(token string) func(string) (any, error) {
		return func(name string) (any, error) { return nil, d.Release(ctx, lease(name, token)) }
	}
	extend := func(token string) func(string) (any, error) {
		return func(name string) (any, error) { return d.Extend(ctx, lease(name, token), 5) }
	}
	wait := func(d time.Duration) func(string) (any, error) {
		return func(name string) (any, error) {
			if name == fat {
				time.Sleep(d)
			}
			return nil, nil
		}
	}
	force := func(name string) (any, error) { return nil, d.ForceRelease(ctx, shape.Kind, name) }
	downgrade := func(name string) (any, error) { return nil, d.Downgrade(ctx, lease(name, "a"), 1) }
	raise := func(name string) (any, error) {
		return d.RaiseFence(ctx, lease(name, "a"), time.Now().UnixMicro(), 1)
	}

	bury := func(name string) (any, error) { // it lasts for a minute
		if name == fat {
			l := lease(fat, fmt.Sprint("another", time.Now().UnixNano()))
			l.Unsettled = true
			require.ErrorIs(t, d.Release(ctx, l), driver.ErrNotHeld)
		}
		return nil, nil
	}
	_, _ = bury(fat)
	expiry := shape.TTL + shape.TTL/20 + time.Second
	key := func(name string) string { return d.Key(shape.Kind, name) }
	for i, do := range []func(string) (any, error){
		ask("a"), ask("a"), wait(10 * time.Millisecond), ask("a"), renew("a"), wait(10 * time.Millisecond), extend("a"), hasty,
		renew("b"), release("b"), downgrade, hasty, raise, ask("a"), release("a"), release("a"), renew("a"), extend("a"), force,
		ask("c"), bury, wait(expiry), renew("c"), ask("e"), hasty, bury, wait(expiry), hasty, release("hasty"), release("e"), bury,
		ask("f"), renew("f"), release("f"),
	} {
		step := fmt.Sprint("step ", i)
		a, errA := do(thin)
		b, errB := do(fat)
		require.Equal(t, b, a, step)
		require.Equal(t, fmt.Sprint(errB), fmt.Sprint(errA), step)
		for _, err := range []error{errA, errB} {
			require.True(t, err == nil || errors.Is(err, driver.ErrNotHeld) || errors.Is(err, errors.ErrUnsupported), "%s: %v", step, err)
		}
		infoA, err := d.Inspect(ctx, shape.Kind, thin)
		require.NoError(t, err)
		infoB, err := d.Inspect(ctx, shape.Kind, fat)
		require.NoError(t, err)
		infoA.Name = infoB.Name
		require.Equal(t, infoB, infoA, step)

		require.Equal(t, "string", rdb.Type(ctx, key(thin)).Val(), step)
		require.Equal(t, "hash", rdb.Type(ctx, key(fat)).Val(), step)
		requireConsistent(t, rdb, shape.Kind, key(thin))
		requireConsistent(t, rdb, shape.Kind, key(fat))
		var left time.Duration
		if len(infoA.Holders) > 0 {
			left = infoA.Holders[0].TimeLeft
		}
		for _, name := range []string{thin, fat} { // it was used just now, or is
			life := rdb.PTTL(ctx, key(name)).Val() - left
			require.LessOrEqual(t, life, time.Minute, "%s, %s", step, name)
			require.Greater(t, life, 10*time.Second, "%s, %s", step, name)
		}
	}
}

// What another program keeps there is not taken for a lock that is free, though Lua may take
// it for a number.
func TestStringThatIsNoLockIsLeftAlone(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		p := join(t, open(t, rdb, s), "token", ttl)
		p.req.Ask = 1
		for _, text := range []string{"", " 7 ", "1.5", "-3", "0x1F", "1e5", "inf", "nan", "hello"} {
			require.NoError(t, rdb.Set(t.Context(), key(s), text, 0).Err())
			_, err := p.d.Acquire(t.Context(), &p.req)
			require.ErrorContains(t, err, "WRONGTYPE", "%q", text)
			require.Equal(t, text, rdb.Get(t.Context(), key(s)).Val())
		}
	})
}

// Where Lua's integers have 32 bits, %d prints something else. Better no lock than a wrong one.
func TestServerOf32BitsIsRefused(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		for _, script := range redisdriver.Scripts() {
			if script.Verb != "acquire" {
				continue
			}
			for format, want := range map[string]string{"'%d', number": "", "'%d', number % 4294967296": "32 bits"} {
				text := strings.Replace(script.Text, "'%d', number", format, 1)
				err := s.Client(t).Eval(t.Context(), text, []string{s.Prefix() + format}, "wake:", "60000",
					"token", "1 0 0", "10000 1 0 1 1 - - holder").Err()
				if want == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, want)
				}
			}
		}
	})
}
