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
)

// Inspect implements [driver.Inspector].
func (d *Driver) Inspect(ctx context.Context, k driver.Kind, name string) (driver.Info, error) {
	info := driver.Info{Name: name}
	cmd, err := inspectScript.run(ctx, d.rdb, d.key(k, name), d.args("-")...)
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
	now := time.UnixMicro(us)
	info.Holder = holder(fields, now)
	info.Queue = queue(fields, now)
	return info, nil
}

// holder reads the fields of script/mutex.lua.
func holder(fields map[string]string, now time.Time) *driver.Holder {
	left := millis(fields["expires"]).Sub(now)
	if fields["token"] == "" || left < 0 {
		return nil
	}
	parts := strings.SplitN(fields["holder"], " ", 3) // since client text
	if len(parts) < 3 {
		return nil
	}
	fence, _ := strconv.ParseInt(fields["fence"], 10, 64)
	return &driver.Holder{Holder: parts[2], Since: millis(parts[0]), Fence: fence, TimeLeft: left}
}

// queue reads the waiters as script/queue.lua writes them, without those that have
// stopped asking.
func queue(fields map[string]string, now time.Time) []driver.Waiter {
	type seat struct {
		place int64
		driver.Waiter
	}
	var seats []seat
	for field, record := range fields {
		place, ok := strings.CutPrefix(field, "w:")
		parts := strings.SplitN(record, " ", 8) // token ask ttl fences alive vote client holder
		if !ok || len(parts) < 8 || millis(parts[4]).Before(now) {
			continue
		}
		n, _ := strconv.ParseInt(place, 10, 64)
		seats = append(seats, seat{n, driver.Waiter{Holder: parts[7]}})
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
