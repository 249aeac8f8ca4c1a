package redisdriver

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/news"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// What the scripts answer first, under the names that it has there.
const (
	acquireBuried   = 0
	acquireBusy     = 1
	acquireQueued   = 2
	acquireGranted  = 3
	acquireExceeded = 4
	acquireConflict = 5
	acquireFull     = 6

	statusNeither = 0
	statusHeld    = 1
	statusWaited  = 2 // of a release
	statusWanted  = 2 // of a notice
	statusOwned   = 2 // of a downgrade
)

// answer is what a script says of a lock: a status, numbers, those that it leaves out 0, and
// perhaps a text at the end. The methods name the numbers.
type answer struct {
	numbers [5]int64
	text    string
}

// status is one of those above.
func (a *answer) status() int64 { return a.numbers[0] }

// acquired are the numbers of acquire. The status tells the meaning of first: ms after which to
// look again, a fence, or a limit. more comes with each of them.
func (a *answer) acquired() (first int64, more bool) { return a.numbers[1], a.numbers[2] == 1 }

// granted are the numbers of a grant, of acquire or attach.
func (a *answer) granted() (fence, fences int64) { return a.numbers[1], a.numbers[3] }

// place is where a token waits, of acquire.
func (a *answer) place() driver.Place { return driver.Place{Birth: a.numbers[3], Number: a.numbers[4]} }

// weight is that of a hold that was attached to.
func (a *answer) weight() int64 { return a.numbers[4] }

// more reports whether the queue has more to be served, of a script that gives no fences.
func (a *answer) more() bool { return a.numbers[1] == 1 }

// wanted reports whether others wait, of a renewal.
func (a *answer) wanted() bool { return a.numbers[2] == 1 }

// read reads what a script says of a lock: a list, or what stands for one. A number is the
// status, and the rest is 0. A text is "fence numbers" of a grant, or "waits ms birth place tag".
func read(reply any) (a answer, err error) {
	switch reply := reply.(type) {
	case error:
		return a, redisscript.Classify(reply)
	case int64:
		a.numbers[0] = reply
		return a, nil
	case string:
		return readText(reply)
	}
	list, _ := reply.([]any)
	if last := len(list) - 1; last > 0 {
		if text, ok := list[last].(string); ok {
			a.text, list = text, list[:last]
		}
	}
	if len(list) == 0 || len(list) > len(a.numbers) {
		return a, fmt.Errorf("redisdriver: a script answered with %v", reply)
	}
	for i, v := range list {
		n, ok := v.(int64)
		if !ok {
			return a, fmt.Errorf("redisdriver: a script answered with a %T", v)
		}
		a.numbers[i] = n
	}
	return a, nil
}

// readText reads an answer that is one text: it costs Redis less than a list.
func readText(reply string) (a answer, err error) {
	places := [...]int{1, 3, 4}
	numbers := places[:2]
	a.numbers[0] = acquireGranted
	rest, waits := strings.CutPrefix(reply, "waits ")
	if waits {
		a.numbers[0], numbers = acquireQueued, places[:]
	}
	for _, i := range numbers {
		var number string
		number, rest, _ = strings.Cut(rest, " ")
		if a.numbers[i], err = strconv.ParseInt(number, 10, 64); err != nil {
			return a, fmt.Errorf("redisdriver: a script answered with %q", reply)
		}
	}
	a.text = rest
	return a, nil
}

// heldBy adds to an answer who holds the lock: "tag now" and what record.lua says of the
// grant; or "tag" if no holder is in the way.
func (a *answer) heldBy(g driver.Grant) driver.Grant {
	parts := strings.SplitN(a.text, " ", 7) // tag now fence numbers since client text
	g.HolderTag = news.Tag(parts[0])
	if g.Behind = len(parts) < 7; !g.Behind {
		g.Holder, g.HeldFor = parts[6], max(0, millis(parts[1]).Sub(millis(parts[4])))
		g.HolderFence, _ = strconv.ParseInt(parts[2], 10, 64) // written by a script
	}
	return g
}

