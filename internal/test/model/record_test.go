package model_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	lockrecord "github.com/holdfast-go/holdfast/internal/test/record"
)

// record is what is at the key of a lock, if anything, and one thing that is not: the last
// fence that was ever given.
type record struct {
	text   string            // thin, "" if it is not
	fields map[string]string // fat, nil if it is not
	ends   int64             // when the key does, 0 for never
	top    int64
}

func (r *record) exists() bool { return r.text != "" || r.fields != nil }

// Records have words, some of which are times and some fences. A layout has a letter for each
// word: T is a time in ms, S one that scripts only hand on, F a fence, B a birth.
var layouts = map[string]string{"": "F..T...F.S", "h": ".T...F.S", "w": ".....T", "shares": "..T.", "life": "T", "high": "F", "birth": "B"}

// rewrite replaces each time, fence and birth, and tidies nothing else.
func (r *record) rewrite(f func(letter byte, n int64) int64) {
	word := func(text, layout string) string {
		words := strings.Split(text, " ")
		for i := range min(len(words), len(layout)) {
			if layout[i] != '.' {
				words[i] = strconv.FormatInt(f(layout[i], natural(words[i])), 10)
			}
		}
		return strings.Join(words, " ")
	}
	if r.text != "" {
		r.text = word(r.text, layouts[""])
	}
	r.fields = maps.Clone(r.fields)
	for name, value := range r.fields {
		kind, _, _ := strings.Cut(name, ":")
		if kind == "dead" {
			lines := strings.Split(value, "\n")
			for i := 1; i < len(lines); i++ {
				lines[i] = word(lines[i], ".T")
			}
			r.fields[name] = strings.Join(lines, "\n")
		} else {
			r.fields[name] = word(value, layouts[kind])
		}
	}
	if r.exists() && r.ends != 0 {
		r.ends = f('T', r.ends)
	}
	if r.top > 0 {
		r.top = f('F', r.top)
	}
}

// known is the birth of every numbering, since one is only compared with the one before.
const known = 7

// later is the record when the clock has gone on by that, or back, in canonical form: two
// records that scripts cannot tell apart are the same.
func (r record) later(ms int64) record {
	if r.exists() && r.ends != 0 && r.ends-ms < now {
		r.text, r.fields, r.ends = "", nil, 0
	}
	var fences []int64
	r.rewrite(func(letter byte, n int64) int64 {
		switch letter {
		case 'T':
			return n - ms
		case 'S':
			return now
		case 'B':
			return known
		}
		n -= ms * 1000
		fences = append(fences, n)
		return n
	})
	// Between two scripts goes some time, so the fences that are not ahead of the clock have no
	// distance to it but for their order, and whether they adjoin.
	slices.Sort(fences)
	fences = slices.Compact(fences)
	names, last, before := map[int64]int64{}, int64(nowUs), int64(nowUs+1000)
	for _, n := range slices.Backward(fences) {
		names[n] = n
		if n < nowUs+1000 {
			last -= min(before-n, 4)
			names[n], before = last, n
		}
	}
	r.rewrite(func(letter byte, n int64) int64 {
		if letter == 'F' {
			return names[n]
		}
		return n
	})
	return r
}

// id is the same for equal records.
func (r *record) id() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %d %s", r.top, r.ends, r.text)
	for _, name := range slices.Sorted(maps.Keys(r.fields)) {
		b.WriteString("\x00" + name + "\x00" + r.fields[name])
	}
	return b.String()
}

// String is for people: times are relative to now, and fences those to the first one that was
// given in a trace are not, as only their order means something.
func (r record) String() string {
	if !r.exists() {
		return "nothing"
	}
	r.rewrite(func(letter byte, n int64) int64 {
		switch letter {
		case 'T', 'S':
			return n - now + relative
		case 'F':
			return n - nowUs + relative
		}
		return n
	})
	short := func(text string) string {
		words := strings.Split(text, " ")
		for i, word := range words {
			if n, err := strconv.ParseInt(word, 10, 64); err == nil && n > relative/2 {
				words[i] = fmt.Sprintf("%+d", n-relative)
			}
		}
		return strings.Join(words, " ")
	}
	if r.text != "" {
		return "thin " + short(r.text)
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(r.fields)) {
		list = append(list, fmt.Sprintf("%s=%s", name, strings.ReplaceAll(short(r.fields[name]), "\n", "/")))
	}
	return "fat  " + strings.Join(list, ", ")
}

// relative is added to what is relative, since records have no negative numbers.
const relative = 1_000_000_000

// holder and waiter are what the checks need of them.
type holder struct {
	claim int
	lockrecord.Holder
}

type waiter struct {
	claim int
	place int64
	lockrecord.Waiter
}

// contents is a record as the checks see it.
type contents struct {
	holders []holder // by slot
	waiters []waiter // by place
	birth   string
	limit   int64
	holds   uint8 // claims with a lease that is not over, as a set
	waits   uint8 // claims that wait and are not overdue
	waiting uint8 // claims that have a place
	room    int64 // how much nobody holds
}

// read takes a record apart.
func (s *store) read(r *record) (c contents, whole *lockrecord.Record) {
	m := lockrecord.Moment{Kind: driver.Semaphore, Now: now, TTL: r.ends - now, Retention: s.retention}
	if r.ends == 0 {
		m.TTL = -1
	}
	if s.setBack > 0 {
		m.Back = s.back
	}
	whole = lockrecord.Parse(r.text, r.fields, m)
	c.birth, c.limit = whole.Fields["birth"], whole.Num("limit")
	c.room = c.limit
	for token, h := range whole.Holders {
		c.holders = append(c.holders, holder{indexOf(token), h})
	}
	for place, w := range whole.Waiters {
		c.waiters = append(c.waiters, waiter{indexOf(w.Token), place, w})
	}
	slices.SortFunc(c.holders, func(a, b holder) int { return cmp.Compare(a.Slot, b.Slot) })
	slices.SortFunc(c.waiters, func(a, b waiter) int { return cmp.Compare(a.place, b.place) })
	for _, h := range c.holders {
		if h.Expires >= now {
			c.holds |= 1 << h.claim
			c.room -= h.Weight
		}
	}
	for _, w := range c.waiters {
		c.waiting |= 1 << w.claim
		if w.Alive >= now {
			c.waits |= 1 << w.claim
		}
	}
	return c, whole
}

// letters are the tokens of claims, and the ids of their clients.
const letters = "abcd"

func indexOf(token string) int {
	i := strings.Index(letters, token)
	if i < 0 || len(token) != 1 {
		panic("no claim: " + token)
	}
	return i
}
