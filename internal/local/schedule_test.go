package local_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
	"github.com/holdfast-go/holdfast/internal/local"
	"github.com/holdfast-go/holdfast/internal/session"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/referee"
)

var schedules = flag.Int("schedules", 400, "how many random schedules TestEverySchedule tries")

// process is a client of a store.
type process struct {
	*local.Registry
	t *testing.T
}

func newProcess(t *testing.T, store driver.Driver) *process {
	renew := func(ctx context.Context, entries []*keepalive.Entry, _ func(int)) []error {
		leases := make([]driver.Lease, len(entries))
		for i, e := range entries {
			leases[i] = e.Owner.(*local.Grant).Leased()
		}
		return store.Renew(ctx, leases)
	}
	wrap := func(op string, _ local.ID, err error) error { return fmt.Errorf("%s: %w", op, err) }
	return &process{local.NewRegistry(session.New(store), keepalive.New(nil, renew), wrap), t}
}

// end closes the process, which must have nothing left.
func (p *process) end() {
	require.NoError(p.t, errors.Join(p.Close()...))
	assert.Zero(p.t, p.InUse(), "locks that somebody uses")
}

// contend makes calls of all forms, with patience and without, until it has made so many.
func contend(t *testing.T, rng *rand.Rand, p *process, r *referee.Referee, options []*local.Options, calls int) {
	for range calls {
		shared, sync := rng.IntN(3) == 0, rng.IntN(2) == 0
		id := local.ID{Kind: driver.RWMutex, Name: "x"}
		w := local.Want{Shared: shared, Wait: rng.IntN(4) > 0, Sync: sync, Options: options[rng.IntN(len(options))]}
		ctx, cancel := context.WithCancel(t.Context())
		if rng.IntN(3) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(40))*time.Millisecond)
		}
		hold, pause := time.Duration(rng.IntN(3))*time.Millisecond, time.Duration(rng.IntN(4))*time.Millisecond
		held, err := p.Acquire(ctx, id, new(local.Cached), &w)
		if err == nil {
			fence, weight := int64(referee.Unseen), int64(lab.CrowdOf)
			if !sync && held.Fence() > 0 { // of a sync hold nobody sees it
				fence = held.Fence()
			}
			if shared {
				weight = 1
			}
			r.EnterWith(weight, fence)
			time.Sleep(hold)
			r.Leave(weight)
			switch {
			case !sync:
				assert.NoError(t, held.Release(ctx))
			default:
				parts, ok := p.TakeBack(id, new(local.Cached), shared, 1, nil)
				assert.True(t, ok)
				for _, last := range parts {
					assert.NoError(t, last.Hold.ReleaseBriefly(context.Background()))
				}
			}
		}
		cancel()
		time.Sleep(pause)
	}
}

// Goroutines of three processes that want one lock in all ways, and give up in the middle of
// it: one writer or some readers are in at a time, nobody is forgotten, and nothing is left.
func TestEverySchedule(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	for seed := range *schedules {
		ok := t.Run("", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(uint64(seed), 1))
				store, r := memdriver.New(), &referee.Referee{Limit: lab.CrowdOf}
				linger := time.Duration(rng.IntN(2)*rng.IntN(20)) * time.Millisecond
				options := []*local.Options{
					{TTL: time.Second, Logger: quiet, Linger: linger},
					{TTL: time.Second, Logger: quiet, Linger: linger},
					{TTL: 2 * time.Second, Logger: quiet},
					{TTL: time.Second, Logger: quiet, Strict: true},
				}
				var processes []*process
				var wg sync.WaitGroup
				for range 1 + rng.IntN(3) {
					p := newProcess(t, store)
					processes = append(processes, p)
					for range 1 + rng.IntN(8) {
						own := rand.New(rand.NewPCG(rng.Uint64(), 2))
						wg.Go(func() { contend(t, own, p, r, options, 12) })
					}
				}
				wg.Wait()
				for _, p := range processes {
					p.end()
				}
				info, err := store.Inspect(t.Context(), driver.RWMutex, "x")
				require.NoError(t, err)
				require.Empty(t, info.Holders)
				require.Empty(t, info.Queue)
				require.Positive(t, r.Entries())
				r.RequireFair(t, r.Entries())
			})
		})
		require.True(t, ok, "seed %d", seed)
	}
}
