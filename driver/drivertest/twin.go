package drivertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/seed"
)

// What may happen to a lock is too much to be written down case by case. Package memdriver is the
// contract in as few lines as there can be. So random steps are taken with the driver and with a
// memdriver, side by side, and both must answer alike.
var (
	mutexTwinCases     = []property{{"TokensAreServedInOrderWhateverHappens", (*test).games}}
	readerTwinCases    = []property{{"ReadersAndWritersAreServedInOrderWhateverHappens", (*test).games}}
	semaphoreTwinCases = []property{{"WeightsAreServedInOrderWhateverHappens", (*test).games}}
)

// games plays some games, which depend on HOLDFAST_SEED alone, and on the abilities of the driver.
func (t *test) games() {
	number, length := 3, t.rounds(50)
	if virtual() {
		length = t.rounds(120)
	}
	can := map[Ability]bool{}
	for a := range probes {
		switch a {
		case Queue, Push, Hint, Fences, Inspect, Force, Steal, Owner, Attach, Downgrade, Resize, Whose, Texts:
			can[a] = t.has(a)
		}
	}
	t.push = can[Push]
	drivers := []driver.Driver{t.driver(), t.driver()}
	var kind driver.Request
	t.shape(&kind)
	name := fnv.New64()
	_, _ = name.Write([]byte(kind.Kind))
	for i := range number {
		random := rand.New(rand.NewPCG(seed.Of(), name.Sum64()+uint64(i)))
		steps := game(random, kind.Kind, can, length, i%3 == 2)
		play := func(steps []step) error {
			w := &twin{
				t: t, drivers: drivers, can: can, oracle: memdriver.New(), kind: kind.Kind, name: t.unique(),
				fences: map[int64]int64{}, began: time.Now(),
			}
			return w.play(steps)
		}
		err := play(steps)
		if err == nil {
			continue
		}
		played, began := 0, time.Now()
		short := shorten(steps, func(fewer []step) bool {
			if played++; played > 500 || time.Since(began) > t.patience() && !virtual() {
				return false
			}
			again := play(fewer)
			if again != nil {
				err = again
			}
			return again != nil
		})
		t.Fatalf("%v\nin game %d of HOLDFAST_SEED=%d, of which these steps of %d are left:\n%s", err, i, seed.Of(), len(steps), listing(short))
	}
}

// twin is one lock in two stores: that of the driver, and a memdriver.
type twin struct {
	t       *test
	drivers []driver.Driver
	can     map[Ability]bool
	oracle  *memdriver.Driver
	kind    driver.Kind
	name    string
	began   time.Time

	actors  []*actor // all, in the order in which they came
	slots   [slots]*actor
	left    [slots]*actor // those before them
	resizes int

	shown  driver.Info // by the oracle, at that time
	at     time.Time
	ripe   bool            // something has ended by itself, and the first waiter has not asked since
	fences map[int64]int64 // of the driver, by those of the oracle
	last   int64           // number that the driver has given as a fence
	seen   []numbers       // in this step
}

// numbers are the fences of a grant, as the oracle and the driver have them.
type numbers struct {
	by                  string // what told them
	oracle, first, last int64
}

// actor is one token.
type actor struct {
	d    driver.Driver
	req  driver.Request
	sent uint64            // asks
	news chan driver.Grant // from the driver
	due  []driver.Grant    // what the oracle has told in this step

	asked time.Time // when it last asked; a straggler need not count, and may
	late  time.Time
	thief bool
	over  bool // its lease has ended by itself
	lost  bool // its place has
	ended bool // it was released, refused, or lost the lock
	grave bool // and that must be known to the store
	gone  bool // it was released, and hears of nothing any more
}

