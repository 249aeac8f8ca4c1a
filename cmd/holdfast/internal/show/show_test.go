package show

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/holdfast-go/holdfast"
)

func TestDescribeSaysWhoAndHowMany(t *testing.T) {
	since := time.Date(2026, 11, 21, 17, 0, 0, 0, time.Local)
	by := func(name string) holdfast.Holder { return holdfast.Holder{Holder: name, Since: since} }
	reader := holdfast.Holder{Holder: "r:1", Since: since, Shared: true}
	two := holdfast.Holder{Holder: "s:1", Since: since, Weight: 2}
	waiters := make([]holdfast.Waiter, 2)
	for want, info := range map[string]holdfast.Info{
		"locked": {},
		"held by a:1 since 2026-11-21 17:00:00; 2 wait":                                {Holders: []holdfast.Holder{by("a:1")}, Queue: waiters},
		"held by r:1 since 2026-11-21 17:00:00 (shared); 1 waits":                      {Holders: []holdfast.Holder{reader}, Queue: waiters[:1]},
		"held by s:1 since 2026-11-21 17:00:00 (2 permits); 2 of 2 permits are in use": {Holders: []holdfast.Holder{two}, Limit: 2},
		"held by 4: r:1 since 2026-11-21 17:00:00 (shared), r:1 since 2026-11-21 17:00:00 (shared), " +
			"r:1 since 2026-11-21 17:00:00 (shared) and 1 other": {Holders: []holdfast.Holder{reader, reader, reader, reader}},
	} {
		assert.Equal(t, want, Describe(info, true))
	}
	assert.NotContains(t, Describe(holdfast.Info{Holders: []holdfast.Holder{by("a:1")}, Queue: waiters}, false), "wait",
		"who has waited is among them")
}

func TestBriefHasThreeDigits(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0.41 ms": 412 * time.Microsecond,
		"12.3 ms": 12345 * time.Microsecond,
		"123 ms":  123 * time.Millisecond,
		"1.50 s":  1500 * time.Millisecond,
	} {
		assert.Equal(t, want, Brief(d))
	}
}

func TestTextOfAHolderCannotControlATerminal(t *testing.T) {
	assert.Equal(t, "vm:1", Printable("vm:1"))
	assert.Equal(t, `"\x1b[2Jvm"`, Printable("\x1b[2Jvm"))
	assert.Equal(t, `""`, Printable(""))
	assert.Equal(t, `"a\xffb"`, Printable("a\xffb")) // which would also move the columns of a table
	assert.Equal(t, `"\x9b"`, Printable("\x9b"))
}
