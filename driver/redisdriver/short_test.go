package redisdriver_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/internal/test/seed"
)

// What another program keeps there is not taken for a lock that is free, though Lua may take
// it for a number.
func TestStringThatIsNoLockIsLeftAlone(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		p := join(t, open(t, rdb, s), "token", ttl)
		p.req.Ask = 1
		for _, text := range []string{"", " 7 ", "1.5", "-3", "0x1F", "1e5", "inf", "nan", "hello"} {
			require.NoError(t, rdb.Set(t.Context(), key(s), text, 0).Err())
			_, err := p.d.Acquire(t.Context(), &p.req)
			require.ErrorContains(t, err, "WRONGTYPE", "%q", text)
			require.Equal(t, text, rdb.Get(t.Context(), key(s)).Val())
		}
	})
}

// Where Lua's integers have 32 bits, %d prints something else. Better no lock than a wrong one.
func TestServerOf32BitsIsRefused(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		for _, script := range redisdriver.Scripts() {
			if script.Verb != "acquire" {
				continue
			}
			for format, want := range map[string]string{"'%d', number": "", "'%d', number % 4294967296": "32 bits"} {
				text := strings.Replace(script.Text, "'%d', number", format, 1)
				err := s.Client(t).Eval(t.Context(), text, []string{s.Prefix() + format}, "wake:", "60000",
					"token", "1 0 0", "10000 1 0 1 1 - - holder").Err()
				if want == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, want)
				}
			}
		}
	})
}

// The general way is what a lock is. The short ways, script/short, must do the same to it: on the
// same lock, at the same time, with the same answers, news, fields and end of the key. This compares
// them on a real server, through sequences of steps that nobody has thought of.
//
// HOLDFAST_SOAK=1 has it try 200,000 sequences.
func TestShortWaysDoWhatTheGeneralWayDoes(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	rdb := s.Client(t)
	harness := redis.NewScript(alike(t))
	t.Logf("HOLDFAST_SEED=%d", seed.Of())
	random := rand.New(rand.NewPCG(seed.Of(), 0))
	enough := map[string]int{}
	most := redistest.Rounds(200_000)
	if most < 200_000 {
		most = 750
	}
	keys := []string{"lock 1", "lock 2", "twin 1", "twin 2"}
	for i := range most {
		steps, err := json.Marshal(newStory(random).steps())
		require.NoError(t, err)
		reply, err := harness.Run(t.Context(), rdb, keys, steps).StringSlice()
		require.NoError(t, err)
		require.Empty(t, reply[0], "FOUL: sequence %d, %s", i, steps)
		counts := map[string]int{}
		require.NoError(t, json.Unmarshal([]byte(reply[1]), &counts))
		for what, n := range counts {
			enough[what] += n
		}
	}
	for _, what := range slices.Sorted(maps.Keys(enough)) {
		t.Logf("%7d %s", enough[what], what)
	}
	for _, what := range []string{ // a comparison of the general way with itself proves nothing
		"acquire nothing to held: string", "acquire free to held: string",
		"acquire fat to fat+queue: waits", "acquire fat+queue to fat+queue: waits", "acquire fat+queue+dead to fat+queue+dead: waits",
		"acquire shared to shared: string", "acquire shared+dead to shared+dead: string", "acquire shared+queue to shared+queue: waits",
		"release held to free: number", "release fat to free: number", "release fat+queue to fat+queue: number",
		"release fat+queue to fat: number", "release fat+queue+dead to fat+queue+dead: number", "release shared to shared: number",
		"release shared to fat: number", "release shared+queue to shared+queue: number", "release shared+queue to shared: number",
		"renew held to held: number",
	} {
		assert.Greater(t, enough[what], most/1000, what)
	}
}

// shortWays are the parts of a script that are them, each up to the next part.
var shortWays = regexp.MustCompile(`(?s)-- short/\w+\.lua\n.*?(-- lib/)`)

// alike is a script that does steps to two locks, the short way and the general way.
func alike(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("local ways = { short = { one = {}, many = {} }, general = { one = {}, many = {} } }\n")
	add := func(way, verb, script string) {
		for number, version := range map[string]string{"many": script, "one": redisdriver.ForOne(script)} {
			fmt.Fprintf(&text, "ways.%s.%s.%s = function(redis, KEYS, ARGV)\n%s\nend\n", way, number, verb, version)
		}
	}
	const end = "-- lib/record.lua\n" // of the short way
	for _, script := range redisdriver.Scripts() {
		if script.Verb == "ping" || script.Verb == "inspect" {
			continue
		}
		add("short", script.Verb, strings.Replace(script.Text, end, "redis.general = true\n", 1))
		general := shortWays.ReplaceAllString(script.Text, "$1")
		require.NotContains(t, general, "-- short/")
		add("general", script.Verb, general)
	}
	last, err := os.ReadFile("testdata/short.lua")
	require.NoError(t, err)
	return text.String() + string(last)
}

// story makes up what happens to two locks.
type story struct {
	*rand.Rand
	limit   int64
	weights []int64
	ttls    []int
	fences  []int
	calm    bool // nothing out of the ordinary
	people  []person
}

// person is a token, and what it asks for.
type person struct {
	token, client, owner, text string
	weight                     int64
	ttl, fences, asks          int
}

