package drivertest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// quick is what a cycle of acquiring and releasing takes at most on a store for which the
	// times of the suite are long enough as they are.
	quick = 5 * time.Millisecond

	// slowest is how many times longer they become at most. A lease of 150 ms is 3 s then.
	slowest = 20

	// measured is how many cycles tell how slow a store is.
	measured = 20

	// stale is when a store that was slow is measured again: what was in its way may be over.
	stale = 5 * time.Second
)

// scale is how long the times of the suite are for a store.
type scale struct {
	least, over time.Duration // what a store says that is [driver.Granular], else nothing
	pace        float64       // how slow it is, as measured; 1 or 0 is quick
}

// real is how long a time of the suite is for this store.
func (s scale) real(d time.Duration) time.Duration {
	coarse := float64(s.least) / float64(short)
	switch {
	case d <= 0 || d >= driver.MaxTTL:
		return d
	case d == driver.MinTTL && s.least > 0:
		return s.least
	case d <= driver.MinTTL: // It is at the border of what is allowed, or how often to look.
		return time.Duration(float64(d) * max(1, coarse))
	}
	// Stores count in whole milliseconds: of a lease that has a part of one they keep the whole.
	return time.Duration(float64(d) * max(1, coarse, s.pace)).Truncate(time.Millisecond)
}

// grace is how much longer than its TTL this store may keep a lease. One that ends leases by itself
// may be late on a busy machine. Others go by a clock, which a busy machine does not slow down.
func (s scale) grace() time.Duration { return max(2*s.over, grace) }

// patience bounds the wait for what should happen at once. It ends although the store is very
// slow: all the time in which nothing has happened says enough then.
func (s scale) patience() time.Duration {
	return time.Duration(float64(patience) * min(max(1, s.pace), 6))
}

// paces has the pace of each store.
var paces sync.Map

// store is the name of the store: that of the test whose subtests are its cases. A case that is no subtest has
// a store of its own.
func (t *test) store() string {
	name := t.Name()
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[:i]
	}
	return name
}

// pace is how many times slower than a quick one a store was when it was last measured.
type pace struct {
	mu     sync.Mutex
	factor float64 // 0 before that
	at     time.Time
}

// get measures the store if it was never measured, if that is no longer true, or if it was slow
// a while ago. Cases that come meanwhile wait for that, so that none disturbs it.
func (p *pace) get(untrue bool, measure func() time.Duration) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.factor == 0 || untrue || p.factor > 1 && time.Since(p.at) > stale {
		p.factor = min(max(float64(measure())/float64(quick), 1), slowest)
		p.at = time.Now()
	}
	return p.factor
}

// find sets the pace of this run, before any time of the suite is used. A run after one that was
// void is twice as slow as that at least: a machine that stands still now and then may not do so
// while it is measured.
func (t *test) find() {
	if t.pace > 0 || virtual() {
		return
	}
	p, _ := paces.LoadOrStore(t.store(), &pace{})
	t.pace = p.(*pace).get(t.void > 0, t.measure)
	t.pace = min(max(t.pace, 2*t.void), slowest)
	if t.pace > 1 {
		t.Logf("the store is slow: times are %.1f times as long", t.pace)
	}
}

// measure returns what all but one in twenty cycles take at most, with as many callers as
// there are tests that run in parallel. Each has a driver, as cases have, and a lock, as nothing
// is to be waited for.
func (t *test) measure() time.Duration {
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	callers := parallel()
	for range callers {
		d := t.opened()
		wg.Go(func() {
			for i := range 1 + (measured+callers-1)/callers {
				began := time.Now()
				err := t.cycle(d)
				if i > 0 || err != nil { // The first one has to connect.
					mu.Lock()
					took = append(took, time.Since(began))
					mu.Unlock()
				}
				if err != nil {
					return // It is for the cases to say what is wrong with that.
				}
			}
		})
	}
	wg.Wait()
	slices.Sort(took)
	return took[(95*len(took)+99)/100-1]
}

// cycle acquires a lock and releases it.
func (t *test) cycle(d driver.Driver) error {
	ctx, cancel := t.bounded()
	defer cancel()
	r := driver.Request{
		Kind:   driver.Mutex,
		Name:   t.unique(),
		Token:  fmt.Sprintf("drivertest-%016x%016x", rand.Uint64(), rand.Uint64()),
		Ask:    1,
		TTL:    t.real(long),
		Holder: "drivertest",
	}
	if _, err := d.Acquire(ctx, &r); err != nil {
		return err
	}
	return d.Release(ctx, driver.Lease{Kind: r.Kind, Name: r.Name, Token: r.Token, TTL: r.TTL})
}

// parallel is how many tests run in parallel at most.
func parallel() int {
	if f := flag.Lookup("test.parallel"); f != nil {
		if n, ok := f.Value.(flag.Getter).Get().(int); ok {
			return min(max(n, 1), 16)
		}
	}
	return 1
}

// virtual reports whether time is that of a testing/synctest bubble, which begins in the year
// 2000. There no store is slow and no machine late.
func virtual() bool { return time.Now().Year() < 2020 }
