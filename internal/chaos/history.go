package main

import (
	"bufio"
	"fmt"
	"hash/fnv"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/driver"
)

// clock returns nanoseconds of CLOCK_MONOTONIC, which all processes of a machine have in
// common, and which no fault of this rig moves. The monotonic reading inside of a time.Time
// counts from the start of its own process.
func clock() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// record is one line of a history.
type record struct {
	at    int64 // clock; before a call, or after its return
	actor int   // goroutine of the worker, -1 for the process
	what  string
	kind  driver.Kind
	lock  string
	mode  string // of ask
	// Weight of a semaphore; 0 for a shared hold of an RWMutex.
	weight int64
	id     uint64 // of the lease's token
	fence  int64
	until  int64  // when the lease ends unless it is renewed
	class  string // how the call ended
}

// What a record tells. A call has two, so that a call without a return is one whose process
// was killed.
const (
	ask     = "ask"     // before an acquisition
	got     = "got"     // after one that was granted
	missed  = "missed"  // after any other
	look    = "look"    // at this moment, or later, the holder found that it holds the lock
	give    = "give"    // before a release; the class says whether the holder believed until then
	gave    = "gave"    // after a release
	sent    = "sent"    // before the store is asked for a token for the first time
	queued  = "queued"  // the store said that the token is in its queue
	trouble = "trouble" // something that a fault does, such as a broken connection
	leak    = "leak"    // so many goroutines (weight) and connections (fence) too many in the end
)

const line = "%d %d %s %s %s %s %d %d %d %d %s\n"

// dash stands for an empty word, which Sscanf could not read.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// history is a file that one process appends to. A record that was written survives SIGKILL.
type history struct{ file *os.File }

func createHistory(name string) (*history, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	return &history{f}, err
}

// write makes one write(2), so lines of several goroutines do not mix.
func (h *history) write(r record) {
	_, err := fmt.Fprintf(h.file, line, r.at, r.actor, r.what, dash(string(r.kind)), dash(r.lock), dash(r.mode),
		r.weight, r.id, r.fence, r.until, dash(r.class))
	if err != nil {
		panic(err)
	}
}

// read returns what a process wrote. The last line may be torn.
func read(name string) ([]record, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var all []record
	for in := bufio.NewReader(f); ; {
		text, err := in.ReadString('\n')
		if err != nil {
			return all, nil
		}
		var r record
		if _, err := fmt.Sscanf(text, line, &r.at, &r.actor, &r.what, &r.kind, &r.lock, &r.mode,
			&r.weight, &r.id, &r.fence, &r.until, &r.class); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", name, text, err)
		}
		all = append(all, r)
	}
}

// identity keeps tokens out of histories: they are secrets, and long.
func identity(token string) uint64 {
	// Lease.Token is kind:token:name, a Request has the part in the middle.
	if parts := strings.SplitN(token, ":", 3); len(parts) == 3 {
		token = parts[1]
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(token))
	return h.Sum64()
}

// op is one acquisition, and the hold if it was granted.
type op struct {
	incarnation int // of which process, see crew
	actor       int
	kind        driver.Kind
	lock        string
	mode        string
	weight      int64

	invoked, returned int64  // 0: the process was killed first
	class             string // of the return; "ok" if granted
	id                uint64
	fence             int64

	believed int64 // the last moment at which the holder surely believed; 0: it never did
	gives    int64 // the release began
	gave     int64 // and returned
	released string
}

func (o *op) granted() bool { return o.class == "ok" }

// ops puts the records of one process together.
func ops(incarnation int, records []record) (done []*op, rest []record) {
	open := map[int]*op{}
	for _, r := range records {
		o := open[r.actor]
		switch r.what {
		case ask:
			o = &op{incarnation: incarnation, actor: r.actor, kind: r.kind, lock: r.lock, mode: r.mode, weight: r.weight, invoked: r.at}
			open[r.actor] = o
			done = append(done, o)
		case got, missed:
			o.returned, o.class, o.id, o.fence = r.at, r.class, r.id, r.fence
		case look:
			o.believed = r.at
		case give:
			o.gives = r.at
			if r.class == "held" {
				o.believed = r.at
			}
		case gave:
			o.gave, o.released = r.at, r.class
		default:
			rest = append(rest, r)
		}
	}
	return done, rest
}
