package record

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// Times of the records below, in ms. Leases have a TTL of 10 s and a grace of 0.5 s.
const healthyLife = 200000

// healthyMutex is held by a; b and c wait, and one between them has left.
var healthyMutex = map[string]string{
	"high": "90000004", "limit": "1", "h:1": "a 110500 10000 1 - 90000000 5 100000 c1! web-1", "t:a": "h1", "life": "300000",
	"head": "1", "tail": "3", "birth": "7", "waiting": "2",
	"w:1": "b 4 1 9000 1 105000 1 c1 =own web-2", "t:b": "w1", "w:3": "c 1 1 9000 1 104000 0 - - ", "t:c": "w3",
	"dead": "\nx 160000\ny 160001",
}

// healthyOwned is held by a and b on behalf of an owner; a has crashed.
var healthyOwned = map[string]string{
	"high": "90000005", "limit": "1", "owner": "=own", "life": "300000", "shares": "2 1 99000 3150",
	"h:1": "a 99000 3000 1 - 90000000 1 90000 - web-1", "t:a": "h1",
	"h:2": "b 110500 10000 1 tag 90000000 1 100000 c1 web 2", "t:b": "h2",
}

// healthyShared has a limit of 3, of which a and b hold 3; c and d wait.
var healthyShared = map[string]string{
	"high": "90000003", "limit": "3", "shares": "2 3 105000 10500", "life": "300000",
	"h:1": "a 110500 10000 2 - 90000000 2 100000 c1 web-1", "t:a": "h1",
	"h:2": "b 105000 10000 1 - 90000002 1 94500 - ", "t:b": "h2",
	"head": "2", "tail": "3", "birth": "7", "waiting": "2",
	"w:2": "c 4 1 9000 1 105000 1 c1 =own web-2", "t:c": "w2", "w:3": "d 1 3 9000 1 104000 0 - - ", "t:d": "w3",
}

// healthyThin is held by a, and healthyFree by nobody.
const (
	healthyThin = "90000004 1 a 110500 10000 1 - 90000000 5 100000 c1 web 1"
	healthyFree = "90000004"
)

func faultsOf(k driver.Kind, life int64, healthy, changes map[string]string) string {
	fields := maps.Clone(healthy)
	for field, value := range changes {
		if fields[field] = value; value == "" {
			delete(fields, field)
		}
	}
	return faults(k, life, "", fields)
}

func faults(k driver.Kind, life int64, thin string, fields map[string]string) string {
	return strings.Join(Parse(thin, fields, Moment{Kind: k, Now: 100000, TTL: life, Retention: 65000}).Faults(), "; ")
}

