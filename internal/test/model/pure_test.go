package model_test

import (
	"context"
	flags "flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/internal/test/seed"
)

// So many examples are tried by default.
func init() {
	seed.Rapid()
	if os.Getenv("RAPID_CHECKS") == "" {
		_ = flags.Set("rapid.checks", fmt.Sprint(redistest.Rounds(20_000))) // cannot fail: rapid has defined it
	}
}

// library is what comes before the last part of the scripts: a lock, loaded and saved.
func library(t testing.TB) string {
	text, _, found := strings.Cut(readScripts(t)["force"], "-- op/force.lua\n")
	require.True(t, found)
	return text
}

// touch loads a lock, says of everything that it has changed, and saves it.
const touch = `
local refused = load(ARGV[3])
if refused then
  return refused
end
for slot = 1, lock.count do
  local h = holder_at(slot)
  changed[h.field] = holder_record(h)
end
for place = lock.head or 1, lock.tail do
  local w = waiter_at(place)
  if w then
    changed[w.field] = table.concat({ w.token, w.ask, int(w.weight), int(w.ttl), w.fences, int(w.alive), w.heard, w.client,
      w.owner, w.text }, ' ')
  end
end
for _, field in ipairs({ 'high', 'limit', 'head', 'tail', 'birth', 'waiting', 'longest' }) do
  set(field, lock[field])
end
changed.dead, changed.owner = lock.dead ~= '' and lock.dead, lock.owner
return save(false) or { 1 }`

func TestSavedLockIsTheOneThatWasLoaded(t *testing.T) {
	s, err := newServer(map[string]string{"touch": library(t) + touch})
	require.NoError(t, err)
	defer s.lua.Close()
	forms := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		before := locks().Draw(t, "lock")
		s.record = before
		s.fields = maps.Clone(before.fields)
		_, err := s.run("touch", channel, "60000", "-")
		if err != nil {
			t.Fatalf("%v", err)
		}
		after := s.record
		// When the key ends is for the script to say.
		after.ends = before.ends
		if before.fields != nil {
			after.fields["life"] = before.fields["life"]
		}
		if before.id() != after.id() {
			t.Fatalf("%q\nbecomes\n%q", before.id(), after.id())
		}
		forms[form(&before)]++
	})
	require.Len(t, forms, 2, "both were tried")
}

// locks generates records as scripts write them.
func locks() *rapid.Generator[record] {
	return rapid.Custom(func(t *rapid.T) record {
		number := func(what string, most int64) int64 { return rapid.Int64Range(1, most).Draw(t, what) }
		word := rapid.StringMatching(`[!-~]{1,20}`)
		words := rapid.SliceOfNDistinct(word, 12, 12, rapid.ID).Draw(t, "tokens")
		text := func() string { return rapid.StringMatching(`[ -~\n]{0,20}`).Draw(t, "text") }
		high := int64(nowUs) - number("high", 1e9)
		held := func(token string) string {
			return fmt.Sprintf("%s %d %d %d %s %d %d %d %d %s %s", token, now+number("expires", 1e8), number("ttl", 1e8), number("weight", 1<<53-1),
				word.Draw(t, "tag"), high-number("fence", 1e6), number("numbers", 1024), high, now-number("since", 1e8), word.Draw(t, "client"), text())
		}
		if rapid.IntRange(0, 3).Draw(t, "thin") == 0 {
			r := record{text: fmt.Sprint(high), ends: now + 1000}
			if rapid.Bool().Draw(t, "held") {
				r.text += fmt.Sprintf(" %d %s", number("limit", 1<<53-1), held(words[0]))
			}
			return r
		}
		f := map[string]string{"high": fmt.Sprint(high), "limit": fmt.Sprint(number("limit", 1<<53-1)), "life": fmt.Sprint(now + 1000)}
		used, count := int64(0), rapid.IntRange(0, 4).Draw(t, "holders")
		for slot := 1; slot <= count; slot++ {
			used++ // nobody adds up
			f[fmt.Sprint("h:", slot)] = held(words[slot])
			f["t:"+words[slot]] = fmt.Sprint("h", slot)
		}
		if count > 1 {
			f["shares"] = fmt.Sprintf("%d %d %d %d", count, used, now+number("earliest", 1e8), number("span", 1e8))
		}
		waiters := rapid.SliceOfNDistinct(rapid.Int64Range(1, 9), 0, 5, rapid.ID).Draw(t, "places")
		slices.Sort(waiters)
		for i, place := range waiters {
			token := words[5+i]
			f[fmt.Sprint("w:", place)] = fmt.Sprintf("%s %d %d %d %d %d %d %s %s %s", token, number("ask", 1e6), number("weight", 1<<50), number("ttl", 1e8),
				number("fences", 1024), now+number("alive", 1e8), number("heard", 1), word.Draw(t, "client"), word.Draw(t, "owner"), text())
			f["t:"+token] = fmt.Sprint("w", place)
		}
		if len(waiters) > 0 {
			f["longest"] = "100000000"
			f["head"], f["tail"], f["birth"] = fmt.Sprint(waiters[0]), "9", fmt.Sprint(nowUs-number("birth", 1e12))
			f["waiting"] = fmt.Sprint(len(waiters))
		}
		if count+len(waiters) == 0 || rapid.Bool().Draw(t, "tombstones") {
			f["dead"] = fmt.Sprintf("\n%s %d\n%s %d", words[10], now+number("until", 1e5), words[11], now+number("until", 1e5))
		}
		return record{fields: f, ends: now + 1000}
	})
}

