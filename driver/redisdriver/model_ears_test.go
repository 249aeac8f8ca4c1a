package redisdriver_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// ears is a client whose subscriptions can be broken while its commands get through: an
// ACL, a half-open connection, a node of a Cluster that was cut off from the others.
type ears struct {
	redis.UniversalClient
	subscriber *redis.Client

	mu     sync.Mutex
	conns  []net.Conn
	deaf   bool
	breaks int
}

// The driver waits longer after each failure, up to 10 s, which doHear has to wait for;
// after mostBreaks doDeafen would have to, too.
const mostBreaks = 4

func newEars(t *testing.T, s *redistest.Server) *ears {
	e := &ears{UniversalClient: s.Client(t)}
	e.subscriber = s.Client(t, func(o *redis.Options) {
		dial := o.Dialer
		if dial == nil {
			dial = new(net.Dialer).DialContext
		}
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.deaf {
				return nil, errors.New("deaf")
			}
			conn, err := dial(ctx, network, addr)
			e.conns = append(e.conns, conn)
			return conn, err
		}
	})
	return e
}

func (e *ears) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return e.subscriber.Subscribe(ctx, channels...)
}

func (e *ears) cut() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deaf = true
	e.breaks++
	for _, conn := range e.conns {
		_ = conn.Close()
	}
	e.conns = nil
}

func (e *ears) mend() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deaf = false
}

// A long patience lets a waiter see its client break and mend more than once.
var deafDays = []action{
	doAsk, doAsk, doAsk, doAsk, doAsk, doAsk, doAsk, doRelease, doRelease, doRelease, doUnsettled,
	doRenew, doStraggle, doForce, doPass, doEdge, doDeafen, doDeafen, doHear, doHear,
}

// Rule 7 of the design: a waiter that seems to have gone is passed over, but keeps its place.
func TestModelWithDeafClientsInVirtualTime(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			steps := stepsOf(k, []int64{24000, 60000, 600000, 600000}, []int64{1, 50, 3000, 14000}, nil, actionsOf(k, deafDays)...)
			rapid.Check(t, func(rt *rapid.T) { playDeaf(t, rt, k, steps.Draw(rt, "steps")) })
		})
	}
}

func playDeaf(t *testing.T, rt *rapid.T, k driver.Kind, steps []modelStep) {
	var err error
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		var all []*ears
		var drivers []*redisdriver.Driver
		for range 2 {
			e := newEars(t, s)
			all, drivers = append(all, e), append(drivers, warm(t, e, s.Prefix()))
		}
		w := newWorld(k, s.Prefix(), "model", s.Client(t), drivers, bubbleClock{}, &forms{})
		w.ears = all
		err = w.play(steps)
		for _, d := range drivers {
			require.NoError(t, d.Close())
		}
	})
	if err != nil {
		rt.Fatalf("FOUL: %v\n%s", err, listing(steps))
	}
}
