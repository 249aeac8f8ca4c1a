// Package record reads the record of one lock in Redis field by field, and says what is wrong with
// it. It is not the code of Inspect, which forgives what it does not understand.
package record

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// Record is a lock as it stands in Redis. Times are in ms of the server's clock.
type Record struct {
	Moment
	Thin    string            // the whole of a thin lock, "" for a fat one
	Fields  map[string]string // of a fat one, or those that a thin one would have
	Holders map[string]Holder // by token
	Waiters map[int64]Waiter  // by place
	Dead    map[string]int64  // tombstones, and until when they stay
	Shares  [4]int64          // holders, what they hold, the first end and the span of that lease; zeros if the lock has no such field

	wrong []string
}

// Moment is what is not in the record, and is needed to judge it.
type Moment struct {
	Kind      driver.Kind
	Now, TTL  int64 // TTL is that of the key, negative if it has none
	Retention int64 // of its driver
	Margin    int64 // how much later than the beginning of a script its TIME can be
	Back      int64 // by how much the server's clock may have been set back
}

// Holder has the fences Fence to Last.
type Holder struct{ Slot, Expires, TTL, Weight, Fence, Last, Since int64 }

// Waiter is a token in the queue.
type Waiter struct {
	Token                                  string
	Ask, Weight, TTL, Fences, Alive, Heard int64
}

// readScript reads everything in one moment.
const readScript = `
local t = redis.call('TIME')
local thin = redis.call('MGET', KEYS[1])[1]
return { t[1] * 1000 + math.floor(t[2] / 1000), redis.call('PTTL', KEYS[1]), thin or '', thin and {} or redis.call('HGETALL', KEYS[1]) }`

// Read returns the lock at a key. Now and TTL of m are those of the server.
func Read(ctx context.Context, rdb redis.UniversalClient, key string, m Moment) (*Record, error) {
	reply, err := rdb.Eval(ctx, readScript, []string{key}).Slice()
	if err != nil {
		return nil, err
	}
	m.Now, m.TTL = reply[0].(int64), reply[1].(int64)
	list := reply[3].([]any)
	fields := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		fields[list[i].(string)] = list[i+1].(string)
	}
	return Parse(reply[2].(string), fields, m), nil
}

// Parse returns the lock of which thin is the whole, or else that with these fields.
func Parse(thin string, fields map[string]string, m Moment) *Record {
	if thin != "" { // "high", or "high limit holder"
		fields = map[string]string{"high": thin}
		if p := strings.SplitN(thin, " ", 3); len(p) == 3 {
			token, _, _ := strings.Cut(p[2], " ")
			fields = map[string]string{"high": p[0], "limit": p[1], "t:" + token: "h1", "h:1": p[2]}
		}
	}
	r := &Record{Moment: m, Thin: thin, Fields: fields, Holders: map[string]Holder{}, Waiters: map[int64]Waiter{}, Dead: map[string]int64{}}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		r.parse(field, fields[field])
	}
	return r
}

// Form says which form a lock has.
func (r *Record) Form() string {
	switch {
	case len(r.Fields) == 0:
		return "none"
	case r.Thin == "":
		return "fat"
	case strings.Contains(r.Thin, " "):
		return "thin and held"
	}
	return "thin and free"
}

func (r *Record) parse(field, value string) {
	prefix, rest, _ := strings.Cut(field, ":")
	switch {
	case prefix == "h":
		token, text, _ := strings.Cut(value, " ")
		n, text := r.numbers(field, text, 3)
		tag, text, _ := strings.Cut(text, " ")
		granted, text := r.numbers(field, text, 3)
		if client, _, more := strings.Cut(text, " "); token == "" || tag == "" || client == "" || !more {
			r.fault("%s has no tag, token, client or text: %q", field, value)
			return
		}
		if _, twice := r.Holders[token]; twice {
			r.fault("%s holds twice", token)
		}
		r.Holders[token] = Holder{r.number(field, rest), n[0], n[1], n[2], granted[0], granted[0] + granted[1] - 1, granted[2]}
	case prefix == "w":
		token, text, _ := strings.Cut(value, " ")
		n, text := r.numbers(field, text, 6)
		if parts := strings.SplitN(text, " ", 3); len(parts) != 3 || parts[0] == "" || parts[1] == "" {
			r.fault("%s has no client or owner: %q", field, value)
		}
		r.Waiters[r.number(field, rest)] = Waiter{token, n[0], n[1], n[2], n[3], n[4], n[5]}
	case prefix == "t" && rest != "": // see checkTokens
	case field == "dead":
		if value == "" {
			r.fault("tombstones without any")
		}
		for line := range strings.Lines(strings.TrimPrefix(value, "\n")) {
			token, until, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			if _, twice := r.Dead[token]; twice {
				r.fault("two tombstones of %s", token)
			}
			r.Dead[token] = r.number("dead", until)
		}
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
		r.Shares = [4]int64(n)
	case slices.Contains(numeric, field):
		if r.number(field, value) == 0 {
			r.fault("%s is 0, and should be absent", field)
		}
	default:
		r.fault("a field that no script should write: %s=%q", field, value)
	}
}

var numeric = []string{"high", "limit", "head", "tail", "birth", "waiting", "life", "longest"}

// numbers reads n numbers from the start of a text. A missing one is a fault.
func (r *Record) numbers(field, value string, n int) (list []int64, rest string) {
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

func (r *Record) number(field, value string) int64 {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != value {
		r.fault("%s: no natural number: %q", field, value)
	}
	return n
}

// Has reports whether a lock has a field.
func (r *Record) Has(field string) bool { return r.Fields[field] != "" }

// Num is the number in a field, 0 if there is none.
func (r *Record) Num(field string) int64 {
	n, _ := strconv.ParseInt(r.Fields[field], 10, 64)
	return n
}

func (r *Record) fault(format string, args ...any) {
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}
