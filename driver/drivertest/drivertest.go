// Package drivertest holds a driver to the contract of package driver.
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, func(t *testing.T) driver.Driver {
//			return mydriver.New(connect(t))
//		}, drivertest.Queue, drivertest.Fences)
//	}
//
// Each case is one property, and its name says which. The suite finds out by itself which
// abilities a driver has. A case that needs an [Ability] which the driver lacks is skipped,
// with the reason. If the caller named that ability, the case fails.
//
// Three cases, whose names end in WhateverHappens, take random steps with the driver and with a
// memdriver side by side. Both must answer alike. One that fails says after which few steps, and with
// which HOLDFAST_SEED; the default is always the same. In a bubble leases end in them, too.
//
// Leases of the suite last from 10 ms to a day, because a good part of the contract is
// about their end. Most of them last a fraction of a second. Bounds follow the times at
// which requests were sent and answered.
//
// The suite slows down with its store instead of failing it. The first case measures how long it
// takes to acquire a lock and release it, with as many callers as tests run in parallel. If 19 of
// 20 times that takes up to 5 ms, the times of the suite are as they stand here; if it takes n
// times that, each is n times as long, up to 20. A case that fails on a machine that was late is
// void, and is run again with times at least twice as long; after three such runs, while no other
// case of the package runs. A case that fails ten times is the driver's failure, however late the machine
// was. So is a broken promise, at once: its text has the word FOUL if no late machine explains it.
// In a bubble of testing/synctest no store is slow, and nothing is measured.
//
// Cases that find a rare fault by chance, such as the games and those whose names begin with Many, take twice as
// long if the environment has HOLDFAST_SOAK=1.
//
// If a store is [driver.Granular], each time in the suite is at least as many times longer as its
// shortest lease is longer than 150 ms. That takes minutes, mostly of waiting: run the
// cases of [Cases] in parallel.
package drivertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// Open returns a new driver, as another process would have one. All that it
// returns for one t lead to the same store. The suite closes them; what they
// were given is closed by Open, with t.Cleanup.
//
// Stores need not be empty nor apart: no two cases, and no two runs of a case,
// use the same name or token.
type Open func(t *testing.T) driver.Driver

// Run runs each of [Cases] as a subtest. The driver must have the abilities in
// must; other abilities may be missing.
func Run(t *testing.T, open Open, must ...Ability) {
	t.Helper()
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, open, must...) })
	}
}

// Case is one property of a driver.
type Case struct {
	Name string // the property, such as "SecondTokenIsBusy"

	// Form is Writer or AllPermits if this is a property of a Mutex, held by a lock of
	// another kind that is taken as a whole. There is a case of that name without it, too.
	Form string

	body func(*test)
}

// Run holds the driver to the property. It starts no subtests, so t may be that
// of a testing/synctest bubble. Cases of one store, with drivers of the same abilities, are subtests
// of one test: the first of them measures the store, and the first that needs an ability looks for it.
func (c Case) Run(t *testing.T, open Open, must ...Ability) {
	t.Helper()
	skipped, failed := c.judge(t, open, must)
	switch {
	case failed != "":
		t.Fatal(failed)
	case skipped != "":
		t.Skip(skipped)
	}
}

// crowd is for all cases of a package. They hold it for reading, but one that the others seem to
// disturb holds it alone.
var crowd sync.RWMutex

// judge runs the case until it has been told whether the driver has the property, but not for
// ever: a failure that comes each time is the driver's, however late the machine.
func (c Case) judge(t *testing.T, open Open, must []Ability) (skipped, failed string) {
	leave := func() {}
	if !virtual() { // Nobody is late in there, and a bubble must not wait for another.
		crowd.RLock()
		leave = crowd.RUnlock
	}
	defer func() { leave() }()
	void := 0.0
	for try := 1; ; try++ {
		if try == beside+1 && !virtual() {
			leave()
			crowd.Lock()
			leave = crowd.Unlock
		}
		ts := &test{T: t, open: open, must: must, shape: forms[0].shape, void: void}
		ts.name = ts.unique()
		ts.run(c.body)
		told := strings.Join(ts.failures, "\n")
		switch {
		case ts.skipped != "":
			return ts.skipped, ""
		case len(ts.failures) == 0:
			return "", ""
		case strings.Contains(told, foul), !ts.late.Load():
			return "", told
		case try == tries:
			return "", fmt.Sprintf("in each of %d runs, though the machine was late in all of them: %s", tries, told)
		}
		t.Logf("void, the machine was late; times were %.1f times as long: %s", max(1, ts.pace), told)
		void = max(1, ts.pace)
	}
}

