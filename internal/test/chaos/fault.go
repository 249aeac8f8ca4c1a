package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// fault is something bad that can be done to servers, links or workers.
type fault struct {
	kind string
	part string // what it is done to: one fault at a time
	set  set

	// never are sets of faults beside which this one must not happen.
	never []set

	// elects says that another server takes the place of a master.
	elects bool

	// symptoms are the classes of trouble of which workers have at least one if they feel
	// the fault. If there are none, do says whether they felt it.
	symptoms []string

	// do returns when the fault is over.
	do func(rng *rand.Rand) (felt bool, err error)
}

// set says what the library promises while faults happen.
type set string

const (
	safe set = "safe" // everything
	// Increasing fences, and that is all. Data and clock are apart since fences increase
	// over either, but not over both at once: see promise 5. A step by an hour and back loses
	// data, too: keys that were used before it, or during it, expire.
	data  set = "data"  // the store forgets
	times set = "clock" // the clock of the store steps
)

// Classes of trouble that mean that a connection broke, or a command was not answered.
const (
	broken    = "net"
	dials     = "dial"
	late      = "slow"
	suspended = "gap"
	newEars   = "reconnect"
)

func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)+1))
}

// server is one that can be hurt, and a way to give it orders that avoids the proxy.
type server struct {
	*redistest.Server
	admin *redis.Client
}

func newServer(h *host, s *redistest.Server) *server {
	o := s.Options()
	o.MaxRetries, o.ReadTimeout, o.ContextTimeoutEnabled = -1, 5*time.Second, true
	admin := redis.NewClient(o)
	h.Cleanup(func() { _ = admin.Close() })
	return &server{s, admin}
}

func (s *server) order(words ...any) error {
	return s.admin.Do(context.Background(), words...).Err()
}

// during gives an order, and another one some time later.
func (s *server) during(d time.Duration, begin, end []any) error {
	if err := s.order(begin...); err != nil {
		return err
	}
	time.Sleep(d)
	return s.order(end...)
}

func words(w ...any) []any { return w }

// serverFaults are those that any server stands without a loss of data. pick says which of
// them to hurt. None takes longer than most.
func serverFaults(part string, most time.Duration, pick func() *server) []fault {
	simple := func(kind string, f func(s *server, d time.Duration) error, symptoms ...string) fault {
		return fault{kind: kind, part: part, set: safe, symptoms: symptoms, do: func(rng *rand.Rand) (bool, error) {
			return false, f(pick(), between(rng, most/5, most))
		}}
	}
	return []fault{
		simple("server: SIGSTOP", func(s *server, d time.Duration) error {
			s.Pause()
			time.Sleep(d)
			s.Resume()
			return nil
		}, late, broken),
		simple("server: DEBUG SLEEP", func(s *server, d time.Duration) error {
			return s.order("debug", "sleep", d.Seconds())
		}, late, broken),
		simple("server: CLIENT PAUSE", func(s *server, d time.Duration) error {
			defer time.Sleep(d)
			return s.order("client", "pause", d.Milliseconds())
		}, late, broken),
		simple("server: CLIENT KILL normal", func(s *server, _ time.Duration) error {
			return s.order("client", "kill", "type", "normal")
		}, broken, dials),
		simple("server: CLIENT KILL pubsub", func(s *server, _ time.Duration) error {
			return s.order("client", "kill", "type", "pubsub")
		}, newEars, dials),
		simple("server: SCRIPT FLUSH", func(s *server, _ time.Duration) error {
			return s.order("script", "flush")
		}, "NOSCRIPT"),
		simple("server: maxmemory 1", func(s *server, d time.Duration) error {
			return s.during(d, words("config", "set", "maxmemory", 1), words("config", "set", "maxmemory", 0))
		}, "OOM"),
	}
}

