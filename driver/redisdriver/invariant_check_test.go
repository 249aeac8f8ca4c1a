package redisdriver_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// Times of the records below, in ms. Leases have a TTL of 10 s and a grace of 0.5 s.
const healthyLife = 200000

// healthyMutex is held by a; b and c wait, and one between them has left.
var healthyMutex = map[string]string{
	"token": "a", "expires": "110500", "ttl": "10000", "holder": "100000 - web-1", "fence": "90000000", "reserved": "5",
	"head": "1", "tail": "3", "birth": "7",
	"w:1": "b 4 1 9000 1 105000 2 c1 =own web-2", "s:b": "1", "w:3": "c 1 1 9000 1 104000 1 - - ", "s:c": "3",
	"dead": "\nx 160000\ny 160001",
}

// healthyOwned is held by a and b on behalf of an owner; a has crashed.
var healthyOwned = map[string]string{
	"token": " own", "expires": "110500", "ttl": "10000", "holder": "90000 - web-1", "fence": "90000000",
	"o:a": "99000 3000 90000 - own web-1", "o:b": "110500 10000 100000 c1 own web 2",
}

// healthyShared has a limit of 3, of which a and b hold 3; c was passed over, d waits.
var healthyShared = map[string]string{
	"limit": "3", "used": "3", "earliest": "105000", "span": "10500", "fence": "90000002",
	"h:a": "2 110500 10000 90000000 2 90000001 100000 c1 web-1", "h:b": "1 105000 10000 90000002 1 90000002 94500 - ",
	"head": "2", "skip": "3", "tail": "3", "birth": "7",
	"w:2": "c 4 1 9000 1 105000 2 c1 =own web-2", "s:c": "2", "w:3": "d 1 3 9000 1 104000 1 - - ", "s:d": "3",
}

func faultsOf(k driver.Kind, life int64, healthy, changes map[string]string) []string {
	fields := maps.Clone(healthy)
	for field, value := range changes {
		if fields[field] = value; value == "" {
			delete(fields, field)
		}
	}
	return parseRecord(k, 100000, life, fields).faults()
}