// Cases returns all properties, for callers that want to run each in surroundings of its
// own.
func Cases() []Case {
	alone := slices.Concat(acquireCases, queueCases, pushCases, holdCases, releaseCases, unsettledCases,
		renewCases, expiryCases, fenceCases, raiseCases, noticeCases, nameCases, refusalCases, inspectCases, forceCases,
		attachCases, contextCases, closeCases, hammerCases)
	var all []Case
	for _, f := range forms {
		for _, c := range alone {
			all = append(all, c.as(f))
		}
	}
	for _, c := range slices.Concat(ownerCases, stealCases) { // a semaphore has none
		all = append(all, c.as(forms[0]), c.as(forms[1]))
	}
	for _, c := range slices.Concat(ownedWriterCases, readerCases, readerExpiryCases, writerCases, writerDowngradeCases, needing(downgrading),
		readerTwinCases, readerCrowdCases, readerNoticeCases, stealAllCases) {
		all = append(all, c.of(forms[1]))
	}
	for _, c := range slices.Concat(semaphoreCases, limitCases, permitDowngradeCases, needing(downgradingPermits), resizeCases,
		semaphoreTwinCases, permitCrowdCases) {
		all = append(all, c.of(forms[2]))
	}
	for _, c := range mutexTwinCases {
		all = append(all, c.of(forms[0]))
	}
	for _, c := range kindCases {
		all = append(all, Case{c.name, "", c.body})
	}
	return all
}

// form is a way to hold a lock alone. Each form keeps all the promises of a mutex.
type form struct {
	prefix string // of the names of its cases
	needs  []Ability
	shape  func(*driver.Request)
}

var forms = []form{
	{"", nil, func(r *driver.Request) { r.Kind = driver.Mutex }},
	{"Writer", []Ability{RWMutex}, func(r *driver.Request) { r.Kind = driver.RWMutex }},
	{"AllPermits", []Ability{Semaphore}, func(r *driver.Request) { r.Kind, r.Weight, r.Limit = driver.Semaphore, 5, 5 }},
}

// property is a case that has not been given a form.
type property struct {
	name string
	body func(*test)
}

// able are properties of drivers that have those abilities.
func able(all []property, abilities ...Ability) (cases []property) {
	for _, c := range all {
		cases = append(cases, property{c.name, func(t *test) {
			t.needs(abilities...)
			c.body(t)
		}})
	}
	return cases
}

// as is the same property of another form.
func (c property) as(f form) Case {
	return Case{f.prefix + c.name, f.prefix, func(t *test) {
		t.twin = f.prefix != ""
		c.of(f).body(t)
	}}
}

// of is a property of locks whose tokens have that form unless the case says otherwise.
func (c property) of(f form) Case {
	return Case{c.name, "", func(t *test) {
		t.needs(f.needs...)
		t.shape = f.shape
		c.body(t)
	}}
}

const (
	// short is the TTL of leases whose end a test waits for.
	short = 150 * time.Millisecond

	// long is the TTL of leases that must not end during a test.
	long = 6 * time.Second

	// grace is how much longer than its TTL a store may keep a lease, see also test.grace.
	// Stores add some of it so that a holder stops before they free the lock.
	grace = 500 * time.Millisecond

	// patience bounds the wait for what should happen at once.
	patience = 5 * time.Second
)

const (
	// A run that fails is void if something took so long that should have taken no time, or
	// that much longer than it should: the leases of the suite are short, and a loaded
	// machine must not fail a driver. A driver that is wrong fails again.
	tooLate = short / 5
	tries   = 10

	// beside is how many runs of a case may be void before no other case is run at the same time.
	beside = 3

	// foul begins what is told of a broken promise that no late machine explains, for all that
	// was granted is trusted by its holders. Such a run is not void.
	foul = "FOUL: "
)

// test is one run of a case. A failure is noted, and told when it is known to be due to the
// driver.
type test struct {
	*testing.T
	late    atomic.Bool
	skipped string

	mu       sync.Mutex
	failures []string

	open      Open
	processes []*process // the one that was asked for last is the last
	must      []Ability
	name      string // of the lock of this case
	scale
	void float64 // the pace of the run before, which was void; 0 if this is the first
	push bool    // needs drivers that hear of grants from the first one on

	shape func(*driver.Request) // the form of the lock of this case
	twin  bool                  // whether a mutex has the same case
}

