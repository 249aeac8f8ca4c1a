package redisdriver_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/driver"
)

// action is what a step does.
type action string

// The actions. Those of a slot speak of the token in use there, or if there is none, of
// the last one.
const (
	doAsk       action = "ask"       // with a new token, or again
	doStraggle  action = "straggle"  // the first ask of a token arrives again
	doLate      action = "late"      // the same of the token that was released last, whatever the slot
	doRenew     action = "renew"     //
	doRelease   action = "release"   // and go on with a new token
	doUnsettled action = "unsettled" // the same, while an ask may be under way
	doLeave     action = "leave"     // crash: go on with a new token
	doDowngrade action = "downgrade"
	doForce     action = "force"
	doResize    action = "resize"
	doPass      action = "pass"   // let time pass
	doEdge      action = "edge"   // let it pass until something ends
	doDeafen    action = "deafen" // the subscription of a client breaks
	doHear      action = "hear"   // and is mended
)

// modelStep is one thing that happens. Its meaning depends only on itself and the steps
// before, so that a failing list can be shortened, and played again from a test.
type modelStep struct {
	Do      action
	Slot    int
	N, Time int64 // weight or limit; TTL or how long
	Limit   int64
	Fences  int64
	Shared  bool
	Wait    bool
	Silent  bool // Wake is nil
}

// String is a Go literal without what is zero.
func (s modelStep) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "{Do: %q", string(s.Do))
	for _, f := range []struct {
		name  string
		value any
	}{{"Slot", s.Slot}, {"N", s.N}, {"Time", s.Time}, {"Limit", s.Limit}, {"Fences", s.Fences}, {"Shared", s.Shared}, {"Wait", s.Wait}, {"Silent", s.Silent}} {
		if text := fmt.Sprint(f.value); text != "0" && text != "false" {
			fmt.Fprintf(&b, ", %s: %s", f.name, text)
		}
	}
	return b.String() + "}"
}

// ask is the request of a new token.
func (s modelStep) ask(k driver.Kind, token, client string) *modelAsk {
	r := &modelAsk{token: token, client: client, ttl: s.Time, fences: s.Fences, wait: s.Wait, wakes: !s.Silent}
	switch {
	case k == driver.Semaphore:
		r.weight, r.limit = s.N, s.Limit
	case k == driver.RWMutex && s.Shared:
		r.weight, r.shared = 1, true
	default:
		r.weight = wholeLock
	}
	return r
}

// freeAll are steps after which a lock is free, if nobody has crashed or left a tombstone.
func freeAll() (steps []modelStep) {
	for slot := range (world{}).slots {
		steps = append(steps, modelStep{Do: doRelease, Slot: slot})
	}
	return steps
}

// stepsOf generates lists of steps for a kind, from the actions and times given; scenes are
// lists of steps that come as a whole now and then.
func stepsOf(k driver.Kind, ttls, times []int64, scenes [][]modelStep, actions ...action) *rapid.Generator[[]modelStep] {
	step := rapid.Custom(func(t *rapid.T) modelStep {
		s := modelStep{Do: rapid.SampledFrom(actions).Draw(t, "do")}
		switch s.Do {
		case doAsk:
			s.Slot = rapid.IntRange(0, len(world{}.slots)-1).Draw(t, "slot")
			s.Time = rapid.SampledFrom(ttls).Draw(t, "ttl")
			s.Wait = rapid.IntRange(0, 3).Draw(t, "wait") > 0
			s.Silent = rapid.IntRange(0, 7).Draw(t, "silent") == 7
			s.Fences = rapid.SampledFrom([]int64{0, 0, 1, 5, 100000}).Draw(t, "fences")
			switch k {
			case driver.RWMutex:
				s.Shared = rapid.Bool().Draw(t, "shared")
			case driver.Semaphore:
				s.N = rapid.SampledFrom([]int64{1, 1, 2, 2, 3, 4}).Draw(t, "weight")
				s.Limit = rapid.SampledFrom([]int64{3, 3, 3, 3, 4}).Draw(t, "limit")
			}
		case doPass:
			s.Time = rapid.SampledFrom(times).Draw(t, "time")
		case doEdge:
			s.Time = rapid.Int64Range(0, 1).Draw(t, "beyond")
		case doResize:
			s.N = rapid.Int64Range(1, 5).Draw(t, "limit")
		case doDowngrade:
			s.Slot = rapid.IntRange(0, len(world{}.slots)-1).Draw(t, "slot")
			s.N = rapid.Int64Range(1, 3).Draw(t, "weight")
		case doForce:
		default:
			s.Slot = rapid.IntRange(0, len(world{}.slots)-1).Draw(t, "slot")
		}
		return s
	})
	// Lists of rapid are short, some 6 long. Lists of lists are not, and shrink as well.
	list := rapid.SliceOfN(step, 1, -1)
	if len(scenes) > 0 {
		list = rapid.OneOf(list, rapid.SampledFrom(scenes))
	}
	lists := rapid.SliceOfN(list, 1, -1)
	return rapid.Map(lists, func(lists [][]modelStep) []modelStep { return slices.Concat(lists...) })
}

