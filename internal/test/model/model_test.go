package model_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// The times are chosen so that little is left over. A lease lasts 315 ms at the server, which
// is nearly three ticks; trust of 295 ms ends with the third. A waiter that misses two ticks is
// overdue. If the world is to end before a key does, the retention is long.
func base(sc scenario) scenario {
	sc.ttl, sc.tick, sc.back = 300, 106, 212
	if sc.retention == 0 {
		sc.retention = 2000
	}
	if sc.limit == 0 {
		sc.limit = 1
	}
	for i := range sc.claims {
		sc.claims[i].weight = max(sc.claims[i].weight, 1)
	}
	return sc
}

func scenarios() map[string]scenario {
	two, three := []want{{}, {}}, []want{{}, {}, {}}
	reader, writer := want{weight: 1}, want{weight: 3}
	all := map[string]scenario{
		"nothing goes wrong":             {claims: two, asks: 2, mail: 4, ticks: 3},
		"one message is lost":            {claims: two, asks: 2, mail: 3, ticks: 4, faults: faults{lose: 1}},
		"one message comes twice":        {claims: two, asks: 2, mail: 4, ticks: 3, faults: faults{double: 1}},
		"one is lost, one comes twice":   {claims: two, asks: 1, mail: 4, ticks: 4, faults: faults{lose: 1, double: 1}},
		"one crashes":                    {claims: two, asks: 2, mail: 3, ticks: 4, faults: faults{crash: 1}},
		"one of three crashes":           {claims: three, asks: 1, mail: 3, ticks: 4, faults: faults{crash: 1}},
		"one is cut off from news":       {claims: three, asks: 2, mail: 3, ticks: 2, faults: faults{cut: 1}},
		"somebody uses force":            {claims: two, asks: 2, mail: 4, ticks: 3, faults: faults{force: 1}},
		"the server's clock is set back": {claims: two, asks: 2, mail: 3, ticks: 3, faults: faults{setBack: 1}},
		"a key ends":                     {claims: two, asks: 1, mail: 3, retention: 450, faults: faults{lose: 1}},
		"one asks after another":         {claims: []want{{}, {after: 1}, {}}, asks: 2, mail: 3, ticks: 4},
		"one does not wait":              {claims: []want{{}, {try: true}}, asks: 2, mail: 3, ticks: 4},
		"readers and a writer":           {limit: 3, claims: []want{reader, {weight: 3, lower: true}, reader}, asks: 1, mail: 4, ticks: 3},
		"two writers and a reader":       {limit: 3, claims: []want{writer, writer, reader}, asks: 1, mail: 4, ticks: 3, faults: faults{lose: 1}},
		"three ask at the same time":     {claims: three, asks: 1, mail: 3, ticks: 1},
		"permits":                        {limit: 3, claims: []want{{weight: 2, lower: true}, {weight: 2}, {weight: 1}}, asks: 1, mail: 3, ticks: 2},
		"four with permits":              {limit: 3, claims: []want{{weight: 1}, {weight: 2}, {weight: 1}, {weight: 3}}, asks: 1, mail: 3, ticks: 1},
		"one of four may wait":           {room: 1, claims: []want{{}, {}, {}, {}}, asks: 2, mail: 3, ticks: 3, faults: faults{crash: 1}},
		"many fences":                    {claims: []want{{fences: 2}, {fences: 2}}, asks: 2, mail: 3, ticks: 3, faults: faults{setBack: 1}},
	}
	for name, sc := range all {
		all[name] = base(sc)
	}
	return all
}

// most is how many states of a scenario to look at.
func most() int {
	if raced {
		return 10_000
	}
	return redistest.Rounds(250_000)
}

func TestPromisesHoldInEveryState(t *testing.T) {
	scripts := readScripts(t)
	states, runs, changes := 0, 0, map[string]int{}
	all := scenarios()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, all[name], scripts)
			r := w.search(most())
			if r.wrong != "" {
				t.Fatalf("FOUL: %s, after\n%s", r.wrong, r.trace)
			}
			extent := "the first of them, all within %d moves"
			if r.all {
				extent = "all there are, at most %d moves away"
			}
			t.Logf("%d states, "+extent+"; %d records, %d runs of scripts", r.states, r.depth, len(w.records), len(w.effects))
			states, runs = states+r.states, runs+len(w.effects)
			for change, n := range w.changes {
				changes[change] += n
			}
		})
	}
	t.Logf("%d states, %d runs of scripts; changes of form: %v", states, runs, changes)
	for _, change := range []string{"nothing to thin", "thin to thin", "thin to fat", "fat to fat", "fat to thin", "nothing to fat"} {
		require.NotZero(t, changes[change], change)
	}
	if raced {
		t.Log("FEW STATES, since the race detector is on: it sees nothing in one goroutine")
	}
	require.GreaterOrEqual(t, states, 18*most(), "all but one scenario have more")
}

func newWorld(t testing.TB, sc scenario, scripts map[string]string) *world {
	store, err := newStore(&sc, scripts)
	require.NoError(t, err)
	t.Cleanup(store.server.lua.Close)
	return &world{store: store}
}