// play takes the steps. The error is the first difference.
func (w *twin) play(steps []step) error {
	for i, s := range steps {
		if err := w.take(s); err != nil {
			return fmt.Errorf("step %d, %v: %w", i+1, s, err)
		}
	}
	for _, a := range w.actors {
		if !a.ended {
			if err := w.settled(w.release(a, false)); err != nil {
				return fmt.Errorf("the release of all, of %s: %w", a.req.Token, err)
			}
		}
	}
	if len(w.shown.Holders)+len(w.shown.Queue) > 0 {
		return fmt.Errorf("the games are wrong: at the end there is %+v", w.shown)
	}
	if virtual() {
		time.Sleep(w.ttl(true)) // until the store may have forgotten those that were left
	}
	return nil
}

// take takes a step, and compares the two.
func (w *twin) take(s step) error {
	a := w.slots[s.Slot]
	bounded := s.Bound > 0 || a != nil && a.req.MaxWaiters > 0
	if w.ripe && (s.Do != asks && s.Do != releases || bounded) {
		// Whether the first waiter had the lock before, or only as it asks, is for the driver to say.
		if err := w.settled(nil); err != nil {
			return err
		}
	}
	if s.Do == passes {
		w.pass(s.N)
		return nil
	}
	return w.settled(w.do(s))
}

// settled compares the two after a step. The first waiter has asked, if something has ended.
func (w *twin) settled(err error) error {
	if w.ripe && err == nil {
		w.ripe = false
		for _, waiter := range w.shown.Queue {
			if a := w.actor(waiter.Holder); !a.ended && !a.lost {
				err = w.ask(a, false)
				break
			}
		}
	}
	if err == nil {
		err = w.compare()
	}
	return err
}

func (w *twin) actor(token string) *actor {
	i := slices.IndexFunc(w.actors, func(a *actor) bool { return a.req.Token == token })
	return w.actors[i]
}

// ttl is how long a lease lasts. None ends in a game without passing time.
func (w *twin) ttl(long bool) time.Duration {
	switch {
	case !virtual():
		return w.t.real(time.Minute)
	case long:
		return 12 * w.unit()
	}
	return 3 * w.unit()
}

func (w *twin) unit() time.Duration { return w.t.real(time.Second) }

// join gives a slot a new token.
func (w *twin) join(s step) *actor {
	a := &actor{d: w.drivers[s.Slot%len(w.drivers)], news: make(chan driver.Grant, 64)}
	a.req = driver.Request{
		Kind: w.kind, Name: w.name, Token: fmt.Sprintf("%s-%d", w.name[len(w.name)-16:], len(w.actors)), TTL: w.ttl(s.Long),
		Owner: s.Owner, Shared: s.Share, Wait: s.Wait, MaxWaiters: s.Bound, Weight: s.N, Limit: s.Limit, Fences: s.Fence,
		Wake: func(g driver.Grant) {
			select {
			case a.news <- g:
			default: // It must not block; nobody counts that many.
			}
		},
	}
	a.req.Holder = a.req.Token
	w.actors = append(w.actors, a)
	w.leave(s.Slot)
	w.slots[s.Slot] = a
	return a
}

func (w *twin) leave(slot int) {
	if w.slots[slot] != nil {
		w.left[slot], w.slots[slot] = w.slots[slot], nil
	}
}

// do takes a step that is no passing of time.
func (w *twin) do(s step) error {
	if a := w.slots[s.Slot]; a != nil && (a.ended || a.lost) {
		w.leave(s.Slot)
	}
	a := w.slots[s.Slot]
	switch s.Do {
	case asks:
		if a == nil {
			a = w.join(s)
		}
		return w.ask(a, false)
	case steals:
		return w.steal(w.join(s))
	case force:
		return w.force()
	case resize:
		return w.resize(s.N)
	}
	if a == nil || s.Late {
		a = cmp.Or(w.left[s.Slot], a)
	}
	if a == nil {
		return nil
	}
	switch s.Do {
	case straggles:
		for _, dead := range w.actors {
			if s.Late && dead.grave {
				a = dead
			}
		}
		// The first ask of a token that has asked again since is old. Stores hear it, and callers send none.
		if a.grave || !a.ended && !a.lost && time.Since(a.asked) < a.req.TTL/6 {
			return w.ask(a, true)
		}
	case renews:
		return w.same(w.both(a, func(ctx context.Context, d driver.Driver) error { return d.Renew(ctx, []driver.Lease{a.lease()})[0] }))
	case releases, unsettled:
		if a == w.slots[s.Slot] {
			w.leave(s.Slot)
		}
		return w.release(a, s.Do == unsettled)
	case downgrade:
		return w.same(w.both(a, func(ctx context.Context, d driver.Driver) error {
			able, _ := driver.As[driver.Downgrader](d)
			return able.Downgrade(ctx, a.lease(), s.N)
		}))
	case attaches:
		// Among several holders ZooKeeper puts the new one where the old one was, by its fence, too.
		if virtual() || len(w.shown.Holders) <= 1 || a.req.Owner != "" {
			return w.attach(a, s)
		}
	case crashes:
		w.leave(s.Slot)
	}
	return nil
}

