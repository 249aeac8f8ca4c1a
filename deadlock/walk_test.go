package deadlock

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/tag"
)

// The model of the walk: processes that hold, wait, give up, hand on and die, with a store that
// shows what they have told last. Each is one step of the world, in any order, so that a process or
// its link may be slow for as long as it likes. The walk is the real one, and the world goes on
// between any two of its readings.

// process may hold a lock, and then wait for others, by a goroutine for each. Its leases may have
// no room for all of its notes.
type process struct {
	name   string
	dead   bool
	holds  Lock
	fence  int64 // 0: it holds nothing
	waits  []*wait
	pace   int       // how slow it is
	flight []message // in the order in which they were sent
}

type wait struct {
	note
	under bool // the last note was sent, and is not answered
	walk  walk
}

type message struct {
	on    Lock
	fence int64
	text  string
	of    *wait // to whom the answer goes; nil for a renewal by the keeper
}

type record struct {
	holder *process
	fence  int64
	tag    string
}

type world struct {
	*testing.T
	r       *rand.Rand
	locks   map[Lock]*record
	all     []*process
	most    int // how many waits a process has
	now     int
	looking int             // how many looks are under way
	circles map[string]bool // that have ever been there; true if told
	calm    bool            // processes do nothing but look
	trace   []string
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{T: t, r: rand.New(rand.NewPCG(seed, 1)), locks: map[Lock]*record{}, circles: map[string]bool{}}
	w.most = 1 + w.r.IntN(3)
	n := 2 + w.r.IntN(4)
	for i := range n {
		w.locks[lockNo(i)] = &record{}
		w.all = append(w.all, &process{name: fmt.Sprint("p", i), pace: 1 << w.r.IntN(4)})
	}
	return w
}

func lockNo(i int) Lock { return Lock{driver.Mutex, fmt.Sprint("m", i)} }

func (w *world) say(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%4d ", w.now)+fmt.Sprintf(format, args...))
}

// step has one process do one thing, if it can, and notes the circles that there are then.
func (w *world) step() {
	w.now++
	p := w.all[w.r.IntN(len(w.all))]
	if w.r.IntN(p.pace) > 0 {
		return
	}
	l := lockNo(w.r.IntN(len(w.all)))
	switch do := w.r.IntN(100); {
	case do < 25:
		w.arrive(p)
	case p.dead:
	case do < 45:
		w.tell(p, w.any(p))
	case do < 50:
		w.renew(p)
	case do < 70:
		w.look(p, w.any(p))
	case w.calm:
	case do < 80:
		w.take(p, l)
	case do < 92:
		w.want(p, l)
	case do < 95 && p.waits != nil:
		w.stop(p, w.any(p), "gives up")
	case do < 99 && p.waits == nil && p.fence > 0:
		w.release(p)
	case do == 99 && w.r.IntN(10) == 0:
		w.say("%s dies", p.name)
		p.dead, p.waits = true, nil
	}
	w.watch()
}

// any is a wait of a process, if it has one.
func (w *world) any(p *process) *wait {
	if p.waits == nil {
		return nil
	}
	return p.waits[w.r.IntN(len(p.waits))]
}

func (w *world) take(p *process, l Lock) {
	if r := w.locks[l]; p.fence == 0 && r.holder == nil {
		p.holds, p.fence = l, int64(w.now)
		*r = record{holder: p, fence: p.fence}
		w.say("%s takes %s", p.name, l)
	}
}

func (w *world) want(p *process, l Lock) {
	if p.fence == 0 || len(p.waits) == w.most || l == p.holds || w.locks[l].holder == nil {
		return
	}
	n := note{id: fmt.Sprintf("%s@%d", p.name, w.now), since: time.UnixMicro(int64(w.now)), want: l}
	p.waits = append(p.waits, &wait{note: n, walk: walk{me: n, want: l}})
	w.say("%s wants %s", p.name, l)
}

// tell sends the note of a wait once more, if the last one was answered.
func (w *world) tell(p *process, of *wait) {
	if of != nil && !of.under {
		of.told++
		of.under = true
		p.flight = append(p.flight, message{p.holds, p.fence, w.text(p), of})
		w.say("%s tells no. %d", of.id, of.told)
	}
}

// renew is a renewal by the keeper, which tells what is there to be told.
func (w *world) renew(p *process) {
	if p.waits != nil {
		p.flight = append(p.flight, message{p.holds, p.fence, w.text(p), nil})
	}
}

// text is what a process says: one note at least, and of the others any.
func (w *world) text(p *process) string {
	var texts []string
	for _, i := range w.r.Perm(len(p.waits)) {
		if n := p.waits[i]; n.told > 0 && (texts == nil || w.r.IntN(2) == 0) {
			texts = append(texts, n.text())
		}
	}
	return tag.With("", texts...)
}

