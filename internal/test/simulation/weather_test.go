package simulation_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"pgregory.net/rapid"
)

// fault is what the network does for a while.
type fault struct {
	Kind  faultKind
	Proc  int // whose connections; -1 for all
	On    traffic
	At    time.Duration
	For   time.Duration
	OneIn int           // of so many frames one is hit
	Late  time.Duration // at most
}

type faultKind string

const (
	delay       faultKind = "delay" // longer than a timeout, it makes stragglers
	loseRequest faultKind = "lose request"
	loseReply   faultKind = "lose reply"
	hole        faultKind = "hole"  // both, and nobody can connect
	cut         faultKind = "cut"   // slow for half of the time, and then a hole
	reset       faultKind = "reset" // of the connection that the frame is on, which may arrive
	refuse      faultKind = "refuse"
)

// traffic is a part of the connections.
type traffic string

const (
	all      traffic = "all"
	commands traffic = "commands"
	news     traffic = "news"
)

// latest is the longest time that a frame may take.
const latest = 9 * time.Second

func faults(procs int) *rapid.Generator[fault] {
	return rapid.Custom(func(t *rapid.T) fault {
		return fault{
			Kind:  rapid.SampledFrom([]faultKind{delay, loseReply, loseRequest, hole, cut, cut, reset, refuse}).Draw(t, "kind"),
			Proc:  rapid.IntRange(-1, procs-1).Draw(t, "proc"),
			On:    rapid.SampledFrom([]traffic{all, commands, news}).Draw(t, "on"),
			At:    rapid.SampledFrom(moments).Draw(t, "at"),
			For:   rapid.SampledFrom(moments[1:]).Draw(t, "for"),
			OneIn: rapid.SampledFrom([]int{1, 3, 10, 40}).Draw(t, "one in"),
			Late:  rapid.SampledFrom([]time.Duration{5 * millisecond, 100 * millisecond, 700 * millisecond, 4 * time.Second, latest}).Draw(t, "late"),
		}
	})
}

var moments = []time.Duration{
	0, 3 * millisecond, 10 * millisecond, 40 * millisecond, 130 * millisecond, 500 * millisecond,
	2 * time.Second, 6 * time.Second, 15 * time.Second, 40 * time.Second,
}

// strike is one fault at a chosen frame: the systematic kind of bad weather.
type strike struct {
	At   int // 1 is the first frame
	Kind strikeKind
	Of   int    // which caller, or which process
	Do   func() // when it happens; nil for nothing
}

type strikeKind string

const (
	strikeLose    strikeKind = "lose"    // and all that follows in this direction
	strikeDelay   strikeKind = "delay"   // beyond every timeout and TTL
	strikeReset   strikeKind = "reset"   // and the frame is lost
	strikeDeliver strikeKind = "deliver" // the frame, and reset then
	strikeCut     strikeKind = "cut"     // the frame is late, and its process is alone then
	strikeCancel  strikeKind = "cancel"  // a caller's context: the frame is not touched
	strikeClose   strikeKind = "close"   // a client
)

// weather decides what happens to each frame on the way, and to each dial.
type weather struct {
	plan   *plan
	strike *strike
	began  time.Time

	mu     sync.Mutex
	dice   map[string]*rand.Rand // for each connection and direction, whatever others do
	frames int
	hits   int
	links  map[int]int // connections of each process so far
	alone  fault       // what follows a strikeCut
	struck time.Duration
}

// cutLate is how late a frame is before its process is cut off: too much for a lease that
// counts from its arrival, and not enough for a timeout.
const cutLate = 250 * millisecond

func newWeather(p *plan, s *strike) *weather {
	return &weather{plan: p, strike: s, began: time.Now(), dice: map[string]*rand.Rand{}, links: map[int]int{}}
}

// rng is that of a connection and direction. The caller holds mu.
func (w *weather) rng(of string) *rand.Rand {
	r := w.dice[of]
	if r == nil {
		h := fnv.New64a()
		_, _ = h.Write([]byte(of))
		r = rand.New(rand.NewPCG(w.plan.Seed, h.Sum64()))
		w.dice[of] = r
	}
	return r
}

type direction int

const (
	toServer direction = iota
	toClient
)

// fate is what becomes of a frame.
type fate struct {
	late        time.Duration // a frame always takes some time
	lost, reset bool
}

// connected numbers a connection of a process.
func (w *weather) connected(proc int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.links[proc]++
	return w.links[proc]
}

// judge says what becomes of the next frame of a connection, of which there may be several.
func (w *weather) judge(proc, link int, heard bool, way direction) fate {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frames++
	rng := w.rng(fmt.Sprint(proc, link, heard, way))
	// No two frames arrive at the same moment, so that their order does not hang on the
	// scheduler.
	f := fate{late: 80*time.Microsecond + time.Duration(rng.IntN(150_000))}
	if s := w.strike; s != nil && s.At == w.frames {
		w.hits++
		w.struck = time.Since(w.began)
		switch s.Kind {
		case strikeLose:
			f.lost = true
		case strikeDelay:
			f.late = latest
		case strikeReset:
			f.lost, f.reset = true, true
		case strikeDeliver:
			f.reset = true
		case strikeCut:
			f.late = cutLate
			w.alone = fault{Kind: hole, Proc: proc, At: time.Since(w.began) + cutLate + millisecond, For: 4 * time.Second, OneIn: 1}
		}
		if s.Do != nil {
			s.Do()
		}
	}
	for i := range w.plan.Faults {
		a := &w.plan.Faults[i]
		if !w.active(a, proc) || a.On == news && !heard || a.On == commands && heard || rng.IntN(a.OneIn) > 0 {
			continue
		}
		w.hits++
		dark := a.Kind == cut && time.Since(w.began) > a.At+a.For/2
		switch {
		case a.Kind == delay, a.Kind == cut && !dark:
			f.late += time.Duration(rng.Int64N(int64(a.Late)))
		case a.Kind == hole, dark, a.Kind == loseRequest && way == toServer, a.Kind == loseReply && way == toClient:
			f.lost = true
		case a.Kind == reset:
			f.reset, f.lost = true, rng.IntN(2) == 0
		}
	}
	if w.alone.For > 0 && w.active(&w.alone, proc) {
		f.lost = true
	}
	return f
}

func (w *weather) active(f *fault, proc int) bool {
	since := time.Since(w.began) - f.At
	return since >= 0 && since < f.For && (f.Proc < 0 || f.Proc == proc)
}

// dials says whether a connection can be made now, and if not, whether that is said.
func (w *weather) dials(proc int) (ok, refused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.alone.For > 0 && w.active(&w.alone, proc) {
		return false, true
	}
	for i := range w.plan.Faults {
		f := &w.plan.Faults[i]
		switch {
		case !w.active(f, proc) || f.On == news:
		case f.Kind == refuse:
			return false, true
		case f.Kind == hole && f.OneIn == 1:
			return false, false
		}
	}
	return true, false
}

// healed is when the last fault ends, and the last straggler has arrived.
func (w *weather) healed() time.Duration {
	var end time.Duration
	for _, f := range w.plan.Faults {
		end = max(end, f.At+f.For+latest*time.Duration(len(w.plan.Faults)))
	}
	if w.strike != nil {
		end = max(end, latest)
	}
	return end
}

// seen returns how many frames there were, and how many of them were hit.
func (w *weather) seen() (frames, hits int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.frames, w.hits
}
