package main

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/crew"
)

// clock is [crew.Clock] in nanoseconds.
func clock() int64 { return int64(crew.Clock()) }

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
	seen   int64  // of give: the last moment at which, or later, the holder found that it holds the lock; of queued: before the ask
	heard  int64  // of give: when the holder heard that another waits
	class  string // how the call ended; of give, what the holder believed
}

// What a record tells. A call has two, so that a call without a return is one whose process
// was killed.
const (
	stillHeld = "held" // a class of give

	ask     = "ask"     // before an acquisition
	got     = "got"     // after one that was granted
	missed  = "missed"  // after any other
	give    = "give"    // before a release; the class says whether the holder believed until then
	gave    = "gave"    // after a release
	sent    = "sent"    // before the store is asked for a token for the first time
	queued  = "queued"  // the store answered an ask that the token is in its queue
	trouble = "trouble" // something that a fault does, such as a broken connection
	leak    = "leak"    // so many goroutines (weight) and connections (fence) too many in the end
)

// history is a file that one process appends to, and a board with the last look of each actor.
// Both survive SIGKILL. A look is not a record: there are far more of them than of all others.
type history struct {
	file  *os.File
	looks board
}

func createHistory(name string, actors int) (*history, error) {
	looks, err := openBoard(boardOf(name), actors)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	return &history{f, looks}, err
}

func boardOf(name string) string { return name + ".looks" }

// write makes one write(2), so lines of several goroutines do not mix. An empty word is a dash.
func (h *history) write(r record) {
	line := make([]byte, 0, 160)
	number := func(n int64) { line = append(strconv.AppendInt(line, n, 36), ' ') }
	word := func(w string) { line = append(append(line, cmp.Or(w, "-")...), ' ') }
	number(r.at)
	number(int64(r.actor))
	word(r.what)
	word(string(r.kind))
	word(r.lock)
	word(r.mode)
	number(r.weight)
	number(int64(r.id))
	number(r.fence)
	number(r.seen)
	number(r.heard)
	word(r.class)
	line[len(line)-1] = '\n'
	if _, err := h.file.Write(line); err != nil {
		panic(err)
	}
}

// read calls f with what a process wrote. The last line may be torn.
func read(name string, f func(record)) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	words := map[string]string{"-": ""} // each kept once
	for in := bufio.NewReaderSize(file, 1<<16); ; {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return nil
		}
		r, ok := parse(line[:len(line)-1], words)
		if !ok {
			return fmt.Errorf("%s: %q", name, line)
		}
		f(r)
	}
}

// parse is the reverse of write.
func parse(line []byte, words map[string]string) (r record, ok bool) {
	ok = true
	next := func() []byte {
		field, rest, _ := bytes.Cut(line, []byte(" "))
		line = rest
		return field
	}
	number := func() int64 {
		n, err := strconv.ParseInt(string(next()), 36, 64)
		ok = ok && err == nil
		return n
	}
	word := func() string {
		field := next()
		w, known := words[string(field)]
		if !known {
			w = string(field)
			words[w] = w
		}
		return w
	}
	r.at, r.actor, r.what = number(), int(number()), word()
	r.kind, r.lock, r.mode = driver.Kind(word()), word(), word()
	r.weight, r.id, r.fence, r.seen, r.heard, r.class = number(), uint64(number()), number(), number(), number(), word()
	return r, ok && len(line) == 0
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
	incarnation int // of which process, see workers
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
	cause    string // of the loss, as the holder was told: "lost" or "stolen:" and by whom
	heard    int64  // that another waits
	robbed   int64  // since when another may have stolen it; 0: nobody has
}

// worker is the text of the holder.
func (o *op) worker() string { return holderText(o.incarnation) }

func holderText(incarnation int) string { return fmt.Sprint("worker-", incarnation) }

func (o *op) granted() bool { return o.class == "ok" }

// scribe puts the records of one process together.
type scribe struct {
	incarnation int
	open        map[int]*op
	done        []*op
	rest        func(record) // is called with what belongs to no operation
}

func (s *scribe) take(r record) {
	o := s.open[r.actor]
	switch r.what {
	case ask:
		o = &op{incarnation: s.incarnation, actor: r.actor, kind: r.kind, lock: r.lock, mode: r.mode, weight: r.weight, invoked: r.at}
		s.open[r.actor] = o
		s.done = append(s.done, o)
	case got, missed:
		o.returned, o.class, o.id, o.fence = r.at, r.class, r.id, r.fence
	case give:
		o.gives, o.believed, o.heard = r.at, r.seen, r.heard
		if r.class == stillHeld {
			o.believed = r.at
		} else {
			o.cause = r.class
		}
	case gave:
		o.gave, o.released = r.at, r.class
	default:
		s.rest(r)
	}
}

// last takes the last looks of holders whose process was killed before they gave the lock back.
func (s *scribe) last(looks board) {
	for actor, o := range s.open {
		if at := looks[actor].Load(); o.granted() && o.gives == 0 && at > o.returned {
			o.believed = at
		}
	}
}

// testify returns what a process did, from the file with its history.
func testify(incarnation, actors int, name string, rest func(record)) ([]*op, error) {
	s := &scribe{incarnation: incarnation, open: map[int]*op{}, rest: rest}
	if err := read(name, s.take); err != nil {
		return nil, err
	}
	looks, err := openBoard(boardOf(name), actors)
	if err != nil {
		return nil, err
	}
	defer looks.close()
	s.last(looks)
	return s.done, nil
}
