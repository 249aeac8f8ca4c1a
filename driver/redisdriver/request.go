package redisdriver

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/news"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// request is a run of a script for one lock.
type request struct {
	*script
	lock lock
	args [3]any // strings
	// contended is set if others are known to want the lock, or much is to be remembered of it.
	contended bool
}

// arguments are those that the script takes.
func (r *request) arguments() []any { return r.args[:r.script.arguments] }

// format comes after the prefix in all keys and channels: the number of the format that
// they are in.
const format = ":2:"

// lock is a lock, and its key as an argument: a string.
type lock struct {
	kind driver.Kind
	name string
	key  any
}

// lockAt returns a lock whose key begins with base, a prefix and format. No two locks have the
// same key: the kind begins where format and a kind come first in the key, and no prefix has
// that in it.
func lockAt(base string, k driver.Kind, name string) lock {
	return lock{k, name, base + string(k) + ":" + name}
}

func (d *Driver) lock(k driver.Kind, name string) lock { return lockAt(d.channel.base, k, name) }

// lockOf returns a lock that something is to be said to about a token. It is mostly the one of
// which the token was first heard, whose key is there.
func (d *Driver) lockOf(t *token, k driver.Kind, name string) lock {
	key, _ := t.Beside.key.(string)
	if at := len(key) - len(name) - 1; at > 0 && key[at] == ':' && key[at+1:] == name {
		if base, ok := strings.CutSuffix(key[:at], string(k)); ok && base == d.channel.base {
			return lock{k, name, t.Beside.key}
		}
	}
	return d.lock(k, name)
}

// askArg is which ask of a token this is, and the place that it was told to wait in.
func askArg(ask uint64, at driver.Place) any {
	if ask == 1 && at.Number == 0 {
		return firstAsk
	}
	b := strconv.AppendUint(make([]byte, 0, 48), ask, 10)
	b = strconv.AppendInt(append(b, ' '), at.Birth, 10)
	return string(strconv.AppendInt(append(b, ' '), at.Number, 10))
}

var firstAsk any = "1 0 0"

// requestText is all else that a request says, in one text: see acquire.lua. Most requests of a client
// say the same, so the last is kept.
type requestText struct {
	numbers               [5]int64
	client, owner, holder string
	text                  any // a string
}

// requestArg returns what a request says in one text.
func (d *Driver) requestArg(r *driver.Request, wait bool) any {
	weight, limit := r.Share()
	w := requestText{
		numbers: [...]int64{redisscript.Millis(r.TTL), capFences(r.Fences), room(r, wait), weight, limit},
		client:  d.channel.client(r), owner: owner(r), holder: r.Holder,
	}
	memo := &d.requestTexts[0]
	if r.Shared {
		memo = &d.requestTexts[1]
	}
	if last := memo.Load(); last != nil {
		if w.text = last.text; w == *last {
			return last.text
		}
	}
	b := make([]byte, 0, 128)
	for _, n := range w.numbers {
		b = append(strconv.AppendInt(b, n, 10), ' ')
	}
	b = append(append(b, w.owner...), ' ')
	b = append(append(b, w.client...), ' ')
	kept := w
	kept.text = string(append(b, w.holder...))
	memo.Store(&kept)
	return kept.text
}

// room is how many may wait if the request comes to wait, too.
func room(r *driver.Request, wait bool) int64 {
	switch {
	case !wait:
		return 0
	case r.MaxWaiters > 0:
		return min(r.MaxWaiters, driver.MaxLimit)
	}
	return driver.MaxLimit
}

// releaseArg is what a release says of a lease, see release.lua.
func releaseArg(l driver.Lease) any {
	if !l.Unsettled && news.Tag(l.HolderTag) == "" {
		return plainRelease
	}
	unsettled, said := "0 ", nobody
	if l.Unsettled {
		unsettled = "1 "
	}
	if news.Tag(l.HolderTag) != "" {
		said = l.HolderTag
	}
	return unsettled + said
}

var plainRelease any = "0 " + nobody

// capFences is how many fences to ask for. Those of a grant are from the last so many us, and a
// master that has lost what another gave must not give them again: a failover takes longer.
func capFences(fences int64) int64 { return min(max(fences, 1), 1024) }

// nobody stands for no token, tag, client or owner in scripts and records.
const nobody = "-"

// tag is a holder's tag as an argument.
func tag(s string) any {
	if news.Tag(s) == "" {
		return nobody
	}
	return s
}

// owner returns on whose behalf a request is made, without spaces.
func owner(r *driver.Request) string {
	if r.Kind == driver.Semaphore || r.Shared || r.Owner == "" {
		return nobody
	}
	return "=" + url.PathEscape(r.Owner)
}

// original undoes that.
func original(owner string) string {
	escaped, ok := strings.CutPrefix(owner, "=")
	if !ok {
		return ""
	}
	if name, err := url.PathUnescape(escaped); err == nil {
		return name
	}
	return escaped // of no client of ours
}