// A model that finds nothing may be blind. These are mistakes that it must see.
func TestModelFindsMistakes(t *testing.T) {
	for name, m := range map[string]struct {
		in       string // scenario
		old, new string // in the scripts
		short    bool   // in the short way; others are looked for in the general way alone
		compared bool   // the short way is compared with the general way
		wrongs   wrongs // or in the client
	}{
		"no tombstones": {
			in:  "one message is lost",
			old: "if unsettled == '1' then\nbury(ARGV[3 + at])\nend\n",
		},
		"no grant loop": {
			in:  "nothing goes wrong",
			old: "local function grant()\n", new: "local function grant()\nif true then return 0 end\n",
		},
		"thin release without a look at the owner": {
			in:  "nothing goes wrong",
			old: "if holder == token and #high <= 16", new: "if holder and #high <= 16", short: true,
		},
		"fat release without a look at the owner": {
			in:  "nothing goes wrong",
			old: "if h and h.token == token then", new: "if h then",
		},
		"a thin lock that is held looks free": {
			in:  "nothing goes wrong",
			old: "if record then\nhigh", new: "if record then\nrecord = match(record, '^%d+')\nhigh", short: true,
		},
		"trust from the receipt of an answer":  {in: "nothing goes wrong", wrongs: wrongs{believeFromReceipt: true}},
		"trust from the newest ask":            {in: "nothing goes wrong", wrongs: wrongs{believeNewest: true}},
		"a late grant is forgotten":            {in: "one does not wait", wrongs: wrongs{forgetLateGrant: true}},
		"a repeat does not lengthen the lease": {in: "nothing goes wrong", old: "h.expires = math.max(h.expires, now + h.ttl + grace(h.ttl))"},
		"a waiter that has left is granted the lock": {
			in:  "nothing goes wrong",
			old: "drop_waiter(waiter_at(lock.place))\nstatus = WAITED", new: "status = WAITED",
		},
		"a fence that is that of the one before": {
			in:  "the server's clock is set back",
			old: "first = high + 1\n", new: "first = high\n",
		},
		"readers with one fence": {
			in:  "readers and a writer",
			old: "first = high + 1\n", new: "first = high\n",
		},
		"the thin form forgets the fence": {
			in:  "the server's clock is set back",
			old: "redis.pcall('SET', KEYS[1], high, 'KEEPTTL'", new: "redis.pcall('SET', KEYS[1], '0', 'KEEPTTL'", short: true,
		},
		"a fat lock that gets thin forgets the fence": {
			in:  "the server's clock is set back",
			old: "or int(lock.high)\n", new: "or '0'\n",
		},
		"heartbeats serve nobody": {
			in:  "one of three crashes",
			old: "if lock.used < lock.limit or ask ~= '1' and now + w.ttl / 3 > lock.earliest then\nmore = grant()\nend\n",
		},
		"a short way that forgets the one that moved": {
			in: "readers and a writer", compared: true,
			old: "redis.call('HSET', KEYS[1], 'h:' .. slot, last, 't:' .. moved, 'h' .. slot)\n", new: "",
		},
		"a short way that counts a waiter twice": {
			in: "one asks after another", compared: true,
			old: "int(waiting + 1)", new: "int(waiting + 2)",
		},
		"a short way that lets a dead waiter hold the lock": {
			in: "one crashes", compared: true,
			old: "if alive < now or ", new: "if ",
		},
		"two more may wait than were to": {
			in:  "one of four may wait",
			old: "set('waiting', lock.waiting + 1)",
		},
		"one is turned away because of the dead": {
			in:  "one of four may wait",
			old: "drop_dead()\ngrant()\n",
		},
		"one that asks again is turned away": {
			in:  "one of four may wait",
			old: "lock.waiting >= w.room and not lock.place then", new: "lock.waiting >= w.room then",
		},
		"a small request overtakes a large one": {
			in:  "permits",
			old: "elseif w and w.weight > lock.limit - lock.used then\nbreak\n",
			new: "elseif w and w.weight > lock.limit - lock.used then\n",
		},
		"one that would hear is passed over": {
			in:  "one is cut off from news",
			old: "and listeners(w.client) == 0", new: "",
		},
		"a grant that nobody is told of": {
			in:  "nothing goes wrong",
			old: "news[client] = news[client] and news[client] .. '\\n' .. line or line\n",
			new: "if string.byte(line) ~= 103 then news[client] = line end\n",
		},
		"a downgrade without an effect for others": {
			in:  "permits",
			old: "h.weight, lock.used = h.weight - excess, lock.used - excess", new: "h.weight = h.weight - excess",
		},
		"a key without an end": {
			in:  "nothing goes wrong",
			old: "if life and not refused then", new: "if false then",
		},
		"a key that ends before the lease": {
			in:  "nothing goes wrong",
			old: "'PXAT', int(now + retention + length))\nreplies", new: "'PXAT', int(now + 100))\nreplies", short: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			scripts, found := readScripts(t), m.old == ""
			for _, verb := range []string{"acquire", "renew", "release"} {
				if !m.short && !m.compared {
					scripts[verb] = scripts[general+verb]
				}
				if !m.compared {
					delete(scripts, general+verb)
				}
			}
			for verb, text := range scripts {
				found = found || strings.Contains(text, m.old)
				if m.old != "" {
					scripts[verb] = strings.ReplaceAll(text, m.old, m.new)
				}
			}
			require.True(t, found, "no script has %q", m.old)
			sc := scenarios()[m.in]
			require.NotZero(t, sc.asks, m.in)
			sc.wrongs = m.wrongs
			r := newWorld(t, sc, scripts).search(redistest.Rounds(4_000_000))
			require.NotEmpty(t, r.wrong, "not found in %d states", r.states)
			t.Logf("found in %d states, after %d moves: %s", r.states, r.depth, r.wrong)
		})
	}
}