func (a *actor) lease() driver.Lease {
	return driver.Lease{Kind: a.req.Kind, Name: a.req.Name, Token: a.req.Token, TTL: a.req.TTL, Owner: a.req.Owner}
}

// both has the driver do something for a token, and then the oracle.
func (w *twin) both(a *actor, do func(context.Context, driver.Driver) error) (got, want error) {
	ctx, cancel := w.t.bounded()
	defer cancel()
	return do(ctx, a.d), do(ctx, w.oracle)
}

// answers is both, of something that answers with a grant.
func (w *twin) answers(a *actor, do func(context.Context, driver.Driver, *driver.Request) (driver.Grant, error)) error {
	ctx, cancel := w.t.bounded()
	defer cancel()
	asked, oracles := a.req, a.req
	oracles.Wake = func(g driver.Grant) { a.due = append(a.due, g) }
	got, err := do(ctx, a.d, &asked)
	want, wantErr := do(ctx, w.oracle, &oracles)
	a.due = slices.DeleteFunc(a.due, func(g driver.Grant) bool { return g.Status == driver.Granted }) // this is the answer
	// One that wants more than the limit that it names may be told either, where that limit is another.
	limits := func(err error) bool {
		return errors.Is(err, driver.ErrLimitConflict) || errors.Is(err, driver.ErrLimitExceeded)
	}
	if a.req.Weight <= a.req.Limit || !limits(err) || !limits(wantErr) {
		if err := w.same(err, wantErr); err != nil {
			return err
		}
	}
	a.ended = wantErr != nil
	if a.ended {
		return nil
	}
	return w.answered(a, got, want)
}

// kinds of errors that differ for a caller.
var verdicts = []error{driver.ErrNotHeld, driver.ErrLimitConflict, driver.ErrLimitExceeded, errors.ErrUnsupported}

// same reports whether two errors mean the same.
func (w *twin) same(got, want error) error {
	for _, v := range verdicts {
		if errors.Is(got, v) != errors.Is(want, v) {
			return fmt.Errorf("answered %v, want %v", got, want)
		}
	}
	if (got == nil) != (want == nil) {
		return fmt.Errorf("answered %v, want %v", got, want)
	}
	return nil
}

// ask has a token ask once more, or its first ask arrive again.
func (w *twin) ask(a *actor, straggler bool) error {
	a.late = time.Now()
	if !straggler {
		a.sent++
		a.asked = a.late
	}
	if slices.ContainsFunc(w.actors, func(a *actor) bool { return a.lost }) {
		a.req.MaxWaiters = 0 // When those that have fallen silent no longer count is for the driver to say.
	}
	a.req.Ask = a.sent
	if straggler {
		a.req.Ask = 1
	}
	return w.answers(a, a.get)
}

// get asks for the lock, in the way in which the token does.
func (a *actor) get(ctx context.Context, d driver.Driver, r *driver.Request) (driver.Grant, error) {
	if able, ok := driver.As[driver.Stealer](d); ok && a.thief {
		return able.Steal(ctx, r)
	}
	return d.Acquire(ctx, r)
}

