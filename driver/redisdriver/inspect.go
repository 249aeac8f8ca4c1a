package redisdriver

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Inspect implements [driver.Inspector].
func (d *Driver) Inspect(ctx context.Context, k driver.Kind, name string) (driver.Info, error) {
	info := driver.Info{Name: name}
	cmd, err := d.run(ctx, inspectScript, k, name, "-")
	if err != nil {
		return info, err
	}
	reply, err := cmd.Slice()
	if err != nil || len(reply) != inspectScript.answer {
		return info, fmt.Errorf("redisdriver: unexpected answer from inspect: %v", err)
	}
	us, _ := reply[0].(int64)
	list, _ := reply[1].([]any)
	fields := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		fields[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
	}
	now := time.UnixMilli(us / 1000) // the scripts count in ms: for them a lease ends after that
	if k == driver.Mutex {
		info.Holders = holder(fields, now)
	} else {
		info.Holders = holders(fields, now, k)
	}
	info.Queue = queue(fields, now, k)
	if k == driver.Semaphore && (len(info.Holders) > 0 || len(info.Queue) > 0 || fields["resized"] != "") {
		info.Limit, _ = strconv.ParseInt(fields["limit"], 10, 64)
	}
	return info, nil
}

// holder reads the fields of script/mutex.lua.
func holder(fields map[string]string, now time.Time) []driver.Holder {
	left := millis(fields["expires"]).Sub(now)
	if fields["token"] == "" || left < 0 {
		return nil
	}
	parts := strings.SplitN(fields["holder"], " ", 3) // since client text
	if len(parts) < 3 {
		return nil
	}
	fence, _ := strconv.ParseInt(fields["fence"], 10, 64)
	numbers, _ := strconv.ParseInt(cmp.Or(fields["reserved"], "1"), 10, 64)
	last := fence + numbers - 1
	if name, ok := strings.CutPrefix(fields["token"], " "); ok {
		return shares(fields, now, driver.Holder{Owner: original(name), Fence: fence, LastFence: last})
	}
	return []driver.Holder{{Holder: parts[2], Since: millis(parts[0]), Fence: fence, LastFence: last, TimeLeft: left}}
}

// shares reads who holds together on behalf of an owner, as script/owner.lua writes them.
func shares(fields map[string]string, now time.Time, of driver.Holder) []driver.Holder {
	var all []driver.Holder
	for field, record := range fields {
		parts := strings.SplitN(record, " ", 6) // expires ttl since client owner text
		if !strings.HasPrefix(field, "o:") || len(parts) < 6 {
			continue
		}
		h := of
		h.Holder, h.Since, h.TimeLeft = parts[5], millis(parts[2]), millis(parts[0]).Sub(now)
		if h.TimeLeft >= 0 {
			all = append(all, h)
		}
	}
	slices.SortFunc(all, func(a, b driver.Holder) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Holder, b.Holder))
	})
	return all
}

// original undoes what the function owner does to an owner.
func original(escaped string) string {
	owner, err := url.PathUnescape(escaped)
	if err != nil {
		return escaped // of no client of ours
	}
	return owner
}

// holders reads those that script/shared.lua writes.
func holders(fields map[string]string, now time.Time, k driver.Kind) []driver.Holder {
	var all []driver.Holder
	for field, record := range fields {
		parts := strings.SplitN(record, " ", 9) // weight expires ttl fence numbers last since client text
		if !strings.HasPrefix(field, "h:") || len(parts) < 9 {
			continue
		}
		h := driver.Holder{Holder: parts[8], Since: millis(parts[6]), TimeLeft: millis(parts[1]).Sub(now)}
		if h.TimeLeft < 0 {
			continue
		}
		h.Shared, h.Weight = share(k, parts[0])
		h.Fence, _ = strconv.ParseInt(parts[3], 10, 64)
		h.LastFence, _ = strconv.ParseInt(parts[5], 10, 64)
		if name, ok := strings.CutPrefix(field, "h: "); ok {
			return shares(fields, now, driver.Holder{Owner: original(name), Fence: h.Fence, LastFence: h.LastFence})
		}
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b driver.Holder) int { return cmp.Compare(a.Fence, b.Fence) })
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

// queue reads the waiters as script/queue.lua writes them, without those that have
// stopped asking.
func queue(fields map[string]string, now time.Time, k driver.Kind) []driver.Waiter {
	type seat struct {
		place int64
		driver.Waiter
	}
	var seats []seat
	for field, record := range fields {
		place, ok := strings.CutPrefix(field, "w:")
		parts := strings.SplitN(record, " ", 10) // token ask weight ttl fences alive vote client owner holder
		if !ok || len(parts) < 10 || millis(parts[5]).Before(now) {
			continue
		}
		waiter := driver.Waiter{Holder: parts[9]}
		if name, ok := strings.CutPrefix(parts[8], "="); ok {
			waiter.Owner = original(name)
		}
		waiter.Shared, waiter.Weight = share(k, parts[2])
		n, _ := strconv.ParseInt(place, 10, 64)
		seats = append(seats, seat{n, waiter})
	}
	slices.SortFunc(seats, func(a, b seat) int { return cmp.Compare(a.place, b.place) })
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