// A checker that finds nothing wrong with anything proves nothing.
func TestInvariantsFindWhatIsWrong(t *testing.T) {
	require.Empty(t, faultsOf(driver.Mutex, healthyLife, healthyMutex, nil))
	require.Empty(t, faultsOf(driver.Semaphore, healthyLife, healthyShared, nil))
	require.Empty(t, faultsOf(driver.Mutex, healthyLife, healthyOwned, nil))
	for want, changes := range map[string]map[string]string{
		"its tokens until 110499":  {"o:b": "110499 10000 100000 c1 own web-2"},
		"its tokens until 99000":   {"o:b": ""},
		"ends in 10501 ms":         {"o:b": "110501 10000 100000 c1 own web-2"},
		"no client or owner":       {"o:b": "110500 10000 100000 c1"},
		"b has a part and is dead": {"dead": "\nb 160000"},
		"2 parts in what no owner": {"token": "c"},
		"b has a part and waits":   {"w:1": "b 1 1 9000 1 104000 1 - - ", "s:b": "1", "head": "1", "tail": "1", "birth": "7"},
	} {
		require.Contains(t, strings.Join(faultsOf(driver.Mutex, healthyLife, healthyOwned, changes), "; "), want)
	}
	for _, c := range []struct {
		kind    driver.Kind
		changes map[string]string
		want    string
	}{
		{driver.Mutex, map[string]string{"expires": ""}, "no expires"},
		{driver.Mutex, map[string]string{"token": "", "holder": ""}, `mutex with token ""`},
		{driver.Mutex, map[string]string{"token": "b"}, "holds and waits"},
		{driver.Mutex, map[string]string{"token": "x"}, "holds and is dead"},
		{driver.Mutex, map[string]string{"dead": "\nb 160000"}, "waits and is dead"},
		{driver.Mutex, map[string]string{"dead": "\nz 160000\nz 160000"}, "two tombstones"},
		{driver.Mutex, map[string]string{"expires": "110501"}, "ends in 10501 ms"},
		{driver.Mutex, map[string]string{"reserved": "0"}, "reserved"},
		{driver.Mutex, map[string]string{"notice": "x c1!"}, "notice"},
		{driver.Mutex, map[string]string{"head": ""}, "a waiter in place 1"},
		{driver.Mutex, map[string]string{"head": "2"}, "a waiter in place 1"},
		{driver.Mutex, map[string]string{"tail": "2"}, "a waiter in place 3"},
		{driver.Mutex, map[string]string{"birth": ""}, "birth"},
		{driver.Mutex, map[string]string{"s:b": "2"}, "is said to be in"},
		{driver.Mutex, map[string]string{"w:3": ""}, "1 waiters and 2 ways"},
		{driver.Mutex, map[string]string{"s:c": ""}, "2 waiters and 1 ways"},
		{driver.Mutex, map[string]string{"w:1": "b 4 1 9000 1 106001 2 c1 - "}, "alive for 6001 ms"},
		{driver.Mutex, map[string]string{"w:1": "b 4 1 9000 1 105000 4 c1 - "}, "vote:4"},
		{driver.Mutex, map[string]string{"w:1": "b 4 1 9000"}, "cut off"},
		{driver.Mutex, map[string]string{"fence": "9.5e+07"}, "no natural number"},
		{driver.Mutex, map[string]string{"used": "1"}, "no script should write"},
		{driver.Semaphore, map[string]string{"used": "2"}, "the sum of 2 holders"},
		{driver.Semaphore, map[string]string{"limit": "2"}, "3 in use"},
		{driver.Semaphore, map[string]string{"earliest": "105001"}, "1 ms before the earliest"},
		{driver.Semaphore, map[string]string{"earliest": ""}, "earliest"},
		{driver.Semaphore, map[string]string{"span": "4999"}, "the span of that lease"},
		{driver.Semaphore, map[string]string{"fence": "90000001"}, "the last was"},
		{driver.Semaphore, map[string]string{"reserved": "11000000"}, "ahead of the clock"},
		{driver.Semaphore, map[string]string{"h:b": "1 105000 10000 90000001 1 90000001 94500 - "}, "both have fence 90000001"},
		{driver.Semaphore, map[string]string{"h:b": "0 105000 10000 90000002 1 90000002 94500 - ", "used": "2"}, "holds nothing"},
		{driver.Semaphore, map[string]string{"skip": "2"}, "skip 2"},
		{driver.Semaphore, map[string]string{"head": "1"}, "skip 3"},
		{driver.Semaphore, map[string]string{"skip": "4"}, "passed over, with vote 1"},
		{driver.Semaphore, map[string]string{"resized": "2"}, "resized"},
		{driver.Semaphore, map[string]string{"token": "a"}, "no script should write"},
		{driver.RWMutex, map[string]string{"limit": "1073741824"}, "a holds 2, beside 1 others"},
	} {
		healthy := healthyShared
		if c.kind == driver.Mutex {
			healthy = healthyMutex
		}
		got := strings.Join(faultsOf(c.kind, healthyLife, healthy, c.changes), "; ")
		require.Contains(t, got, c.want, "%q", c.changes)
	}
	for life, want := range map[int64]string{-1: "for ever", 10499: "the lease of a", 3999: "the patience with c", 60000: "the tombstone of y"} {
		got := strings.Join(faultsOf(driver.Mutex, life, healthyMutex, nil), "; ")
		require.Contains(t, got, want, "a key that lasts %d ms", life)
	}
}

// A grant looks at 256 places and is then run again. What is between the runs is a lock
// like any other.
func TestGrantsInPiecesLeaveAConsistentLock(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		ctx, rdb := context.Background(), s.Client(t)
		d := open(t, rdb, s)
		key := s.Prefix() + ":2:rwmutex:crowd"
		r := driver.Request{Kind: driver.RWMutex, Name: "crowd", Token: "writer", Ask: 1, TTL: time.Minute, Wait: true}
		_, err := d.Acquire(ctx, &r)
		require.NoError(t, err)
		const crowd = 600
		for i := range crowd {
			r.Token, r.Shared = fmt.Sprint("reader", i), true
			_, err := d.Acquire(ctx, &r)
			require.NoError(t, err)
		}
		requireConsistent(t, rdb, driver.RWMutex, key)

		require.NoError(t, d.Release(ctx, driver.Lease{Kind: r.Kind, Name: r.Name, Token: "writer"}))
		requireConsistent(t, rdb, driver.RWMutex, key)
		info, err := d.Inspect(ctx, r.Kind, r.Name)
		require.NoError(t, err)
		require.Len(t, info.Holders, crowd)
		require.NoError(t, d.ForceRelease(ctx, r.Kind, r.Name))
		requireConsistent(t, rdb, driver.RWMutex, key)
	})
}
