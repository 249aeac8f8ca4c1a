package drivertest

import (
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

var refusalCases = []property{
	refusal("EmptyNameIsRefused", func(r *driver.Request) { r.Name = "" }),
	refusal("LongNameIsRefused", func(r *driver.Request) {
		r.Name += strings.Repeat("n", driver.MaxName+1-len(r.Name))
	}),
	refusal("EmptyTokenIsRefused", func(r *driver.Request) { r.Token = "" }),
	refusal("TokenWithASpaceIsRefused", func(r *driver.Request) { r.Token += " 1" }),
	refusal("TokenWithALineBreakIsRefused", func(r *driver.Request) { r.Token += "\n1" }),
	refusal("ZeroTTLIsRefused", func(r *driver.Request) { r.TTL = 0 }),
	refusal("NegativeTTLIsRefused", func(r *driver.Request) { r.TTL = -driver.MinTTL }),
	refusal("ShortTTLIsRefused", func(r *driver.Request) { r.TTL = driver.MinTTL - 1 }),
	refusal("LongTTLIsRefused", func(r *driver.Request) { r.TTL = driver.MaxTTL + 1 }),
	refusal("EmptyKindIsRefused", func(r *driver.Request) { r.Kind = "" }),
	refusal("UnknownKindIsRefused", func(r *driver.Request) { r.Kind = "no such kind" }),
}

// refusal is the property that a request with one thing wrong is refused for good
// and leaves the lock as it was, whether or not it would wait.
func refusal(name string, spoil func(*driver.Request)) property {
	return property{name, func(t *test) {
		d := t.driver()
		for _, wait := range []bool{false, true} {
			bad := t.contender(d, spoil)
			bad.req.Wait = wait
			bad.denied(driver.ErrNotExecuted)
		}
		t.contender(d).lock()
	}}
}
