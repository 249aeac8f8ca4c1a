package model_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"

	lockrecord "github.com/holdfast-go/holdfast/internal/test/record"
)

// kind is what a message is for. Answers are as many further as requests have kinds.
type kind uint8

const (
	ask kind = 1 + iota
	renew
	release
	lower
	asked
	renewed
	released
	lowered
	granted // news that is published
	askAgain
	lost
	force // comes in no message: somebody does it
)

// What scripts answer first.
const (
	buried = iota
	busy
	queued
	grantedNow
	exceeded
	conflict
	full

	neither = 0
	held    = 1
)

// message is under way between a claim's client and the server. The zero value is none.
type message struct {
	kind    kind
	claim   uint8
	ask     uint8 // its number
	status  uint8 // of an answer
	place   uint8 // in the queue, 0 for none: all are of the numbering that is in use
	ticks   uint8 // since an ask or a renewal was sent
	settled bool  // no ask of the token that is released can still be under way
}

// request is all that a script can tell one call from another by.
type request struct {
	record  uint32
	message message
	hears   uint8
}

// effect is what comes of a request.
type effect struct {
	record uint32
	answer message
	news   []message
	moved  bool // the numbering of places is another one now
	wrong  string
}

// store is a lock at the server: a function of records and requests. Lua is much slower than
// the search needs it, so each request is run once.
type store struct {
	*scenario
	server   *server
	records  []record
	contents []contents
	ids      map[string]uint32
	effects  map[request]*effect
	laters   map[[2]int64]uint32
	changes  map[string]int // from one form to another
}

func newStore(sc *scenario, scripts map[string]string) (*store, error) {
	server, err := newServer(scripts)
	s := &store{scenario: sc, server: server, ids: map[string]uint32{}, effects: map[request]*effect{}, laters: map[[2]int64]uint32{}, changes: map[string]int{}}
	s.number(record{})
	return s, err
}

// number gives a record in canonical form a number.
func (s *store) number(r record) uint32 {
	id := r.id()
	n, ok := s.ids[id]
	if !ok {
		n = uint32(len(s.records))
		s.ids[id] = n
		s.records = append(s.records, r)
		c, _ := s.read(&r)
		s.contents = append(s.contents, c)
	}
	return n
}

// later is the record when the clock has gone on, or back.
func (s *store) later(n uint32, ms int64) uint32 {
	k := [2]int64{int64(n), ms}
	to, ok := s.laters[k]
	if !ok {
		to = s.number(s.records[n].later(ms))
		s.laters[k] = to
	}
	return to
}

// do returns what comes of a request.
func (s *store) do(n uint32, m message, hears uint8) *effect {
	r := request{n, m, hears}
	e := s.effects[r]
	if e == nil {
		e = &effect{}
		if err := s.run(r, e); err != nil {
			e.wrong = err.Error()
		}
		s.effects[r] = e
	}
	return e
}

