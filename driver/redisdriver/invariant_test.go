package redisdriver_test

import (
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

// What is true of a lock after every script, in either form. It is read field by field here,
// and not with the code of Inspect, which forgives what it does not understand.

// record is one lock as it stands in Redis. Times are in ms of the server's clock.
type record struct {
	kind    driver.Kind
	now     int64
	ttl     int64                 // of the key; negative if there is none
	margin  int64                 // how much later than the beginning of a script its TIME can be
	thin    string                // the whole of a thin lock, "" for a fat one
	fields  map[string]string     // of a fat one, or those that a thin one would have
	holders map[string]heldRecord // by token
	waiters map[int64]waitRecord  // by place
	dead    map[string]int64      // tombstones
	wrong   []string

	// What the field shares says, 0 if there is none.
	count, used, earliest, span int64
}

// Its fences are fence to granted, and some up to last.
type heldRecord struct{ slot, expires, ttl, weight, fence, granted, last, since int64 }

type waitRecord struct {
	token                                  string
	ask, weight, ttl, fences, alive, heard int64
}

// readScript reads everything in one moment.
const readScript = `
local t = redis.call('TIME')
local thin = redis.call('MGET', KEYS[1])[1]
return { t[1] * 1000 + math.floor(t[2] / 1000), redis.call('PTTL', KEYS[1]), thin or '', thin and {} or redis.call('HGETALL', KEYS[1]) }`

// readRecord returns the lock at a key.
func readRecord(ctx context.Context, rdb redis.UniversalClient, k driver.Kind, key string) (*record, error) {
	reply, err := rdb.Eval(ctx, readScript, []string{key}).Slice()
	if err != nil {
		return nil, err
	}
	now, life := reply[0].(int64), reply[1].(int64)
	if thin := reply[2].(string); thin != "" {
		return parseThin(k, now, life, thin), nil
	}
	list := reply[3].([]any)
	fields := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		fields[list[i].(string)] = list[i+1].(string)
	}
	return parseFat(k, now, life, fields), nil
}

// requireConsistent fails the test if the lock at a key is not as every script must
// leave it.
func requireConsistent(t *testing.T, rdb redis.UniversalClient, k driver.Kind, key string) {
	t.Helper()
	r, err := readRecord(context.Background(), rdb, k, key)
	require.NoError(t, err)
	r.margin = 1000
	require.Empty(t, r.faults(), "%q %v", r.thin, r.fields)
}

// parseThin reads "high", or "high limit holder", as the fields of the same lock if it were fat.
func parseThin(k driver.Kind, now, ttl int64, thin string) *record {
	fields := map[string]string{"high": thin}
	if p := strings.SplitN(thin, " ", 3); len(p) == 3 {
		token, _, _ := strings.Cut(p[2], " ")
		fields = map[string]string{"high": p[0], "limit": p[1], "t:" + token: "h1", "h:1": p[2]}
	}
	r := parseFat(k, now, ttl, fields)
	r.thin = thin
	return r
}

func parseFat(k driver.Kind, now, ttl int64, fields map[string]string) *record {
	r := &record{
		kind: k, now: now, ttl: ttl, fields: fields,
		holders: map[string]heldRecord{}, waiters: map[int64]waitRecord{}, dead: map[string]int64{},
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		r.parseField(field, fields[field])
	}
	return r
}

func (r *record) parseField(field, value string) {
	prefix, rest, _ := strings.Cut(field, ":")
	switch {
	case prefix == "h":
		token, text, _ := strings.Cut(value, " ")
		n, text := r.numbers(field, text, 3)
		tag, text, _ := strings.Cut(text, " ")
		granted, text := r.numbers(field, text, 4)
		if client, _, more := strings.Cut(text, " "); token == "" || tag == "" || client == "" || !more {
			r.fault("%s has no tag, token, client or text: %q", field, value)
			return
		}
		if _, twice := r.holders[token]; twice {
			r.fault("%s holds twice", token)
		}
		r.holders[token] = heldRecord{r.number(field, rest), n[0], n[1], n[2], granted[0], granted[0] + granted[1] - 1, granted[2], granted[3]}
	case prefix == "w":
		token, text, _ := strings.Cut(value, " ")
		n, text := r.numbers(field, text, 6)
		if parts := strings.SplitN(text, " ", 3); len(parts) != 3 || parts[0] == "" || parts[1] == "" {
			r.fault("%s has no client or owner: %q", field, value)
		}
		r.waiters[r.number(field, rest)] = waitRecord{token, n[0], n[1], n[2], n[3], n[4], n[5]}
	case prefix == "t" && rest != "": // see checkTokens
	case field == "dead":
		r.parseDead(value)
	case field == "owner":
		if !strings.HasPrefix(value, "=") || strings.Contains(value, " ") {
			r.fault("owner %q", value)
		}
	case field == "resized":
		if value != "1" {
			r.fault("resized is %q", value)
		}
	case field == "shares":
		n, text := r.numbers(field, value+" ", 4)
		if text != "" {
			r.fault("shares %q", value)
		}
		r.count, r.used, r.earliest, r.span = n[0], n[1], n[2], n[3]
	case slices.Contains(numeric, field):
		if r.number(field, value) == 0 {
			r.fault("%s is 0, and should be absent", field)
		}
	default:
		r.fault("a field that no script should write: %s=%q", field, value)
	}
}

var numeric = []string{"high", "limit", "head", "tail", "birth", "waiting", "life", "longest"}

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
