package drivertest

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// wrong is a store that is asked for something else than what was asked for.
type wrong struct {
	*memdriver.Driver
	request func(*driver.Request)
	lease   func(*driver.Lease)
	answer  func(*driver.Grant)
	force   func(d *memdriver.Driver, k driver.Kind, name string) error
}

func (w wrong) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	asked := *r
	if w.request != nil {
		w.request(&asked)
	}
	g, err := w.Driver.Acquire(ctx, &asked)
	if w.answer != nil {
		w.answer(&g)
	}
	return g, err
}

func (w wrong) Release(ctx context.Context, l driver.Lease) error {
	if w.lease != nil {
		w.lease(&l)
	}
	return w.Driver.Release(ctx, l)
}

func (w wrong) ForceRelease(ctx context.Context, k driver.Kind, name string) error {
	if w.force != nil {
		return w.force(w.Driver, k, name)
	}
	return w.Driver.ForceRelease(ctx, k, name)
}

// Games that find nothing may be blind. A difference is told by a few steps and a seed.
func TestGamesFindWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		wrong wrong
		told  string
	}{
		"nothing is": {},
		"a straggler takes the lock": {
			wrong: wrong{lease: func(l *driver.Lease) { l.Unsettled = false }}, told: "want holdfast: lock not held",
		},
		"leases last twice as long": {wrong: wrong{request: func(r *driver.Request) { r.TTL *= 2 }}, told: "TimeLeft"},
		"fences repeat":             {wrong: wrong{answer: func(g *driver.Grant) { g.Fence = min(g.Fence, 1) }}, told: "FOUL: "},
		"all come in for an owner":  {wrong: wrong{request: func(r *driver.Request) { r.Owner = "o" }}, told: "Owner:o"},
		"nobody may be turned away": {wrong: wrong{request: func(r *driver.Request) { r.MaxWaiters = 0 }}, told: "Full"},
		"force does nothing": {
			wrong: wrong{force: func(*memdriver.Driver, driver.Kind, string) error { return nil }}, told: "{force 0}",
		},
	} {
		t.Run(name+"/games", func(t *testing.T) { // a store of its own, with other abilities
			synctest.Test(t, func(t *testing.T) {
				w := c.wrong
				w.Driver = memdriver.New()
				_, failed := mutexTwinCases[0].of(forms[0]).judge(t, func(*testing.T) driver.Driver { return w }, nil)
				if c.told == "" {
					require.Empty(t, failed)
					return
				}
				require.Contains(t, failed, c.told)
				_, steps, ok := strings.Cut(failed, "HOLDFAST_SEED=")
				require.True(t, ok, failed)
				require.LessOrEqual(t, strings.Count(steps, "{"), 6, failed)
			})
		})
	}
}
