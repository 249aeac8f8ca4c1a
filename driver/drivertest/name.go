package drivertest

import (
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// odd are parts of names that a protocol, a pattern, a hash tag, a path or an
// encoding may trip over.
var odd = []string{
	"{}", "}", "{", "a{b}c", "}{", "\n", "\r\n", "\x00", "\xff", "\xc3\x28", " ", "\t", "é", "日本",
	"*", "?", "[a]", `\`, `'`, `"`, ":", "/", "../", "%", "%00", "$1", "#", "&", ";", "--", "\x7f", "\u2028",
}

// names returns valid names with odd bytes at both ends, and within.
func (t *test) names() []string {
	var names []string
	for _, o := range odd {
		u := t.unique()
		names = append(names, o+u[:5]+o+u[5:]+o)
	}
	return append(names, t.longest())
}

// longest returns a name of MaxName bytes, all of them odd but a few.
func (t *test) longest() string {
	u := t.unique()
	return u + strings.Repeat("\xff", driver.MaxName-len(u))
}

var nameCases = []property{
	{"NamesOfAnyBytes", func(t *test) {
		d, other := t.driver(), t.driver()
		for _, name := range t.names() {
			a, b := t.contender(d, named(name)), t.contender(other, named(name))
			require.Equal(t, driver.Granted, a.askOnce().Status, "name %q", name)
			require.Equal(t, driver.Busy, b.askOnce().Status, "name %q", name)
			require.NoError(t, a.renew(), "name %q", name)
			require.NoError(t, a.releaseOnce(), "name %q", name)
			require.Equal(t, driver.Granted, b.askOnce().Status, "name %q", name)
		}
	}},
	{"WaitingForNamesOfAnyBytes", func(t *test) {
		t.needs(Queue)
		t.push = t.has(Push)
		d, other := t.driver(), t.driver()
		for _, name := range t.names() {
			a, b := t.contender(d, named(name)), t.contender(other, named(name), waiting)
			require.Equal(t, driver.Granted, a.askOnce().Status, "name %q", name)
			require.Equal(t, driver.Queued, b.askOnce().Status, "name %q", name)
			require.NoError(t, a.releaseOnce(), "name %q", name)
			if t.push {
				_, ok := b.woken(driver.Granted, t.patience())
				require.True(t, ok, "no push for name %q", name)
			}
			require.Equal(t, driver.Granted, b.askOnce().Status, "name %q", name)
		}
	}},
	{"SimilarNamesDoNotMeet", func(t *test) {
		d := t.driver()
		u := t.unique()
		long := t.longest()
		names := []string{
			long, long[:driver.MaxName-1], long[:driver.MaxName-1] + "\xfe",
			u, u + "A", u + "a", u + "é", u + "e\u0301", u + "\xe9", u + "\ufffd",
			u + "%41", u + "/", u + "//", u + "/.", u + "//.", u + "{a}b", u + "{a}c", u + "{a}", "{" + u + "}", "{" + u + "}1",
		}
		for _, o := range odd {
			names = append(names, u+o+"1", u+"2"+o, o+u)
		}
		var held []*contender
		for _, name := range names {
			c := t.contender(d, named(name))
			require.Equal(t, driver.Granted, c.askOnce().Status, "name %q meets another", name)
			held = append(held, c)
		}
		for _, c := range held {
			require.NoError(t, c.renew(), "name %q meets another", c.req.Name)
		}
		for _, name := range names {
			require.Equal(t, driver.Busy, t.contender(d, named(name)).askOnce().Status, "name %q", name)
		}
	}},
}