// storyStep is one step, as testdata/short.lua reads it.
type storyStep struct {
	Verb  string   `json:"verb"`
	Args  []string `json:"args"`
	Locks []int    `json:"locks"`
	Us    int64    `json:"us"`
	Deaf  []string `json:"deaf"`
	Full  bool     `json:"full"`
}

func pick[T any](s *story, from ...T) T { return from[s.IntN(len(from))] }

func (s *story) chance(percent int) bool { return s.IntN(100) < percent }

func newStory(random *rand.Rand) *story {
	s := &story{Rand: random}
	s.calm = s.chance(60)
	switch s.IntN(3) {
	case 0:
		s.limit, s.weights = 1, []int64{1}
	case 1:
		s.limit, s.weights = 3, pick(s, []int64{1}, []int64{1, 2, 3})
	case 2:
		s.limit, s.weights = 1<<30, []int64{1, 1, 1 << 30}
	}
	s.ttls = pick(s, []int{10_000}, []int{10_000}, []int{10_000, 9_000}, []int{60, 300, 1_000}, []int{50_000, 7}, []int{60_000, 60_001, 30_000})
	s.fences = pick(s, []int{1}, []int{32}, []int{1, 32, 1024})
	for i := range 3 + s.IntN(5) {
		p := person{token: fmt.Sprint("token-", i), owner: "-", weight: pick(s, s.weights...), ttl: pick(s, s.ttls...), fences: pick(s, s.fences...),
			client: pick(s, "a.secret", "a.secret", "b.other", "c.third"), text: pick(s, "host:1", "", "some text here")}
		if !s.calm && s.chance(20) {
			p.client = pick(s, "-", "a.secret!", "b.other!", "d")
		}
		if !s.calm && s.chance(10) {
			p.owner = pick(s, "=x", "=y")
		}
		s.people = append(s.people, p)
	}
	return s
}

func (s *story) steps() []storyStep {
	list := make([]storyStep, 10+s.IntN(40))
	for i := range list {
		list[i] = s.step()
	}
	return list
}

func (s *story) step() storyStep {
	step := storyStep{Locks: []int{1}, Deaf: []string{}, Us: s.Int64N(3_000)}
	switch n := s.IntN(100); {
	case n < 15:
		step.Us = s.Int64N(5)
	case n < 25:
		step.Us = s.Int64N(200_000)
	case n < 35:
		step.Us = s.Int64N(3_000_000)
	case n < 38:
		step.Us = s.Int64N(40_000_000)
	case n < 40 && !s.calm:
		step.Us = -s.Int64N(5_000_000)
	}
	if s.chance(10) {
		step.Deaf = append(step.Deaf, pick(s, "a", "b", "c"))
	}
	if s.chance(10) {
		step.Locks = pick(s, []int{2}, []int{2}, []int{1, 2}, []int{1, 1}, []int{2, 1, 1})
	}
	// Of several locks it is the first that is written to that may be refused.
	step.Full = !s.calm && s.chance(5) && len(step.Locks) == 1
	who := func() *person { return &s.people[s.IntN(len(s.people))] }
	switch n := s.IntN(100); {
	case n < 50:
		step.Verb = "acquire"
		for range step.Locks {
			step.Args = append(step.Args, s.ask(who())...)
		}
	case n < 85:
		step.Verb = "release"
		unsettled := 3
		if !s.calm {
			unsettled = 20
		}
		for range step.Locks {
			step.Args = append(step.Args, who().token, fmt.Sprint(bit(s.chance(unsettled)), " ", pick(s, "-", "-", "tag-1")))
		}
	case n < 93 || s.calm:
		step.Verb = "renew"
		for range step.Locks {
			p := who()
			step.Args = append(step.Args, p.token, fmt.Sprint(pick(s, p.ttl, p.ttl, p.ttl/2+1, 2*p.ttl)), pick(s, "-", "tag-2"))
		}
	default:
		s.rarely(&step, who())
	}
	return step
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (s *story) ask(p *person) []string {
	asked := "1 0 0"
	if p.asks++; p.asks > 1 && s.chance(60) || s.chance(5) {
		asked = fmt.Sprint(pick(s, p.asks, p.asks, p.asks, 1), " seat")
	}
	room, limit := pick(s, 1<<30, 1<<30, 1<<30, 1<<30, 1<<30, 1<<30, 1<<30, 0, 2), s.limit
	if !s.calm && s.chance(3) {
		limit = pick[int64](s, 1, 2, 3)
	}
	return []string{p.token, asked, fmt.Sprintf("%d %d %d %d %d %s %s %s", p.ttl, p.fences, room, p.weight, limit, p.owner, p.client, p.text)}
}

// rarely makes up a step that has no short way.
func (s *story) rarely(step *storyStep, p *person) {
	step.Locks = step.Locks[:1]
	switch s.IntN(6) {
	case 0:
		step.Verb, step.Args = "notice", []string{p.token}
	case 1:
		step.Verb, step.Args = "downgrade", []string{p.token, "1"}
	case 2:
		step.Verb, step.Args = "resize", []string{fmt.Sprint("resize-", s.IntN(1000)), fmt.Sprint(1 + s.IntN(4))}
	case 3:
		step.Verb, step.Args = "force", []string{"-"}
	case 4:
		step.Verb, step.Args = "attach", []string{fmt.Sprint("attached-", s.IntN(3)), p.token, fmt.Sprint(p.ttl), "1", p.client, "text"}
	case 5:
		step.Verb, step.Args = "raise", []string{p.token, "1700000000100000", "1"}
	}
}