// answered compares what a token was told.
func (w *twin) answered(a *actor, got, want driver.Grant) error {
	if got.Status != want.Status {
		broken := ""
		if got.Status == driver.Granted && (virtual() || time.Since(w.began) < w.ttl(false)/2) {
			broken = foul
		}
		return fmt.Errorf("%sanswered %+v, want %+v", broken, got, want)
	}
	switch got.Status {
	case driver.Granted:
		a.over = false
		return w.granted(a, got, want)
	case driver.Queued:
		a.over, a.req.MaxWaiters = false, 0
	}
	if w.can[Whose] && got.Behind != want.Behind {
		return fmt.Errorf("answered %+v, want %+v", got, want)
	}
	soon := want.RetryAfter > 0 && want.RetryAfter < a.req.TTL/3 // before it asks again anyway
	if w.can[Hint] && got.Status == driver.Queued && got.RetryAfter == 0 && soon {
		return fmt.Errorf("should ask again after %v, want %v", got.RetryAfter, want.RetryAfter)
	}
	return nil
}

// granted compares a grant, and notes its fences.
func (w *twin) granted(a *actor, got, want driver.Grant) error {
	if got.Ask < 1 || got.Ask > a.sent {
		return fmt.Errorf("the grant rests on ask %d of %d", got.Ask, a.sent)
	}
	if w.can[Fences] && got.Fences > max(a.req.Fences, 1) {
		return fmt.Errorf("%d fences, and %d were asked for", got.Fences, a.req.Fences)
	}
	w.seen = append(w.seen, numbers{"the grant", want.Fence, got.Fence, got.Fence + max(got.Fences, 1) - 1})
	return nil
}

func (w *twin) release(a *actor, unsettled bool) error {
	got, want := w.both(a, func(ctx context.Context, d driver.Driver) error {
		l := a.lease()
		l.Unsettled = unsettled
		return d.Release(ctx, l)
	})
	a.due, a.ended, a.grave = nil, true, a.grave || unsettled
	for len(a.news) > 0 {
		<-a.news
	}
	a.gone = true
	if (a.over || a.lost) && (got == nil || errors.Is(got, driver.ErrNotHeld)) {
		return nil // Either answer will do.
	}
	return w.same(got, want)
}

// robbed notes that all holders have lost the lock. A driver need not have noticed that a lease had
// ended by itself before.
func (w *twin) robbed() {
	for _, a := range w.actors {
		a.lost = a.lost || a.over
	}
	for _, h := range w.shown.Holders {
		a := w.actor(h.Holder)
		a.ended, a.grave = true, true
	}
}

func (w *twin) force() error {
	got, want := w.both(&actor{d: w.drivers[0]}, func(ctx context.Context, d driver.Driver) error {
		able, _ := driver.As[driver.Forcer](d)
		return able.ForceRelease(ctx, w.kind, w.name)
	})
	w.robbed()
	return w.same(got, want)
}

func (w *twin) steal(a *actor) error {
	a.thief = true
	w.robbed()
	return w.ask(a, false)
}

// attach has a new token take over what the old one holds.
func (w *twin) attach(old *actor, s step) error {
	s.Owner, s.N, s.Limit, s.Wait, s.Bound = "", 0, 0, false, 0
	a := w.join(s)
	a.sent, a.req.Ask, a.asked, a.late = 1, 1, time.Now(), time.Now()
	err := w.answers(a, func(ctx context.Context, d driver.Driver, r *driver.Request) (driver.Grant, error) {
		able, _ := driver.As[driver.Attacher](d)
		g, err := able.Attach(ctx, old.lease(), r)
		if err == nil && d != w.oracle {
			a.req.Shared, a.req.Weight, a.req.Owner, a.req.Limit = g.Shared, g.Weight, g.Owner, old.req.Limit
		} else if err == nil && (g.Shared != a.req.Shared || g.Weight != a.req.Weight || g.Owner != a.req.Owner) {
			err = fmt.Errorf("got %v, weight %d, owner %q; want %+v", a.req.Shared, a.req.Weight, a.req.Owner, g)
		}
		return g, err
	})
	old.ended = old.ended || !a.ended
	return err
}