// arrive has the oldest message arrive, of a dead process, too. A cut link loses it.
func (w *world) arrive(p *process) {
	if len(p.flight) == 0 {
		return
	}
	m := p.flight[0]
	p.flight = p.flight[1:]
	if lost := w.r.IntN(10) == 0; !lost {
		if r := w.locks[m.on]; r.holder == p && r.fence == m.fence {
			r.tag = m.text
			w.say("the store hears %s", m.text)
		}
	} else if m.of != nil {
		p.flight = append([]message{m}, p.flight...) // the waiter tries again
		return
	}
	if m.of != nil {
		m.of.under = false
	}
}

// stop ends a wait. Its note stays: to erase it is a courtesy.
func (w *world) stop(p *process, of *wait, why string) {
	w.say("%s is over: its process %s", of.id, why)
	if p.waits = slices.DeleteFunc(p.waits, func(o *wait) bool { return o == of }); len(p.waits) == 0 {
		p.waits = nil
	}
}

func (w *world) release(p *process) {
	w.say("%s releases %s", p.name, p.holds)
	*w.locks[p.holds] = record{}
	p.fence = 0
	for _, q := range w.all { // whoever waits for it gets it, and is soon done with that
		for _, of := range q.waits {
			if of.want == p.holds {
				w.stop(q, of, "has got it")
				return
			}
		}
	}
}

func (w *world) look(p *process, me *wait) {
	if me == nil || w.looking > 2 {
		return
	}
	w.looking++
	defer func() { w.looking-- }()
	waits := func() bool { return slices.Contains(p.waits, me) }
	me.walk.mine = func(l Lock, h driver.Holder) bool { return waits() && p.holds == l && p.fence == h.Fence }
	me.walk.inspect = func(l Lock) holdfast.Info {
		for range w.r.IntN([]int{4, 4, 200}[w.r.IntN(3)]) {
			w.step()
		}
		if w.r.IntN(20) == 0 {
			return holdfast.Info{} // no answer
		}
		info := driver.Info{Name: l.Name}
		if r := w.locks[l]; r.holder != nil {
			info.Holders = []driver.Holder{{Holder: r.holder.name, Fence: r.fence, LastFence: r.fence, Tag: r.tag}}
		}
		return info
	}
	if circle := me.walk.look(); circle != nil && waits() {
		w.judge(me, circle)
		w.stop(p, me, "is the victim")
		if p.waits == nil {
			w.release(p)
		}
	}
}

// judge holds a report against the world: there was such a circle, nobody has told it before, and
// the youngest tells it.
func (w *world) judge(victim *wait, circle []step) {
	var ids []string
	for _, s := range circle {
		ids = append(ids, s.note.id)
		require.False(w, s.note.younger(&victim.note), "%s is younger than %s\n%s", s.note.id, victim.id, w.story())
	}
	told, there := w.circles[key(ids)]
	require.True(w, there, "there never was this circle: %v\n%s", ids, w.story())
	require.False(w, told, "told twice: %v\n%s", ids, w.story())
	w.circles[key(ids)] = true
}

// watch notes the circles of those that wait now, and returns how many there are.
func (w *world) watch() (n int) {
	for i, p := range w.all {
		n += w.circlesFrom(i, p, nil, nil)
	}
	return n
}

// circlesFrom notes those that go on from a process, and of which number first is the first.
func (w *world) circlesFrom(first int, p *process, ids []string, been []*process) (n int) {
	if p.fence == 0 {
		return 0
	}
	for _, of := range p.waits {
		ids := append(slices.Clone(ids), of.id)
		q := w.locks[of.want].holder
		switch {
		case q == nil || slices.Index(w.all, q) < first || slices.Contains(been, q):
		case q == w.all[first]:
			n++
			if _, known := w.circles[key(ids)]; !known {
				w.say("a circle: %v", ids)
				w.circles[key(ids)] = false
			}
		default:
			n += w.circlesFrom(first, q, ids, append(slices.Clone(been), q))
		}
	}
	return n
}

func key(ids []string) string {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

func (w *world) story() string { return strings.Join(w.trace, "\n") }

// worlds returns how many are tried. In each, processes first do what they like and then only look.
func worlds() uint64 {
	if os.Getenv("HOLDFAST_SOAK") != "" {
		return 100_000
	}
	return 500 // a defect that is known shows in a few dozen
}

func TestNoCircleIsToldThatWasNoneAndEachIsToldOnce(t *testing.T) {
	there, told := 0, 0
	for seed := range worlds() {
		w := newWorld(t, seed)
		for range 600 {
			w.step()
		}
		w.calm = true
		for range 20000 {
			if w.step(); w.watch() == 0 {
				break
			}
		}
		require.Zero(t, w.watch(), "seed %d: a circle is not found\n%s", seed, w.story())
		for _, t := range w.circles {
			there++
			if t {
				told++
			}
		}
	}
	t.Logf("%d circles, of which %d were told and the others opened by themselves", there, told)
	require.Greater(t, told, int(worlds()/40))
}
