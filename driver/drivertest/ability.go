package drivertest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redlock"
)

// Ability is something that the contract leaves to a driver.
type Ability string

// The abilities.
const (
	Queue   Ability = "queue"   // requests that Wait are Queued, and served in order
	Push    Ability = "push"    // a grant to a waiter is told through Wake
	Hint    Ability = "hint"    // Queued answers say when to RetryAfter
	Fences  Ability = "fences"  // grants have a fence
	Inspect Ability = "inspect" // driver.Inspector
	List    Ability = "list"    // driver.Lister
	Force   Ability = "force"   // driver.Forcer
	Steal   Ability = "steal"   // driver.Stealer
	Raise   Ability = "raise"   // redlock.FenceRaiser
	Notice  Ability = "notice"  // driver.Notifier, and Request.Notice
	Whose   Ability = "whose"   // Queued and Busy answers say who holds the lock
	Texts   Ability = "texts"   // the store keeps Request.Holder, and since when a token holds; else it shows the token
	Tags    Ability = "tags"    // Inspect shows the Lease.HolderTag of a renewal

	Owner  Ability = "owner"  // Request.Owner
	Attach Ability = "attach" // driver.Attacher

	RWMutex   Ability = "rwmutex"   // the kind driver.RWMutex
	Semaphore Ability = "semaphore" // the kind driver.Semaphore
	Downgrade Ability = "downgrade" // driver.Downgrader
	Resize    Ability = "resize"    // driver.Resizer
)

// needs ends the test if the driver lacks one of the abilities.
func (t *test) needs(abilities ...Ability) {
	for _, a := range abilities {
		why := t.lacks(a)
		switch {
		case why == "":
		case slices.Contains(t.must, a):
			t.Fatalf("drivertest: the driver must have the ability %q, but %s", a, why)
		default:
			t.Skipf("drivertest: needs the ability %q, but %s", a, why)
		}
		t.push = t.push || a == Push
	}
}

// queues is needs of a queue, with drivers that hear of grants if they can.
func (t *test) queues() {
	t.needs(Queue)
	t.push = t.has(Push)
}

// has reports whether the driver has the ability, for a check beside the point of
// a test; the point itself is a case that needs it.
func (t *test) has(a Ability) bool {
	return t.lacks(a) == ""
}

// seen has each ability that a case has seen in its store. Only those: a driver that seems to lack one on a
// late machine is asked again.
var seen sync.Map

// lacks says what is wrong if the driver lacks the ability.
func (t *test) lacks(a Ability) string {
	key := [2]string{t.store(), string(a)}
	if _, ok := seen.Load(key); ok {
		return ""
	}
	why := probes[a](t)
	if why == "" {
		seen.Store(key, nil)
	}
	return why
}

// probes say what is wrong if the driver lacks the ability, each on a lock of its
// own.
var probes = map[Ability]func(*test) string{
	Attach:    is[driver.Attacher],
	Owner:     func(t *test) string { return t.knows(driver.Request{Kind: driver.Mutex, Owner: "A"}) },
	RWMutex:   func(t *test) string { return t.knows(driver.Request{Kind: driver.RWMutex}) },
	Semaphore: func(t *test) string { return t.knows(driver.Request{Kind: driver.Semaphore, Weight: 1, Limit: 1}) },
	Downgrade: is[driver.Downgrader],
	Resize:    is[driver.Resizer],
	Queue: func(t *test) string {
		_, _, g := t.probe()
		if g.Status == driver.Busy {
			return "a request that waits is answered Busy"
		}
		return ""
	},
	Push: func(t *test) string {
		if !t.listens(t.driver()) {
			return "Wake never tells that a waiter was granted the lock"
		}
		return ""
	},
	Hint: func(t *test) string {
		if _, _, g := t.probe(); g.RetryAfter == 0 {
			return "RetryAfter of the first waiter is 0"
		}
		return ""
	},
	Fences: func(t *test) string {
		if holder, _, _ := t.probe(); holder.grant.Fence == 0 {
			return "a grant has Fence 0"
		}
		return ""
	},
	Inspect: is[driver.Inspector],
	List:    is[driver.Lister],
	Whose: func(t *test) string {
		holder, waiter := t.pair(heldBy("holder"))
		holder.lock()
		if waiter.askOnce().Holder == "" {
			return "the answer to a token that cannot have the lock has no Holder"
		}
		return ""
	},
	Texts: func(t *test) string {
		d, name := t.driver(), t.unique()
		holder, waiter := t.contender(d, named(name), heldBy("a text")), t.contender(d, named(name))
		holder.lock()
		shown := waiter.askOnce().Holder
		if _, ok := driver.As[driver.Inspector](holder.d); ok {
			shown = t.inspect(holder).Holders[0].Holder
		}
		if shown != "a text" {
			return fmt.Sprintf("a holder is shown as %q, and not by its text", shown)
		}
		return ""
	},
	Tags: func(t *test) string {
		a := t.contender(t.driver(), named(t.unique()))
		i, ok := driver.As[driver.Inspector](a.d)
		if !ok {
			return "it is no driver.Inspector"
		}
		a.lock()
		a.say("tag")
		ctx, cancel := t.bounded()
		defer cancel()
		info, err := i.Inspect(ctx, a.req.Kind, a.req.Name)
		require.NoError(t, err)
		if len(info.Holders) != 1 || info.Holders[0].Tag == "" {
			return "Inspect does not show the tag of a renewal"
		}
		return ""
	},
	Raise: is[redlock.FenceRaiser],
	Notice: func(t *test) string {
		if n, ok := driver.As[driver.Notifier](t.driver()); !ok || !n.Notices() {
			return "it is no driver.Notifier"
		}
		return ""
	},
	Steal: is[driver.Stealer],
	Force: is[driver.Forcer],
}