// inspected reads what inspect says of a lock. It is no lock if ok is false.
func inspected(name string, k driver.Kind, v any) (info driver.Info, ok bool, err error) {
	info.Name = name
	reply, _ := v.([]any)
	if len(reply) != 3 {
		return info, false, fmt.Errorf("redisdriver: unexpected answer from inspect: %v", v)
	}
	us, _ := reply[0].(int64)
	now := time.UnixMilli(us / 1000) // the scripts count in ms: for them a lease ends after that

	// The fat form has the parts of the thin one, "high limit holder", in fields of their own.
	fields := map[string]string{}
	limit, resized, owner := "", false, ""
	if thin, ok := reply[1].(string); ok {
		switch p := strings.SplitN(thin, " ", 3); len(p) {
		case 1:
			if _, err := strconv.ParseInt(thin, 10, 64); err != nil {
				return info, false, nil
			}
		case 3:
			limit, fields["h:1"] = p[1], p[2]
		}
	} else {
		list, _ := reply[2].([]any)
		for i := 0; i+1 < len(list); i += 2 {
			fields[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
		}
		limit, resized, owner = fields["limit"], fields["resized"] != "", original(fields["owner"])
	}
	info.Holders = holders(fields, owner, now, k)
	info.Queue = queue(fields, now, k)
	if k == driver.Semaphore && (len(info.Holders) > 0 || len(info.Queue) > 0 || resized) {
		info.Limit, _ = strconv.ParseInt(limit, 10, 64)
	}
	return info, true, nil
}

// holders reads those that holder_record in script/lib/record.lua writes.
func holders(fields map[string]string, owner string, now time.Time, k driver.Kind) []driver.Holder {
	var all []driver.Holder
	for field, record := range fields {
		parts := strings.SplitN(record, " ", 10) // token expires ttl weight tag fence numbers since client text
		if !strings.HasPrefix(field, "h:") || len(parts) < 10 {
			continue
		}
		h := driver.Holder{Holder: parts[9], Owner: owner, Since: millis(parts[7]), TimeLeft: millis(parts[1]).Sub(now), Tag: news.Tag(parts[4])}
		if h.TimeLeft < 0 {
			continue
		}
		h.Shared, h.Weight = share(k, parts[3])
		h.Fence, _ = strconv.ParseInt(parts[5], 10, 64)
		numbers, _ := strconv.ParseInt(parts[6], 10, 64)
		h.LastFence = h.Fence + numbers - 1
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b driver.Holder) int {
		return cmp.Or(cmp.Compare(a.Fence, b.Fence), a.Since.Compare(b.Since), cmp.Compare(a.Holder, b.Holder))
	})
	return all
}

// share tells what weight means for a kind.
func share(k driver.Kind, weight string) (shared bool, permits int64) {
	n, _ := strconv.ParseInt(weight, 10, 64)
	switch k {
	case driver.RWMutex:
		return n == 1, 0
	case driver.Semaphore:
		return false, n
	}
	return false, 0
}

// queue reads the waiters that waiter_record in script/lib/record.lua writes, without those that
// have stopped asking.
func queue(fields map[string]string, now time.Time, k driver.Kind) []driver.Waiter {
	type placed struct {
		place int64
		driver.Waiter
	}
	var seats []placed
	for field, record := range fields {
		place, ok := strings.CutPrefix(field, "w:")
		parts := strings.SplitN(record, " ", 10) // token ask weight ttl fences alive heard client owner text
		if !ok || len(parts) < 10 || millis(parts[5]).Before(now) {
			continue
		}
		waiter := driver.Waiter{Holder: parts[9], Owner: original(parts[8]), Since: driver.Since(parts[0])}
		waiter.Shared, waiter.Weight = share(k, parts[2])
		n, _ := strconv.ParseInt(place, 10, 64)
		seats = append(seats, placed{n, waiter})
	}
	slices.SortFunc(seats, func(a, b placed) int { return cmp.Compare(a.place, b.place) })
	var waiters []driver.Waiter
	for _, s := range seats {
		waiters = append(waiters, s.Waiter)
	}
	return waiters
}

func millis(s string) time.Time {
	n, _ := strconv.ParseInt(s, 10, 64)
	return time.UnixMilli(n)
}