// A checker that finds nothing wrong with anything proves nothing.
func TestInvariantsFindWhatIsWrong(t *testing.T) {
	require.Empty(t, faultsOf(driver.Mutex, healthyLife, healthyMutex, nil))
	require.Empty(t, faultsOf(driver.Semaphore, healthyLife, healthyShared, nil))
	require.Empty(t, faultsOf(driver.Mutex, healthyLife, healthyOwned, nil))
	require.Empty(t, faults(driver.Mutex, healthyLife, healthyThin, nil))
	require.Empty(t, faults(driver.Mutex, healthyLife, healthyFree, nil))
	for _, c := range []struct {
		kind    driver.Kind
		healthy map[string]string
		changes map[string]string
		want    string
	}{
		{driver.Mutex, healthyOwned, map[string]string{"owner": ""}, "a holds 1, beside 1 others"},
		{driver.Mutex, healthyOwned, map[string]string{"owner": "own"}, `owner "own"`},
		{driver.Semaphore, healthyOwned, nil, "of a semaphore"},
		{driver.Mutex, healthyOwned, map[string]string{"h:2": "b 110500 10000 1 - 90000001 1 100000 c1 "}, "fences 90000001 and 90000000"},
		{driver.Mutex, healthyOwned, map[string]string{"limit": "2"}, "a of an owner holds 1"},
		{driver.Mutex, healthyOwned, map[string]string{"shares": "2 2 99000 3150"}, "2 hold 2, the sum of 2 holders is 1"},
		{driver.Mutex, healthyOwned, map[string]string{"dead": "\nb 160000"}, "b holds and is dead"},

		{driver.Mutex, healthyMutex, map[string]string{"h:1": "a 110500 10000 1 - 90000000 1 100000 c1"}, "h:1 has no tag"},
		{driver.Mutex, healthyMutex, map[string]string{"h:1": "a 110500 10000 1 - 90000000 90000004"}, "h:1 is cut off"},
		{driver.Mutex, healthyMutex, map[string]string{"h:1": ""}, `a is said to be in "h1", and is in ""`},
		{driver.Mutex, healthyMutex, map[string]string{"h:2": "a 110500 10000 1 - 90000000 1 100000 c1 "}, "a holds twice"},
		{driver.Mutex, healthyMutex, map[string]string{"h:1": "", "h:2": healthyMutex["h:1"], "t:a": "h2"}, "nobody is in slot 1 of 1"},
		{driver.Mutex, healthyMutex, map[string]string{"t:a": ""}, "3 tokens and 2 ways"},
		{driver.Mutex, healthyMutex, map[string]string{"t:z": "h1"}, `z is said to be in "h1"`},
		{driver.Mutex, healthyMutex, map[string]string{"h:1": "b 110500 10000 1 - 90000000 1 100000 c1 "}, "b waits in place 1 and is in h1"},
		{driver.Mutex, healthyMutex, map[string]string{"dead": "\na 160000"}, "holds and is dead"},
		{driver.Mutex, healthyMutex, map[string]string{"dead": "\nb 160000"}, "waits and is dead"},
		{driver.Mutex, healthyMutex, map[string]string{"dead": "\nz 160000\nz 160000"}, "two tombstones"},
		{driver.Mutex, healthyMutex, map[string]string{"h:1": "a 110501 10000 1 - 90000000 1 100000 c1 "}, "ends in 10501 ms"},
		{driver.Mutex, healthyMutex, map[string]string{"h:1": "a 110500 10000 1 - 90000000 1 100001 c1 "}, "holds since 100001"},
		{driver.Mutex, healthyMutex, map[string]string{"h:1": "a 110500 10000 2 - 90000000 1 100000 c1 "}, "a holds 2"},
		{driver.Mutex, healthyMutex, map[string]string{"shares": "1 1 110500 10500"}, "of 1 holders"},
		{driver.Mutex, healthyMutex, map[string]string{"high": "0"}, "high is 0"},
		{driver.Mutex, healthyMutex, map[string]string{"head": ""}, "a waiter in place 1"},
		{driver.Mutex, healthyMutex, map[string]string{"head": "2"}, "a waiter in place 1"},
		{driver.Mutex, healthyMutex, map[string]string{"tail": "2"}, "a waiter in place 3"},
		{driver.Mutex, healthyMutex, map[string]string{"birth": ""}, "birth"},
		{driver.Mutex, healthyMutex, map[string]string{"t:b": "w2"}, "is said to be in"},
		{driver.Mutex, healthyMutex, map[string]string{"w:3": ""}, "2 tokens and 3 ways"},
		{driver.Mutex, healthyMutex, map[string]string{"t:c": ""}, "3 tokens and 2 ways"},
		{driver.Mutex, healthyMutex, map[string]string{"w:1": "b 4 1 9000 1 106001 1 c1 - "}, "alive for 6001 ms"},
		{driver.Mutex, healthyMutex, map[string]string{"w:1": "b 4 1 9000 1 105000 2 c1 - "}, "Heard:2"},
		{driver.Mutex, healthyMutex, map[string]string{"w:1": "b 4 1 9000"}, "cut off"},
		{driver.Mutex, healthyMutex, map[string]string{"w:1": "b 4 1 9000 1 105000 1 c1 "}, "no client or owner"},
		{driver.Mutex, healthyMutex, map[string]string{"dead": "\nx 165001"}, "the tombstone of x stays for 65001 ms"},
		{driver.Mutex, healthyMutex, map[string]string{"head": "4"}, "head 4, tail 3"},
		{driver.Mutex, healthyMutex, map[string]string{"high": "9.5e+07"}, "no natural number"},
		{driver.Mutex, healthyMutex, map[string]string{"used": "1"}, "no script should write"},
		{driver.Mutex, healthyMutex, map[string]string{"life": "300002"}, "2 ms before it notes"},
		{driver.Mutex, healthyMutex, map[string]string{"life": "299998"}, "2 ms after it notes"},
		{driver.Mutex, map[string]string{"high": "90000004", "limit": "1", "life": "300000"}, nil, "nothing to remember is fat"},

		{driver.Semaphore, healthyShared, map[string]string{"shares": ""}, "of 2 holders"},
		{driver.Semaphore, healthyShared, map[string]string{"shares": "2 2 105000 10500"}, "2 hold 2, the sum of 2 holders is 3"},
		{driver.Semaphore, healthyShared, map[string]string{"shares": "3 3 105000 10500"}, "3 hold 3, the sum of 2 holders is 3"},
		{driver.Semaphore, healthyShared, map[string]string{"shares": "2 3 105000"}, "cut off"},
		{driver.Semaphore, healthyShared, map[string]string{"shares": "2 3 105000 10500 1"}, "shares"},
		{driver.Semaphore, healthyShared, map[string]string{"limit": "2"}, "3 in use"},
		{driver.Semaphore, healthyShared, map[string]string{"limit": "", "resized": "1"}, "with limit"},
		{driver.Semaphore, healthyShared, map[string]string{"shares": "2 3 105001 10500"}, "1 ms before the earliest"},
		{driver.Semaphore, healthyShared, map[string]string{"shares": "2 3 105000 4999"}, "the span of that lease"},
		{driver.Semaphore, healthyShared, map[string]string{"high": "90000001"}, "the last was"},
		{driver.Semaphore, healthyShared, map[string]string{"high": "101000000"}, "ahead of the clock"},
		{driver.Semaphore, healthyShared, map[string]string{"h:2": "b 105000 10000 1 - 90000000 1 94500 - "}, "both have fence 90000000"},
		{driver.Semaphore, healthyShared, map[string]string{"h:2": "b 105000 10000 0 - 90000002 1 94500 - "}, "b holds 0"},
		{driver.Semaphore, healthyShared, map[string]string{"waiting": "3"}, "3 are said to wait, and 2 do"},
		{driver.Semaphore, healthyShared, map[string]string{"waiting": ""}, "0 are said to wait"},
		{driver.Semaphore, healthyShared, map[string]string{"resized": "2"}, "resized"},
		{driver.Semaphore, healthyShared, map[string]string{"token": "a"}, "no script should write"},
		{driver.RWMutex, healthyShared, map[string]string{"limit": "1073741824"}, "a holds 2"},
	} {
		require.Contains(t, faultsOf(c.kind, healthyLife, c.healthy, c.changes), c.want, "%q", c.changes)
	}
	require.Contains(t, faults(driver.Mutex, healthyLife, "", map[string]string{"high": "90000004", "dead": "", "life": "300000"}), "tombstones without any")
	for life, want := range map[int64]string{-1: "for ever", 10499: "the lease of a", 3999: "the patience with c", 60000: "the tombstone of y"} {
		require.Contains(t, faultsOf(driver.Mutex, life, healthyMutex, nil), want, "a key that lasts %d ms", life)
	}
	for thin, want := range map[string]string{
		healthyFree + " ":                                   "no natural number",
		strings.TrimSuffix(healthyThin, " web 1"):           "h:1 has no tag",
		"0" + healthyThin:                                   "no natural number",
		"89999999" + healthyThin[8:]:                        "the last was 89999999",
		strings.Replace(healthyThin, "110500", "110501", 1): "ends in 10501 ms",
		strings.Replace(healthyThin, " 1 a ", " 0 a ", 1):   "limit is 0",
		strings.Replace(healthyThin, " - ", "  ", 1):        "h:1 has no tag",
	} {
		require.Contains(t, faults(driver.Mutex, healthyLife, thin, nil), want, thin)
	}
	require.Contains(t, faults(driver.Mutex, 10499, healthyThin, nil), "the lease of a")
	require.Contains(t, faults(driver.Mutex, -1, healthyFree, nil), "for ever")
}
