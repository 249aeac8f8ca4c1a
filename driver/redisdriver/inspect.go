package redisdriver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// Inspect implements [driver.Inspector].
func (d *Driver) Inspect(ctx context.Context, k driver.Kind, name string) (driver.Info, error) {
	info := driver.Info{Name: name}
	v, err := d.value(ctx, d.call(inspectScript, k, name))
	if err != nil {
		return info, d.named(err, k, name)
	}
	reply, _ := v.([]any)
	if len(reply) != 3 {
		return info, fmt.Errorf("redisdriver: unexpected answer from inspect: %v", v)
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
				return info, redisscript.Refusal(fmt.Errorf("redisdriver: WRONGTYPE %q is a string, but no lock", d.key(k, name)))
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
	return info, nil
}

// holders reads those that holder_record in script/record.lua writes.
func holders(fields map[string]string, owner string, now time.Time, k driver.Kind) []driver.Holder {
	var all []driver.Holder
	for field, record := range fields {
		parts := strings.SplitN(record, " ", 11) // token expires ttl weight tag fence numbers last since client text
		if !strings.HasPrefix(field, "h:") || len(parts) < 11 {
			continue
		}
		h := driver.Holder{Holder: parts[10], Owner: owner, Since: millis(parts[8]), TimeLeft: millis(parts[1]).Sub(now)}
		if h.TimeLeft < 0 {
			continue
		}
		h.Shared, h.Weight = share(k, parts[3])
		h.Fence, _ = strconv.ParseInt(parts[5], 10, 64)
		h.LastFence, _ = strconv.ParseInt(parts[7], 10, 64)
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

// queue reads the waiters that waiter_record in script/thin_wait.lua writes, without those that
// have stopped asking.
func queue(fields map[string]string, now time.Time, k driver.Kind) []driver.Waiter {
	type placed struct {
		place int64
		driver.Waiter
	}
	var seats []placed
	for field, record := range fields {
		place, ok := strings.CutPrefix(field, "w:")
		parts := strings.SplitN(record, " ", 10) // token ask weight ttl fences alive vote client owner text
		if !ok || len(parts) < 10 || millis(parts[5]).Before(now) {
			continue
		}
		waiter := driver.Waiter{Holder: parts[9], Owner: original(parts[8])}
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