// run runs a case on a goroutine of its own, which FailNow and Skip can end.
func (t *test) run(body func(*test)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		body(t)
	}()
	if virtual() {
		<-done
	} else if stood := stalls(done, time.Now); stood > t.real(tooLate) {
		t.late.Store(true)
	}
}

// stalls returns how late a goroutine was at worst that did nothing until done. The machine may
// stand still also between two calls of a case, where nobody else would notice.
func stalls(done <-chan struct{}, now func() time.Time) (worst time.Duration) {
	for {
		began := now()
		select {
		case <-done:
			return worst
		case <-time.After(tooLate / 3):
			worst = max(worst, now().Sub(began)-tooLate/3)
		}
	}
}

// Errorf notes a failure.
func (t *test) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}

// FailNow ends the case, as Skip does.
func (t *test) FailNow() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.failures) == 0 {
		t.failures = append(t.failures, "failed")
	}
	runtime.Goexit()
}

// Fatalf is Errorf followed by FailNow.
func (t *test) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	t.FailNow()
}

// Skipf says why the case cannot be run, and ends it.
func (t *test) Skipf(format string, args ...any) {
	t.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// took notes how long something took that should have taken so long.
func (t *test) took(began time.Time, should time.Duration) {
	if time.Since(began)-should > t.real(tooLate) {
		t.late.Store(true)
	}
}

// timed is a driver that notes when it is slow.
type timed struct {
	driver.Driver
	t *test
}

func (d timed) Unwrap() driver.Driver { return d.Driver }

func (d timed) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	defer d.t.took(time.Now(), 0)
	return d.Driver.Acquire(ctx, r)
}

func (d timed) Renew(ctx context.Context, leases []driver.Lease) []error {
	defer d.t.took(time.Now(), 0)
	return d.Driver.Renew(ctx, leases)
}

func (d timed) Release(ctx context.Context, l driver.Lease) error {
	defer d.t.took(time.Now(), 0)
	return d.Driver.Release(ctx, l)
}

// processes is how many drivers a case has. Tokens that come later share them in turn.
const processes = 3

// process is a driver of a case.
type process struct {
	timed
	listens bool // to news, as was seen
}

// driver returns another driver than it did before, which is closed when the test ends.
func (t *test) driver() driver.Driver {
	var p *process
	if len(t.processes) < processes {
		opened := t.opened()
		if g, ok := driver.As[driver.Granular](opened); ok {
			t.least, t.over = g.Granularity()
		}
		t.find()
		p = &process{timed: timed{opened, t}}
	} else {
		p, t.processes = t.processes[0], t.processes[1:]
	}
	t.processes = append(t.processes, p)
	if t.push && !p.listens {
		require.True(t, t.listens(p.timed), "Wake did not tell of a grant within %v", t.patience())
		p.listens = true
	}
	return p.timed
}

// opened opens one more driver, which nobody times.
func (t *test) opened() driver.Driver {
	opened := t.open(t.T)
	require.NotNil(t, opened, "open returned no driver")
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.T.Errorf("Close: %v", err)
		}
	})
	return opened
}

// unique returns a text that nobody else has, fit for a name.
func (t *test) unique() string {
	name := t.Name()
	return fmt.Sprintf("%s-%016x", name[max(0, len(name)-100):], rand.Uint64())
}

// bounded returns a context for one request.
func (t *test) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), t.patience())
}

// call is bounded for one call that takes no time, and ends with it.
func (t *test) call() (context.Context, context.CancelFunc) {
	began := time.Now()
	ctx, cancel := t.bounded()
	return ctx, func() {
		t.took(began, 0)
		cancel()
	}
}

// pass lets time of the suite pass on the store's clock. It is for the one thing that cannot
// be waited for in another way: a store tells nobody that a lease, or the patience
// with a silent waiter, has come to its end.
func pass(t *test, d time.Duration) {
	t.sleep(t.real(d))
}

// silence lasts until a waiter with that TTL that says nothing may have lost its place.
func (t *test) silence(ttl time.Duration) {
	t.sleep(t.real(ttl) + t.over)
}

func (t *test) sleep(d time.Duration) {
	defer t.took(time.Now(), d)
	time.Sleep(d)
}