// resize sets the limit. Those that wait for more than that ask, and are refused.
func (w *twin) resize(limit int64) error {
	w.resizes++
	token := fmt.Sprintf("%s-resize-%d", w.name[len(w.name)-16:], w.resizes)
	got, want := w.both(&actor{d: w.drivers[0]}, func(ctx context.Context, d driver.Driver) error {
		able, _ := driver.As[driver.Resizer](d)
		return able.Resize(ctx, w.name, token, limit)
	})
	err := w.same(got, want)
	for _, waiter := range w.shown.Queue {
		if err == nil && waiter.Weight > limit {
			err = w.ask(w.actor(waiter.Holder), false)
		}
	}
	return err
}

// margin is for stores that count in whole milliseconds.
const margin = 10 * time.Millisecond

// pass lets time pass: so many units, or until the next lease has ended. It stops at no time at which
// a driver may see the end of a lease, or of the patience with a waiter, and another may not.
func (w *twin) pass(units int64) {
	now := time.Now()
	type window struct{ from, to time.Time }
	var unclear []window
	var next time.Time
	for _, h := range w.shown.Holders {
		end := w.at.Add(h.TimeLeft)
		unclear = append(unclear, window{end.Add(-margin), end.Add(w.t.grace() + margin)})
		if next.IsZero() || end.Before(next) {
			next = end
		}
	}
	for _, waiter := range w.shown.Queue {
		a := w.actor(waiter.Holder)
		unclear = append(unclear, window{a.asked.Add(a.req.TTL*2/3 - margin), a.late.Add(a.req.TTL + w.t.over + margin)})
	}
	until := now.Add(time.Duration(units) * w.unit())
	if units == 0 {
		until = next
	}
	slices.SortFunc(unclear, func(a, b window) int { return a.from.Compare(b.from) })
	for _, u := range unclear {
		if until.After(u.from) && until.Before(u.to) {
			until = u.to
		}
	}
	if until.After(now) {
		time.Sleep(until.Sub(now))
	}

	idle := true
	for _, h := range w.shown.Holders {
		a := w.actor(h.Holder)
		a.over = !w.at.Add(h.TimeLeft).After(time.Now())
		a.lost = a.over && a.thief // It steals once, but that need not be known for ever.
		idle = idle && a.over
	}
	for _, waiter := range w.shown.Queue {
		a := w.actor(waiter.Holder)
		a.lost = !a.asked.Add(a.req.TTL * 2 / 3).After(time.Now())
		idle = idle && a.lost
	}
	w.ripe = true
	for _, a := range w.actors {
		a.grave = false // A driver need not know that for ever,
	}
	if idle && w.resizes > 0 { // nor the limit.
		*w = twin{
			t: w.t, drivers: w.drivers, can: w.can, oracle: memdriver.New(), kind: w.kind, name: w.t.unique(),
			fences: map[int64]int64{}, began: w.began,
		}
	}
}

// compare looks at both.
func (w *twin) compare() error {
	for _, h := range w.look().Holders {
		// Where nobody is told of a grant, who waits hears of it by asking. So it is with the tokens of an
		// owner: each comes in at once, but a driver may have it ask.
		if a := w.actor(h.Holder); tells(a.due) && (!w.t.push || a.req.Owner != "") {
			if err := w.ask(a, false); err != nil {
				return fmt.Errorf("%s: %w", a.req.Token, err)
			}
		}
	}
	for _, a := range w.actors {
		if err := w.told(a); err != nil {
			return fmt.Errorf("%s: %w", a.req.Token, err)
		}
	}
	ctx, cancel := w.t.bounded()
	defer cancel()
	want := w.look()
	if able, ok := driver.As[driver.Inspector](w.drivers[0]); ok {
		got, err := able.Inspect(ctx, w.kind, w.name)
		if err != nil {
			return err
		}
		if err := w.alike(got, want); err != nil {
			return err
		}
	}
	return w.inOrder()
}