func (s *store) run(r request, e *effect) error {
	before := s.records[r.record]
	s.server.record, s.server.hears = before, r.hears
	s.server.fields = maps.Clone(before.fields)

	m := r.message
	want := s.claims[m.claim]
	token, retention, ttl := letters[m.claim:m.claim+1], fmt.Sprint(s.retention), fmt.Sprint(s.ttl)
	var verb string
	args := []string{channel, retention, token}
	switch m.kind {
	case ask:
		birth := 0
		if m.place > 0 {
			birth = known
		}
		room := s.room
		switch {
		case want.try:
			room = 0
		case s.room == 0 || m.place > 0: // it was told to wait before
			room = 1000
		}
		verb = "acquire"
		args = append(args, fmt.Sprint(m.ask, birth, m.place),
			fmt.Sprint(ttl, " ", max(want.fences, 1), " ", room, " ", want.weight, s.limit, " - ", token, ".", secret, " text"))
	case renew:
		verb, args = "renew", append(args, ttl, "-")
	case release:
		unsettled := "1"
		if m.settled {
			unsettled = "0"
		}
		verb, args = "release", append(args, unsettled+" -")
	case lower:
		verb, args = "downgrade", append(args, "1")
	case force:
		verb, args = "force", []string{channel, retention, "-"}
	}
	reply, err := s.server.run(verb, args...)
	if err == nil {
		err = s.sameInGeneral(before, reply, verb, args)
	}
	if err != nil {
		return err
	}
	e.answer = message{kind: m.kind + asked - ask, claim: m.claim, ask: m.ask}
	list, err := numbers(reply)
	if err != nil {
		return err
	}
	more := 0
	e.answer.status = uint8(list[0])
	switch m.kind {
	case ask:
		if list[0] != buried {
			more = list[2]
		}
		if list[0] == queued {
			if len(list) < 5 {
				return fmt.Errorf("the script answers %v", list) // Redis cuts off what follows a nil
			}
			e.answer.place = uint8(list[4])
		}
	case renew, release, lower, force:
		more = list[1]
	}
	if more != 0 {
		return fmt.Errorf("the script answers %v, but the queue is not that long", list)
	}
	pushed := map[int]int64{}
	for _, n := range s.server.news {
		for line := range strings.Lines(n.text) {
			word := strings.Fields(line)
			to := message{kind: map[string]kind{"granted": granted, "ask": askAgain, "lost": lost}[word[0]], claim: uint8(indexOf(word[1]))}
			if to.kind == 0 || n.client != word[1] {
				return fmt.Errorf("%s is told %q", n.client, line)
			}
			if to.kind == granted {
				to.ask = uint8(natural(word[2]))
				pushed[indexOf(word[1])] = natural(word[3])
			}
			e.news = append(e.news, to)
		}
	}
	if m.kind == ask && list[0] == grantedNow {
		pushed[int(m.claim)] = int64(list[1])
	}

	after := s.server.record
	was := s.contents[r.record]
	is, whole := s.read(&after)
	if wrong := whole.Faults(); len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	e.moved = was.birth != "" && is.birth != was.birth
	err = s.check(&before, &after, was, is, r, list[0], pushed)
	for _, h := range is.holders {
		after.top = max(after.top, h.Last)
	}
	s.changes[form(&before)+" to "+form(&after)]++
	e.record = s.number(after.later(0))
	return err
}

// sameInGeneral runs the general way on the same record, and says what differs from what the script
// has just done, which may have been the short way.
func (s *store) sameInGeneral(before record, reply lua.LValue, verb string, args []string) error {
	if s.server.scripts[general+verb] == nil {
		return nil // it has no short way
	}
	after, news := s.server.record, s.server.news
	defer func() { s.server.record, s.server.news = after, news }()
	s.server.record = before
	s.server.fields = maps.Clone(before.fields)
	again, err := s.server.run(general+verb, args...)
	if err != nil {
		return err
	}
	if one, other := text(reply), text(again); one != other {
		return fmt.Errorf("the short way answers %s, the general way %s", one, other)
	}
	if one, other := after.id(), s.server.id(); one != other {
		return fmt.Errorf("the short way leaves\n%q, the general way\n%q", one, other)
	}
	if !slices.Equal(news, s.server.news) {
		return fmt.Errorf("the short way says %v, the general way %v", news, s.server.news)
	}
	return nil
}

// text is a reply as a text.
func text(reply lua.LValue) string {
	list, ok := reply.(*lua.LTable)
	if !ok {
		return reply.String()
	}
	words := []string{}
	list.ForEach(func(_, v lua.LValue) { words = append(words, text(v)) })
	return fmt.Sprint(words)
}

func form(r *record) string {
	switch {
	case r.text != "":
		return "thin"
	case r.fields != nil:
		return "fat"
	}
	return "nothing"
}

// numbers reads an answer, and leaves out texts. A script may answer in short, see op/acquire.lua.
func numbers(reply lua.LValue) (list []int, err error) {
	switch reply := reply.(type) {
	case lua.LString:
		word := strings.Fields(string(reply))
		if word[0] == "waits" {
			return []int{queued, int(natural(word[1])), 0, int(natural(word[2])), int(natural(word[3]))}, nil
		}
		return []int{grantedNow, int(natural(word[0])), 0}, nil
	case lua.LNumber:
		return []int{int(reply), 0, 0}, nil
	case *lua.LTable:
		for i := 1; i <= reply.Len(); i++ {
			n, err := strconv.Atoi(reply.RawGetInt(i).String())
			if err == nil {
				list = append(list, n)
			}
		}
		if len(list) == 0 {
			err = fmt.Errorf("the script answers %v", reply.RawGetString("err"))
		}
		return list, err
	}
	return nil, fmt.Errorf("the script answers %v", reply)
}