// rightFaults take rights from the user that the workers are.
func rightFaults(part string, s *server, user string) []fault {
	change := func(kind string, symptoms []string, away, back string) fault {
		return fault{kind: kind, part: part, set: safe, symptoms: symptoms, do: func(rng *rand.Rand) (bool, error) {
			return false, s.during(between(rng, 200*time.Millisecond, 800*time.Millisecond),
				words("acl", "setuser", user, away), words("acl", "setuser", user, back))
		}}
	}
	return []fault{
		change("server: ACL without scripts", []string{"NOPERM"}, "-@scripting", "+@scripting"),
		change("server: ACL without channels", []string{"NOPERM", newEars}, "resetchannels", "allchannels"),
	}
}

// restart kills a server, and starts it again after a while and after what f does then.
func restart(part, kind string, s *server, class set, symptom string, while time.Duration, f func() error) fault {
	return fault{kind: kind, part: part, set: class, symptoms: []string{symptom}, do: func(rng *rand.Rand) (bool, error) {
		s.Kill()
		time.Sleep(between(rng, 0, while))
		if err := f(); err != nil {
			return false, err
		}
		s.Restart()
		// After many failed dials a client of go-redis fails for up to a second without another.
		return false, eventually("an answer to orders", func() bool { return s.order("ping") == nil })
	}}
}

// dataFaults make a server with an append-only file forget what it had, or a part of it.
func dataFaults(part string, s *server) []fault {
	ctx := context.Background()
	var dir string
	forget := restart(part, "server: restart without data", s, data, broken, time.Second, func() error {
		return os.RemoveAll(filepath.Join(dir, "appendonlydir"))
	})
	rollback := restart(part, "server: restart with old data", s, data, broken, time.Second, func() error { return nil })
	return []fault{
		flushAll(part, s),
		before(forget, func(*rand.Rand) error {
			dir = s.admin.ConfigGet(ctx, "dir").Val()["dir"]
			if dir == "" {
				return fmt.Errorf("the server does not tell where its data are")
			}
			return nil
		}),
		before(rollback, func(rng *rand.Rand) error {
			err := s.order("config", "set", "appendonly", "no")
			time.Sleep(between(rng, 200*time.Millisecond, time.Second))
			return err
		}),
	}
}

// before adds a first step to a fault.
func before(f fault, first func(*rand.Rand) error) fault {
	then := f.do
	f.do = func(rng *rand.Rand) (bool, error) {
		if err := first(rng); err != nil {
			return false, err
		}
		return then(rng)
	}
	return f
}

// flushAll empties those of the servers that answer.
func flushAll(part string, servers ...*server) fault {
	return fault{kind: "server: FLUSHALL", part: part, set: data, do: func(*rand.Rand) (felt bool, err error) {
		for _, s := range servers {
			if n, err := s.admin.DBSize(context.Background()).Result(); err == nil && s.order("flushall") == nil {
				felt = felt || n > 0
			}
		}
		return felt, nil
	}}
}

// clockFaults step the wall clock of a server. A step within the promises is not undone.
func clockFaults(part string, s *server, c *redistest.Clock) []fault {
	var now time.Duration
	step := func(by time.Duration) (felt bool, err error) {
		before, err := s.ahead()
		if err != nil {
			return false, err
		}
		now += by
		c.Set(now)
		after, err := s.ahead()
		moved := after - before
		return by > 0 && moved > by/2 || by < 0 && moved < by/2, err
	}
	away := func(kind string, by time.Duration) fault {
		return fault{kind: kind, part: part, set: times, do: func(rng *rand.Rand) (bool, error) {
			felt, err := step(by)
			time.Sleep(between(rng, ttl/2, 3*ttl))
			_, undone := step(-by)
			if err == nil {
				err = undone
			}
			return felt, err
		}}
	}
	return []fault{
		away("server: clock 1 h ahead, and back", time.Hour),
		away("server: clock 1 h behind, and back", -time.Hour),
		{kind: "server: clock forward by 40 ms", part: part, set: safe, do: func(*rand.Rand) (bool, error) {
			defer time.Sleep(ttl + ttl/10)     // no lease sees two steps
			return step(40 * time.Millisecond) // less than the grace
		}},
		{kind: "server: clock back by 1 to 10 s", part: part, set: safe, never: []set{data, times}, do: func(rng *rand.Rand) (bool, error) {
			return step(-between(rng, time.Second, 10*time.Second))
		}},
	}
}