// look looks at what the oracle shows.
func (w *twin) look() driver.Info {
	w.shown, _ = w.oracle.Inspect(context.Background(), w.kind, w.name)
	w.at = time.Now()
	return w.shown
}

// told compares the news of a token.
func (w *twin) told(a *actor) error {
	due := a.due
	a.due = nil
	for _, want := range due {
		if w.t.push && (want.Status == driver.Granted || want.Status == driver.Lost) {
			got, ok := heard(a.news, want.Status, w.t.patience())
			if !ok {
				return fmt.Errorf("was not told of %+v", want)
			}
			if got.Status == driver.Granted {
				if err := w.granted(a, got, want); err != nil {
					return err
				}
			}
		}
	}
	if virtual() {
		synctest.Wait()
	}
	for {
		select {
		case g := <-a.news:
			if a.gone && virtual() {
				return fmt.Errorf("news after its release: %+v", g)
			}
			holds := slices.ContainsFunc(w.shown.Holders, func(h driver.Holder) bool { return h.Holder == a.req.Token })
			if g.Status == driver.Granted && !holds && !a.ended && !a.over && !tells(due) {
				return fmt.Errorf("unexpected news: %+v", g)
			}
			if g.Status == driver.Lost && !a.ended {
				return fmt.Errorf("unexpected news: %+v", g)
			}
		default:
			return nil
		}
	}
}

// tells reports whether news are of a grant.
func tells(news []driver.Grant) bool {
	return slices.ContainsFunc(news, func(g driver.Grant) bool { return g.Status == driver.Granted })
}

// alike compares what is seen of the lock.
func (w *twin) alike(got, want driver.Info) error {
	wrong := fmt.Errorf("seen is %+v, want %+v", got, want)
	if len(got.Holders) != len(want.Holders) || len(got.Queue) != len(want.Queue) || got.Limit != want.Limit {
		return wrong
	}
	for _, holders := range [][]driver.Holder{got.Holders, want.Holders} {
		// Those of an owner share a grant, and nobody was first; nor need a store without texts know who was.
		if !w.can[Texts] || len(holders) > 0 && holders[0].Owner != "" {
			slices.SortFunc(holders, func(a, b driver.Holder) int { return cmp.Compare(a.Holder, b.Holder) })
		}
	}
	for i, h := range want.Holders {
		g := got.Holders[i]
		if g.Holder != h.Holder || g.Shared != h.Shared || g.Weight != h.Weight || g.Owner != h.Owner {
			return wrong
		}
		if virtual() && w.can[Texts] && g.Since.Sub(h.Since).Abs() > margin {
			return wrong
		}
		if virtual() && (g.TimeLeft < h.TimeLeft-margin || g.TimeLeft > h.TimeLeft+w.t.grace()+margin) {
			return wrong
		}
		if virtual() { // Else a store of several nodes may be about to agree on the fence that it has told.
			w.seen = append(w.seen, numbers{"Inspect", h.Fence, g.Fence, g.LastFence})
		}
	}
	for i, q := range want.Queue {
		g := got.Queue[i]
		if g.Holder != q.Holder || g.Shared != q.Shared || g.Weight != q.Weight {
			return wrong
		}
		if g.Owner != q.Owner && (w.can[Texts] || g.Owner != "") { // A store without texts need not keep it.
			return wrong
		}
	}
	return nil
}

// inOrder compares the fences that were seen in this step.
func (w *twin) inOrder() error {
	seen := w.seen
	w.seen = nil
	if !w.can[Fences] {
		return nil
	}
	slices.SortStableFunc(seen, func(a, b numbers) int { return cmp.Compare(a.oracle, b.oracle) })
	for _, n := range seen {
		switch known, ok := w.fences[n.oracle]; {
		case ok && known != n.first:
			return fmt.Errorf(foul+"a fence was %d, and %s says %d", known, n.by, n.first)
		case !ok && n.first <= w.last:
			return fmt.Errorf(foul+"%s says a fence of %d after %d", n.by, n.first, w.last)
		}
		w.fences[n.oracle], w.last = n.first, max(w.last, n.last)
	}
	return nil
}
