package redisdriver_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// For how long a lock stays in Redis after its last use: one minute.

// use uses a lock, and returns when it was used for the last time.
type use func(comes) time.Time

// comes has a token ask for the lock.
type comes func(token string, ttl time.Duration) *party

// ended is when a lease that was given, or renewed, just now ends.
func ended(ttl time.Duration) time.Time {
	return time.Now().Add(ttl + min(ttl/20, 500*time.Millisecond))
}

func released(p *party, after time.Duration) time.Time {
	time.Sleep(after)
	p.release()
	return time.Now()
}

var allUses = map[string]use{
	"is released soon":                func(c comes) time.Time { return released(c("a", minute), time.Second) },
	"is released just before its end": func(c comes) time.Time { return released(c("a", minute), 58*time.Second) },
	"crashes":                         func(c comes) time.Time { c("a", minute); return ended(minute) },
	"crashes soon":                    func(c comes) time.Time { c("a", time.Second); return ended(time.Second) },
	"is renewed and crashes": func(c comes) time.Time {
		p := c("a", minute)
		time.Sleep(minute / 2)
		require.NoError(p.t, renewed(p))
		return ended(minute)
	},
	"hands over to one that crashes":               func(c comes) time.Time { p := c("a", minute); c("b", minute/2); p.release(); return ended(minute / 2) },
	"a long lease is released to one that crashes": func(c comes) time.Time { p := c("a", hour); c("b", minute); p.release(); return ended(minute) },
	"a long lease is taken away, and the next crashes": func(c comes) time.Time {
		p := c("a", hour)
		c("b", minute)
		require.NoError(p.t, p.d.ForceRelease(context.Background(), p.req.Kind, p.req.Name))
		return ended(minute)
	},
	"a long lease is attached to by one that crashes": func(c comes) time.Time {
		p := c("a", hour)
		r := p.req
		r.Token, r.TTL = "b", minute
		_, err := p.d.Attach(context.Background(), p.lease(), &r)
		require.NoError(p.t, err)
		return ended(minute)
	},
	"a long lease is left to run out, and the next crashes": func(c comes) time.Time {
		c("a", hour)
		time.Sleep(hour + time.Second)
		c("b", minute)
		return ended(minute)
	},
	"a long wait is over, and its lease is released": func(c comes) time.Time {
		p, w := c("a", minute), c("w", hour)
		p.release()
		return released(w, 0)
	},
	"a long wait and its holder crash": func(c comes) time.Time {
		c("a", minute)
		c("w", hour)
		return time.Now().Add(hour * 2 / 3) // a waiter may come back until then
	},
}

// Of a lock that nobody else wants, and whose limit nobody has set, the end of the key stays, see short/leave.lua.
var aloneUses = map[string]use{
	"is released soon": func(c comes) time.Time { p := c("a", minute); at := ended(minute); released(p, time.Second); return at },
	"is released just before its end": func(c comes) time.Time {
		p := c("a", minute)
		at := ended(minute)
		released(p, 58*time.Second)
		return at
	},
	"is released after its end": func(c comes) time.Time {
		p := c("a", minute)
		at := ended(minute)
		released(p, minute+10*time.Second)
		return at
	},
	"a long lease is released": func(c comes) time.Time { return released(c("a", minute+1), time.Second) },
}

// In a mutex one knows whose lease is the last.
var mutexUses = map[string]use{
	"a long wait is given up, and the holder crashes": func(c comes) time.Time {
		c("a", minute)
		at := ended(minute)
		c("w", hour).release()
		return at
	},
}

func permitsOf5(r *driver.Request) { r.Kind, r.Weight, r.Limit = driver.Semaphore, 5, 5 }

// lastUse uses the lock, and returns when its minute is over but for a moment.
func lastUse(t *testing.T, d *redisdriver.Driver, u use, shape func(*driver.Request)) {
	t.Helper()
	at := u(func(token string, ttl time.Duration) *party {
		p := join(t, d, token, ttl)
		shape(&p.req)
		p.ask()
		return p
	})
	time.Sleep(time.Until(at.Add(minute - moment)))
}

const moment = 100 * time.Millisecond

func TestNothingIsLeftOneMinuteAfterTheLastUse(t *testing.T) {
	for _, k := range kinds {
		uses := maps.Clone(allUses)
		maps.Copy(uses, aloneUses)
		if k == driver.Mutex {
			maps.Copy(uses, mutexUses)
		}
		for name, u := range uses {
			t.Run(fmt.Sprint(k, " ", name), func(t *testing.T) {
				t.Parallel() // to use all processors
				redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
					shape := func(r *driver.Request) { r.Kind = k }
					if k == driver.Semaphore {
						shape = permitsOf5
					}
					lastUse(t, open(t, s.Client(t), s), u, shape)
					time.Sleep(2 * moment)
					s.RequireNoKeys(t, s.Prefix(), 0)
				})
			})
		}
	}
}

// A limit that was set counts until the semaphore has not been used for a minute.
func TestResizedLimitIsKeptForAMinuteAfterTheLastUse(t *testing.T) {
	for name, u := range allUses {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, resized before %v", name, before), func(t *testing.T) {
				t.Parallel() // to use all processors
				bubble(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
					resize := sync.OnceFunc(func() {
						for i := range 3 { // which does not add up
							token := fmt.Sprintf("resize-%d-%d", time.Now().UnixNano(), i)
							require.NoError(t, d.Resize(context.Background(), "rule", token, 5))
						}
					})
					if before {
						resize()
					}
					lastUse(t, d, func(c comes) time.Time {
						return u(func(token string, ttl time.Duration) *party { defer resize(); return c(token, ttl) })
					}, permitsOf5)
					info, err := d.Inspect(context.Background(), driver.Semaphore, "rule")
					require.NoError(t, err)
					require.EqualValues(t, 5, info.Limit)
					time.Sleep(2 * moment)
					s.RequireNoKeys(t, s.Prefix(), 0)
				})
			})
		}
	}
}

// Rule 11. Somebody with a short lease or heartbeat must not shorten the life of a key
// that others count on.
func TestNobodyShortensTheLifeOfTheKey(t *testing.T) {
	each(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		rdb := s.Client(t)
		life := func() time.Duration { return rdb.PTTL(context.Background(), key(s)).Val() }
		a, b := holds(t, d, "a", time.Hour), join(t, d, "b", time.Second)
		require.Greater(t, life(), time.Hour)
		b.must(driver.Queued)
		b.must(driver.Queued)
		require.Greater(t, life(), time.Hour)
		c := join(t, d, "c", 2*time.Second) // a newcomer to a queue, and no short way as nobody has waited for so long
		c.must(driver.Queued)
		require.Greater(t, life(), time.Hour)
		c.release()
		unsettled := b.lease()
		unsettled.Unsettled = true
		require.NoError(t, d.Release(context.Background(), unsettled))
		require.Greater(t, life(), time.Hour)
		a.release()
		require.LessOrEqual(t, life(), time.Minute, "nobody counts on it any more")
	})
}