// check holds a record against what must be true of it after each script, whatever happened
// before. Between two scripts only time goes on.
func (s *store) check(before, after *record, was, is contents, r request, status int, told map[int]int64) error {
	if r.message.kind == ask && status == buried {
		return nil // that one looks at nothing else
	}
	for _, h := range is.holders {
		if h.Expires < now {
			return fmt.Errorf("%c holds it although its lease is over", letters[h.claim])
		}
	}
	if len(is.holders) > 0 && is.limit != s.limit {
		return fmt.Errorf("the limit is %d, and it says %d", s.limit, is.limit)
	}
	// Fences increase, in the order of grants.
	top := before.top
	for _, h := range is.holders {
		old := false
		for _, o := range was.holders {
			old = old || o.claim == h.claim && o.Fence == h.Fence
		}
		if !old {
			if h.Fence <= top {
				return fmt.Errorf("%c has the fence %d, after %d", letters[h.claim], h.Fence-nowUs, top-nowUs)
			}
			top = h.Last
		}
		if fence, ok := told[h.claim]; ok && fence != h.Fence {
			return fmt.Errorf("%c has the fence %d, and is told %d", letters[h.claim], h.Fence-nowUs, fence-nowUs)
		}
	}
	// Nobody overtakes one that waits and is heard.
	for _, h := range is.holders {
		if was.holds>>h.claim&1 == 1 {
			continue
		}
		place := int64(math.MaxInt64)
		for _, w := range was.waiters {
			if w.claim == h.claim {
				place = w.place
			}
		}
		for _, w := range is.waiters {
			if w.place < place && w.Alive >= now && !w.silent(r) {
				return fmt.Errorf("%c overtakes %c", letters[h.claim], letters[w.claim])
			}
		}
	}
	for claim := range told {
		if is.holds>>claim&1 == 0 {
			return fmt.Errorf("%c is told that it holds the lock, and does not", letters[claim])
		}
	}
	// Nobody that is heard loses its place, but by its own doing.
	for _, w := range was.waiters {
		mine := int(r.message.claim) == w.claim && r.message.kind != force
		if (is.holds|is.waiting)>>w.claim&1 == 0 && w.Alive >= now && w.Alive <= now+s.ttl*2/3 && !mine && !w.silent(r) {
			return fmt.Errorf("%c is passed over, and would hear", letters[w.claim])
		}
	}
	// None but those that waited before come to wait beyond the bound, and none is turned away below
	// it: neither for those that have left, nor for those that are dead.
	if r.message.kind == ask && s.room > 0 {
		alive := 0
		for _, w := range is.waiters {
			if w.Alive >= now && !w.silent(r) {
				alive++
			}
		}
		known := (was.waiting|was.holds)>>r.message.claim&1 == 1 || r.message.place > 0
		switch joined := is.waiting>>r.message.claim&1 == 1; {
		case joined && !known && int64(len(is.waiters)) > s.room:
			return fmt.Errorf("%d wait, and %d may", len(is.waiters), s.room)
		case status == full && known:
			return fmt.Errorf("%c is turned away, and waited before", letters[r.message.claim])
		case status == full && int64(alive) < s.room:
			return fmt.Errorf("%c is turned away, and only %d wait", letters[r.message.claim], alive)
		}
	}
	// Nobody is left waiting who could have it.
	for _, w := range is.waiters {
		if w.Alive < now || w.silent(r) {
			continue
		}
		if w.Weight <= is.room {
			return fmt.Errorf("%c waits for %d of %d, which nobody holds", letters[w.claim], w.Weight, is.room)
		}
		break
	}
	// The key lives as long as anybody counts on it, and a while longer.
	if longest := now + s.retention + s.ttl + lockrecord.Grace(s.ttl) + s.back; after.ends > longest {
		return fmt.Errorf("the key ends %d ms too late", after.ends-longest)
	}
	return nil
}

// silent reports whether nobody listens for a waiter whose client is known to listen.
func (w waiter) silent(r request) bool { return w.Heard == 1 && r.hears>>w.claim&1 == 0 }