// is says what is wrong if the driver does not implement T.
func is[T any](t *test) string {
	if _, ok := driver.As[T](t.driver()); !ok {
		return fmt.Sprintf("it is no %v", reflect.TypeFor[T]())
	}
	return ""
}

// can is the driver of a token as something that it must be.
func can[T any](c *contender) T {
	able, ok := driver.As[T](c.d)
	require.True(c.t, ok, "it is no %v", reflect.TypeFor[T]())
	return able
}

// knows tells whether the driver has locks of that kind.
func (t *test) knows(r driver.Request) string {
	c := t.contender(t.driver(), named(t.unique()))
	c.req.Kind, c.req.Weight, c.req.Limit, c.req.Owner = r.Kind, r.Weight, r.Limit, r.Owner
	ctx, cancel := t.bounded()
	defer cancel()
	_, err := c.ask(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return fmt.Sprintf("locks of kind %q with owner %q are refused as unsupported", r.Kind, r.Owner)
	}
	require.NoError(t, err, "Acquire")
	c.release()
	return ""
}

// probe returns a holder, a token that would like to wait for it, and the answer
// to that.
func (t *test) probe() (holder, waiter *contender, answer driver.Grant) {
	d := t.driver()
	name := t.unique()
	holder, waiter = t.contender(d, named(name)), t.contender(d, named(name), waiting)
	holder.lock()
	return holder, waiter, waiter.askOnce()
}

// listens makes sure that d has been told of a grant. The first calls of Wake can be
// missing because a driver may begin to listen only when somebody waits.
func (t *test) listens(d driver.Driver) bool {
	asked := 0
	for start := time.Now(); time.Since(start) < t.patience(); {
		name := t.unique()
		holder, waiter := t.contender(d, named(name)), t.contender(d, named(name), waiting)
		holder.lock()
		if waiter.askOnce().Status == driver.Busy {
			return false // It does not even have a queue.
		}
		holder.release()
		news := waiter.told(t.real(50 * time.Millisecond))
		waiter.release()
		switch news {
		case driver.Granted:
			return true
		case driver.Queued:
			// A driver may have those who are granted the lock ask. So does one whose grants a
			// replica has to confirm, and it will always.
			if asked++; asked == 3 {
				return false
			}
		}
	}
	return false
}

// told returns Granted if Wake tells of that, else Queued if it has the waiter ask, else 0.
func (c *contender) told(within time.Duration) (news driver.Status) {
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for {
		select {
		case g := <-c.wakes:
			switch {
			case g.Status == driver.Granted:
				return g.Status
			case g.Status == driver.Queued && !g.Reconnect:
				news = g.Status
			}
		case <-timeout.C:
			return news
		}
	}
}

// woken waits for a Wake with that status.
func (c *contender) woken(s driver.Status, within time.Duration) (driver.Grant, bool) {
	return heard(c.wakes, s, within)
}

// heard waits for news of that status.
func heard(news <-chan driver.Grant, s driver.Status, within time.Duration) (driver.Grant, bool) {
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for {
		select {
		case g := <-news:
			if g.Status == s {
				return g, true
			}
		case <-timeout.C:
			return driver.Grant{}, false
		}
	}
}