// fuel is a context that ends when the interpreter has looked at it so often, as it does before
// each instruction.
type fuel struct {
	context.Context
	left int
}

var spent = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (f *fuel) Done() <-chan struct{} {
	if f.left--; f.left < 0 {
		return spent
	}
	return nil
}

func (f *fuel) Err() error { return context.DeadlineExceeded }

// The key of a lock lives for the retention after its last use, and after the time of its last
// fence. Its lease may have ended, and the fence be ahead of the clock, if that was set back.
func TestKeyOutlivesItsLastUseAndItsLastFence(t *testing.T) {
	const retention = 60_000
	s, err := newServer(map[string]string{
		"lifetime": library(t) + "return lifetime(tonumber(ARGV[3]), tonumber(ARGV[4]))",
	})
	require.NoError(t, err)
	defer s.lua.Close()
	rapid.Check(t, func(t *rapid.T) {
		ms, ahead := rapid.IntRange(-100_000, 100_000).Draw(t, "ms"), rapid.IntRange(-200_000, 200_000).Draw(t, "ahead")
		lives, err := s.run("lifetime", channel, fmt.Sprint(retention), fmt.Sprint(ms), fmt.Sprint((now+ahead)*1000))
		if want := retention + max(ms, ahead); err != nil || lives.String() != fmt.Sprint(want) {
			t.Fatalf("%v ms, %v, instead of %d", lives, err, want)
		}
	})
}

// A script that loops stops the whole server. So none does, whatever is at the key. One that
// fails has changed nothing, if it has not come as far as to tell others of it.
func TestNoScriptLoopsWhateverIsAtTheKey(t *testing.T) {
	scripts := readScripts(t)
	s, err := newServer(scripts)
	require.NoError(t, err)
	defer s.lua.Close()
	calls := map[string][]string{
		"acquire":   {channel, "60000", "a", "2 7 1", "300 1 1 1 3 - a text"},
		"renew":     {channel, "60000", "a", "300", "-"},
		"release":   {channel, "60000", "a", "1 -"},
		"downgrade": {channel, "60000", "a", "1"},
		"force":     {channel, "60000", "-"},
	}
	ends := map[bool]int{}
	try := func(t rapid.TB, before record) {
		for verb, args := range calls {
			s.record, s.hears = before, 1
			s.fields = maps.Clone(before.fields)
			f := &fuel{context.Background(), 300_000}
			s.lua.SetContext(f)
			_, err := s.run(verb, args...)
			if f.left < 0 {
				t.Fatalf("%s does not end with %.1000q", verb, before.id())
			}
			told := err != nil && strings.Contains(err.Error(), "in function 'publish'") // which is last
			if err != nil && !told && before.id() != s.id() {
				t.Fatalf("%s fails, %v, and turns\n%.1000q into\n%.1000q", verb, err, before.id(), s.id())
			}
			ends[err == nil]++
		}
	}
	try(t, record{fields: map[string]string{"dead": strings.Repeat("x", 9000)}, ends: now + 1000})
	try(t, record{fields: map[string]string{"head": "1", "tail": "1e300"}, ends: now + 1000})
	try(t, record{fields: map[string]string{"shares": "999999999999 1 1 1"}, ends: now + 1000})
	rapid.Check(t, func(t *rapid.T) { try(t, garbage().Draw(t, "record")) })
	require.Len(t, ends, 2, "some failed, and some did not")
}

// garbage generates records of which a part is nonsense.
func garbage() *rapid.Generator[record] {
	nonsense := rapid.OneOf(
		rapid.SampledFrom([]string{"", " ", "0", "-1", "1", "1e15", "1e300", "nan", "inf", "9007199254740993", "99999999999999999999", "\n", "h1", "w1", "w99", "a", "\n\n"}),
		rapid.StringMatching(`[a0-9 \n-]{0,12}`),
		rapid.Custom(func(t *rapid.T) string {
			return strings.Repeat(rapid.SampledFrom([]string{"x", "\n", "\na 1", "1 "}).Draw(t, "piece"), rapid.IntRange(1, 9000).Draw(t, "times"))
		}),
	)
	return rapid.Custom(func(t *rapid.T) record {
		r := locks().Draw(t, "lock")
		bad := nonsense.Draw(t, "nonsense")
		if r.text != "" {
			words := strings.Split(r.text, " ")
			words[rapid.IntRange(0, len(words)-1).Draw(t, "word")] = bad
			r.text = strings.Join(words, " ")
			if r.text == "" {
				r.text = "-" // Redis has empty strings; for the model that is no key
			}
			return r
		}
		for range rapid.IntRange(1, 3).Draw(t, "fields") {
			names := append(slices.Sorted(maps.Keys(r.fields)), "t:a", "dead", "shares", "waiting", "head", "tail", "resized", "owner")
			name := rapid.SampledFrom(names).Draw(t, "field")
			words := strings.Split(r.fields[name], " ")
			if rapid.Bool().Draw(t, "all of it") {
				words = []string{bad}
			} else {
				words[rapid.IntRange(0, len(words)-1).Draw(t, "word")] = bad
			}
			r.fields[name] = strings.Join(words, " ")
			bad = nonsense.Draw(t, "more nonsense")
		}
		return r
	})
}