// do does one step, to the store and to the model.
func (w *world) do(s modelStep) error {
	p := w.slots[s.Slot]
	switch s.Do {
	case doAsk:
		if p == nil {
			p = w.join(s)
		}
		p.req.Ask++
		return w.ask(p, p.req.Ask)
	case doPass:
		return w.pass(s.Time)
	case doEdge:
		return w.pass(w.edge() + s.Time)
	case doForce:
		return w.expect(w.model.force(), w.drivers[0].ForceRelease(context.Background(), w.kind, w.name))
	case doResize:
		w.resizes++
		token := fmt.Sprintf("resize-%d", w.resizes)
		return w.expect(w.model.resize(s.N), w.drivers[0].Resize(context.Background(), w.name, token, s.N))
	case doDeafen, doHear:
		return w.listen(s.Slot%len(w.drivers), s.Do == doHear)
	case doLate:
		p = w.last
	}
	if p == nil {
		p = w.left[s.Slot]
	}
	if p == nil {
		return nil
	}
	return w.doWith(p, s)
}

// doWith does a step of a token that has asked before.
func (w *world) doWith(p *player, s modelStep) error {
	ctx := context.Background()
	lease := driver.Lease{Kind: w.kind, Name: w.name, Token: p.req.Token, TTL: p.req.TTL}
	switch s.Do {
	case doStraggle, doLate:
		return w.ask(p, 1)
	case doRenew:
		if w.model.waiting(p.req.Token) != nil && w.model.deaf[p.want.client] {
			return nil // nobody renews what it does not hold
		}
		return w.expect(w.model.renew(p.req.Token), p.d.Renew(ctx, []driver.Lease{lease})[0])
	case doRelease, doUnsettled:
		w.leave(s.Slot)
		w.last = p
		return w.release(p, s.Do == doUnsettled)
	case doDowngrade:
		weight := s.N
		if w.kind == driver.RWMutex {
			weight = 1
		}
		return w.expect(w.model.downgrade(p.req.Token, weight), p.d.Downgrade(ctx, lease, s.N))
	case doLeave:
		w.leave(s.Slot)
	}
	return nil
}

// compare looks at the lock from all sides.
func (w *world) compare() error {
	info, err := w.drivers[0].Inspect(context.Background(), w.kind, w.name)
	if err != nil {
		return err
	}
	if err := w.compareHolders(info.Holders); err != nil {
		return err
	}
	if err := w.compareQueue(info); err != nil {
		return err
	}
	if err := w.news(); err != nil {
		return err
	}
	r, err := readRecord(context.Background(), w.rdb, w.kind, w.key)
	if err != nil {
		return err
	}
	r.margin = w.clock.slack()
	w.forms.note(w.form, r.form())
	w.form = r.form()
	if r.thin != "" {
		w.model.renumber()
	}
	w.model.earliest = r.earliest - r.now + w.model.now
	if wrong := r.faults(); len(wrong) > 0 {
		return fmt.Errorf("%q in %q %q", wrong, r.thin, r.fields)
	}
	if w.clock.slack() == 0 && w.clock.now() != w.model.now {
		return fmt.Errorf("the step took %d ms", w.clock.now()-w.model.now)
	}
	return nil
}

func (w *world) compareHolders(got []driver.Holder) error {
	want := w.model.live()
	if len(got) != len(want) {
		return fmt.Errorf("held by %+v, want %v", got, want)
	}
	for i, h := range want {
		if err := w.see(h, got[i].Fence, got[i].LastFence); err != nil {
			return err
		}
		left := got[i].TimeLeft.Milliseconds()
		same := got[i].Holder == h.token && got[i].Shared == (w.kind == driver.RWMutex && h.weight == 1) &&
			(w.kind != driver.Semaphore || got[i].Weight == h.weight) &&
			left <= h.expires-w.model.now && left >= h.expires-w.model.now-w.clock.slack()
		if !same || w.clock.slack() == 0 && !got[i].Since.Equal(time.UnixMilli(h.since)) {
			return fmt.Errorf("holder %d is %+v, want %+v of %+v", i, got[i], h, h.modelAsk)
		}
	}
	return nil
}

func (w *world) compareQueue(info driver.Info) error {
	var want []*modelWait
	for _, v := range w.model.queue {
		if v.perhaps && !slices.ContainsFunc(info.Queue, func(q driver.Waiter) bool { return q.Holder == v.token }) {
			v.alive, v.ask = w.model.now-1, 2 // its record is there, of an ask after the first
		}
		v.perhaps = false
		if v.alive >= w.model.now {
			want = append(want, v)
		}
	}
	same := len(info.Queue) == len(want)
	for i := 0; same && i < len(want); i++ {
		got := info.Queue[i]
		same = got.Holder == want[i].token && got.Shared == want[i].shared &&
			(w.kind != driver.Semaphore || got.Weight == want[i].weight)
	}
	if !same {
		return fmt.Errorf("the line is %+v, want %d waiters: %+v", info.Queue, len(want), want)
	}
	limit := int64(0)
	if w.kind == driver.Semaphore && (len(info.Holders) > 0 || len(want) > 0 || w.model.resized) {
		limit = w.model.limit
	}
	if info.Limit != limit {
		return fmt.Errorf("the limit is %d, want %d", info.Limit, limit)
	}
	return nil
}
