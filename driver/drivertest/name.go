package drivertest

import (
	"fmt"
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
		queues := t.has(Queue)
		t.push = queues && t.has(Push)
		d, other := t.driver(), t.driver()
		for _, name := range t.names() {
			a, b := t.contender(d, named(name)), t.contender(other, named(name))
			a.place = fmt.Sprintf(" with name %q", name)
			b.place = a.place
			a.lock()
			b.busy()
			a.holds()
			if queues {
				b.req.Wait = true
				b.queue()
			}
			a.release()
			if t.push {
				b.pushed()
			}
			b.lock()
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
