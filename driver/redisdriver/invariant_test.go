package redisdriver_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// What is true of the hash of a lock after every script. It is read field by field
// here, and not with the code of Inspect, which forgives what it does not understand.

// record is one lock as it stands in Redis. Times are in ms of the server's clock.
type record struct {
	kind    driver.Kind
	now     int64
	ttl     int64 // of the key; negative if there is none
	margin  int64 // how much later than the beginning of a script its TIME can be
	fields  map[string]string
	holders map[string]heldRecord // by token, or owner
	parts   map[string]heldRecord // of those who hold on behalf of an owner, by token
	waiters map[int64]waitRecord  // by place
	dead    map[string]int64      // tombstones
	wrong   []string
}

// Its fences are fence to granted, and some up to last.
type heldRecord struct{ weight, expires, ttl, fence, granted, last int64 }

type waitRecord struct {
	token                                 string
	ask, weight, ttl, fences, alive, vote int64
}

// readScript reads everything in one moment.
const readScript = `
local t = redis.call('TIME')
return { t[1] * 1000 + math.floor(t[2] / 1000), redis.call('PTTL', KEYS[1]), redis.call('HGETALL', KEYS[1]) }`

// readRecord returns the lock at a key.
func readRecord(ctx context.Context, rdb redis.UniversalClient, k driver.Kind, key string) (*record, error) {
	reply, err := rdb.Eval(ctx, readScript, []string{key}).Slice()
	if err != nil {
		return nil, err
	}
	list := reply[2].([]any)
	fields := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		fields[list[i].(string)] = list[i+1].(string)
	}
	return parseRecord(k, reply[0].(int64), reply[1].(int64), fields), nil
}

// requireConsistent fails the test if the lock at a key is not as every script must
// leave it.
func requireConsistent(t *testing.T, rdb redis.UniversalClient, k driver.Kind, key string) {
	t.Helper()
	r, err := readRecord(context.Background(), rdb, k, key)
	require.NoError(t, err)
	r.margin = 1000
	require.Empty(t, r.faults(), "%v", r.fields)
}

func parseRecord(k driver.Kind, now, ttl int64, fields map[string]string) *record {
	r := &record{
		kind: k, now: now, ttl: ttl, fields: fields,
		holders: map[string]heldRecord{}, parts: map[string]heldRecord{}, waiters: map[int64]waitRecord{}, dead: map[string]int64{},
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		r.parseField(field, fields[field])
	}
	if k == driver.Mutex && r.has("token") {
		r.parseOwner()
	}
	return r
}

func (r *record) parseField(field, value string) {
	prefix, rest, _ := strings.Cut(field, ":")
	switch {
	case prefix == "h" && r.kind != driver.Mutex:
		n, text := r.numbers(field, value, 7)
		if parts := strings.SplitN(text, " ", 2); len(parts) != 2 || parts[0] == "" {
			r.fault("%s has no client: %q", field, value)
		}
		r.holders[rest] = heldRecord{n[0], n[1], n[2], n[3], n[3] + n[4] - 1, n[5]}
	case prefix == "o":
		n, text := r.numbers(field, value, 3)
		if parts := strings.SplitN(text, " ", 3); len(parts) != 3 || parts[0] == "" || parts[1] == "" {
			r.fault("%s has no client or owner: %q", field, value)
		}
		r.parts[rest] = heldRecord{weight: 1, expires: n[0], ttl: n[1]}
	case prefix == "w":
		token, text, _ := strings.Cut(value, " ")
		n, text := r.numbers(field, text, 6)
		if parts := strings.SplitN(text, " ", 3); len(parts) != 3 || parts[0] == "" || parts[1] == "" {
			r.fault("%s has no client or owner: %q", field, value)
		}
		r.waiters[r.number(field, rest)] = waitRecord{token, n[0], n[1], n[2], n[3], n[4], n[5]}
	case field == "dead":
		r.parseDead(value)
	case prefix == "s", slices.Contains(numeric, field):
		r.number(field, value)
	case r.kind == driver.Mutex && (field == "token" || field == "holder"):
	case r.kind == driver.Mutex && (field == "expires" || field == "ttl"),
		r.kind != driver.Mutex && slices.Contains(numericShared, field):
		r.number(field, value)
	case field == "notice":
		if token, client, _ := strings.Cut(value, " "); !strings.HasSuffix(client, "!") || r.kind == driver.Mutex && token != r.fields["token"] {
			r.fault("notice of %q", value)
		}
	default:
		r.fault("a field that no script should write: %s=%q", field, value)
	}
}

var (
	numeric       = []string{"fence", "reserved", "head", "tail", "birth", "skip"}
	numericShared = []string{"limit", "resized", "used", "earliest", "span"}
)

// parseOwner makes the holder of a mutex look like one of a shared lock.
func (r *record) parseOwner() {
	for _, field := range []string{"expires", "ttl", "holder", "fence"} {
		if !r.has(field) {
			r.fault("a token, but no %s", field)
		}
	}
	r.numbers("holder", r.fields["holder"], 1)
	last := r.num("fence") + cmp.Or(r.num("reserved"), 1) - 1
	r.holders[r.fields["token"]] = heldRecord{1, r.num("expires"), r.num("ttl"), r.num("fence"), last, last}
}

func (r *record) parseDead(value string) {
	if value == "" {
		r.fault("tombstones without any")
	}
	for line := range strings.Lines(strings.TrimPrefix(value, "\n")) {
		token, until, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if _, twice := r.dead[token]; twice {
			r.fault("two tombstones of %s", token)
		}
		r.dead[token] = r.number("dead", until)
	}
}

// numbers reads n numbers from the start of a record. A missing one is a fault.
func (r *record) numbers(field, value string, n int) (list []int64, rest string) {
	parts := strings.SplitN(value, " ", n+1)
	if len(parts) != n+1 {
		r.fault("%s is cut off: %q", field, value)
		return make([]int64, n), "? ?"
	}
	for _, part := range parts[:n] {
		list = append(list, r.number(field, part))
	}
	return list, parts[n]
}

func (r *record) number(field, value string) int64 {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != value {
		r.fault("%s: no natural number: %q", field, value)
	}
	return n
}

func (r *record) has(field string) bool { return r.fields[field] != "" }

func (r *record) num(field string) int64 {
	n, _ := strconv.ParseInt(r.fields[field], 10, 64)
	return n
}

func (r *record) fault(format string, args ...any) {
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

// graceOf is how much longer than its TTL a lease lasts in the store.
func graceOf(ttl int64) int64 { return min(500, max(5, ttl/20)) }

// retained is the retention of the drivers of these tests.
const retained = 65 * time.Second