// ahead returns by how much the clock of the server is ahead of ours.
func (s *server) ahead() (time.Duration, error) {
	t, err := s.admin.Time(context.Background()).Result()
	return time.Until(t), err
}

// linkFaults befall the network between all workers and one server.
func linkFaults(part string, p *redistest.Proxy) []fault {
	hole := func(kind string, open func(bool)) fault {
		return fault{kind: "link: " + kind, part: part, set: safe, do: func(rng *rand.Rand) (bool, error) {
			before := p.Swallowed()
			open(true)
			time.Sleep(between(rng, 200*time.Millisecond, 1500*time.Millisecond))
			open(false)
			p.Cut() // no TCP stream goes on after a gap
			return p.Swallowed() > before, nil
		}}
	}
	struck := func(caught <-chan struct{}) bool {
		select {
		case <-caught:
			return true
		case <-time.After(time.Second):
			return false
		}
	}
	return []fault{
		hole("black hole", p.BlackHole),
		hole("black hole for requests", p.BlackHoleRequests),
		hole("black hole for replies", p.BlackHoleReplies),
		{kind: "link: black hole for pub/sub", part: part, set: safe, do: func(rng *rand.Rand) (bool, error) {
			var took atomic.Int64
			p.DropPush(func(string, string) bool { took.Add(1); return true })
			time.Sleep(between(rng, 500*time.Millisecond, 2*time.Second))
			p.DropPush(nil)
			return took.Load() > 0, nil
		}},
		{kind: "link: reset", part: part, set: safe, symptoms: []string{broken, dials}, do: func(*rand.Rand) (bool, error) {
			p.Cut()
			return false, nil
		}},
		{kind: "link: refused", part: part, set: safe, symptoms: []string{broken, dials}, do: func(rng *rand.Rand) (bool, error) {
			p.Refuse(true)
			p.Cut()
			time.Sleep(between(rng, 100*time.Millisecond, time.Second))
			p.Refuse(false)
			return false, nil
		}},
		{kind: "link: latency", part: part, set: safe, symptoms: []string{late}, do: func(rng *rand.Rand) (bool, error) {
			p.Delay(between(rng, 60*time.Millisecond, 150*time.Millisecond))
			time.Sleep(between(rng, 500*time.Millisecond, 1500*time.Millisecond))
			p.Delay(0)
			return false, nil
		}},
		{kind: "link: lost reply", part: part, set: safe, do: func(*rand.Rand) (bool, error) {
			return struck(p.DropReply(redistest.Containing("evalsha"))), nil
		}},
		{kind: "link: late request", part: part, set: safe, do: func(rng *rand.Rand) (bool, error) {
			caught, release := p.HoldRequest(redistest.Containing("evalsha"))
			defer release()
			if !struck(caught) {
				return false, nil
			}
			time.Sleep(between(rng, ttl/4, 2*ttl))
			return true, nil
		}},
	}
}

// workerFaults hurt worker processes, each a part of its own.
func workerFaults(w *workers, killed func()) []fault {
	var all []fault
	for i := range w.present {
		part := fmt.Sprint("worker ", i)
		all = append(all,
			fault{kind: "worker: SIGSTOP beyond the TTL", part: part, set: safe, symptoms: []string{suspended}, do: func(rng *rand.Rand) (bool, error) {
				w.freeze(i, between(rng, ttl+ttl/10, 5*ttl/2))
				return false, nil
			}},
			fault{kind: "worker: SIGKILL", part: part, set: safe, do: func(rng *rand.Rand) (bool, error) {
				w.replace(i, between(rng, 0, ttl))
				killed()
				return true, nil
			}},
		)
	}
	return all
}
