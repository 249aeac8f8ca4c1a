package telemetry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// outcome is something that can become of a lock, and all that is told of it.
type outcome struct {
	run    func(l *lab.Lab, e *telemetry)
	spans  []string
	counts map[string]int64
	slow   bool // takes a second, beside others
}

// The beginnings of what is told most often.
const (
	acquired = "acquire mutex exclusive: attempts=1 contended=false fencing_token=N outcome=acquired wakeups.local=0 wakeups.notify=0 wakeups.poll=0"
	waitedIn = "acquire mutex exclusive: attempts=1 contended=true "
	released = "release mutex exclusive: outcome=released"

	acquiredFree = "acquire.duration contended=false mode=exclusive outcome=acquired primitive=mutex"
	heldTillEnd  = "hold.duration end_reason=released mode=exclusive primitive=mutex"
)

var outcomes = map[string]outcome{
	"free": {
		run: func(l *lab.Lab, e *telemetry) {
			l.GiveBack(l.Lease(e.on(l.Far()), "x"))
		},
		spans:  []string{acquired, "hold mutex exclusive: end_reason=released renewals=0", released},
		counts: map[string]int64{acquiredFree: 1, heldTillEnd: 1},
	},
	"sync forms": {
		run: func(l *lab.Lab, e *telemetry) {
			mu := e.on(l.Far()).Mutex("x")
			mu.Lock()
			mu.Unlock()
		},
		spans:  []string{acquired, "hold mutex exclusive: end_reason=released renewals=0", released},
		counts: map[string]int64{acquiredFree: 1, heldTillEnd: 1},
	},
	"released twice": {
		run: func(l *lab.Lab, e *telemetry) {
			lease := l.Lease(e.on(l.Far()), "x")
			l.GiveBack(lease)
			require.ErrorIs(l.T, lease.Release(l.T.Context()), holdfast.ErrNotHeld)
		},
		spans: []string{acquired, "hold mutex exclusive: end_reason=released renewals=0", released,
			"release mutex exclusive: error.type=not_held outcome=error ERROR"},
		counts: map[string]int64{acquiredFree: 1, heldTillEnd: 1},
	},
	"woken": {
		run: func(l *lab.Lab, e *telemetry) {
			c, held := l.Far(), l.Lease(l.Near(), "x")
			hearing(l, c)
			w := l.Wait(e.on(c), "x")
			l.UntilQueue("x", 1)
			l.GiveBack(held)
			l.GiveBack(w.Granted(lab.Soon))
		},
		spans: []string{waitedIn + "fencing_token=N outcome=acquired wakeups.local=0 wakeups.notify=1 wakeups.poll=0",
			"hold mutex exclusive: end_reason=released renewals=0", released},
		counts: map[string]int64{
			"acquire.duration contended=true mode=exclusive outcome=acquired primitive=mutex": 1,
			"wakeups source=notify": 1, heldTillEnd: 1,
		},
	},
	"polling": { // the message that it was granted is lost
		slow: true,
		run: func(l *lab.Lab, e *telemetry) {
			c, held := l.Far(holdfast.WithTTL(3*time.Second)), l.Lease(l.Near(), "x")
			hearing(l, c)
			w := l.Wait(e.on(c), "x")
			l.UntilQueue("x", 1)
			l.Link.DropPush(func(_, payload string) bool { return !strings.HasPrefix(payload, "ping ") })
			l.GiveBack(held)
			l.GiveBack(w.Granted(lab.Soon))
		},
		spans: []string{"acquire mutex exclusive: attempts=2 contended=true fencing_token=N outcome=acquired wakeups.local=0 wakeups.notify=0 wakeups.poll=1",
			"hold mutex exclusive: end_reason=released renewals=0", released},
		counts: map[string]int64{
			"acquire.duration contended=true mode=exclusive outcome=acquired primitive=mutex": 1,
			"wakeups source=poll": 1, heldTillEnd: 1,
		},
	},
	"missed": {
		run: func(l *lab.Lab, e *telemetry) {
			held := l.Lease(l.Near(), "x")
			_, err := e.on(l.Far()).Mutex("x").TryLease(l.T.Context())
			require.ErrorIs(l.T, err, holdfast.ErrLocked)
			l.GiveBack(held)
		},
		spans:  []string{waitedIn + "outcome=not_acquired wakeups.local=0 wakeups.notify=0 wakeups.poll=0"},
		counts: map[string]int64{"acquire.duration contended=true mode=exclusive outcome=not_acquired primitive=mutex": 1},
	},
	"missed in the doorway": {
		run: func(l *lab.Lab, e *telemetry) {
			c := l.Far()
			c.Mutex("x").Lock()
			require.False(l.T, e.on(c).Mutex("x").TryLock())
			c.Mutex("x").Unlock() // which is not told of: it was not seen to begin
		},
		spans:  []string{"acquire mutex exclusive: attempts=0 contended=true outcome=not_acquired wakeups.local=0 wakeups.notify=0 wakeups.poll=0"},
		counts: map[string]int64{"acquire.duration contended=true mode=exclusive outcome=not_acquired primitive=mutex": 1},
	},
	"canceled":                 giveUp("canceled", func(w *lab.Pending) { w.Cancel(nil) }),
	"canceled with a cause":    giveUp("canceled", func(w *lab.Pending) { w.Cancel(errors.New("the user has left")) }),
	"the client was closed":    closedWhileWaiting,
	"timed out":                timeOut(context.DeadlineExceeded),
	"timed out, with a cause":  timeOut(errors.New("too slow")),
	"timed out by the option":  timeOut(nil),
	"held already":             heldAlready,
	"the store refused":        storeRefuses,
	"nested":                   nested,
	"lost":                     taken,
	"expired":                  expires,
	"permits":                  somePermits,
	"readers":                  reading,
	"downgraded":               lowered,
	"a renewal failed":         renewalFails,
	"given back by a hook":     givenBack,
	"kept from the caller":     keptBack,
	"renewed after its end":    late,
	"not released, but closed": closedWhileHolding,
}

// on makes a client tell.
func (e *telemetry) on(c *holdfast.Client) *holdfast.Client {
	c.AddHook(e.hook)
	return c
}

// All that is told of each outcome, and nothing else; and what goes up and down has come
// down again. A token is told nowhere, nor is it in the log, which the lab looks at.
func TestEveryOutcomeIsTold(t *testing.T) {
	for name, o := range outcomes {
		t.Run(name, func(t *testing.T) {
			where := lab.Everywhere
			if o.slow {
				t.Parallel()
				where = lab.WithPatience
			}
			where(t, func(t *testing.T, l *lab.Lab) {
				l.Remember()
				e := newTelemetry(t, holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
				o.run(l, e)
				e.quiet(l)
				assert.ElementsMatch(t, o.spans, e.told())
				assert.Equal(t, o.counts, e.counted())
				spans, metric := e.releases()
				assert.Equal(t, spans, metric, "FOUL: releases")
				lab.RequireNoToken(t, e.text())
			})
		})
	}
}
