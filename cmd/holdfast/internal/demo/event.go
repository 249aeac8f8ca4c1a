package demo

// event is what a worker tells: one JSON object a line on its standard output.
//
// All workers of a demo write to one pipe. A line is shorter than PIPE_BUF, so the
// kernel keeps it in one piece, and the lines of all come in an order that respects
// cause and effect: a worker writes "released" before it sends the release, so
// before anybody's "acquired" that follows from it.
type event struct {
	Worker int   `json:"worker"` // from 1 on
	What   what  `json:"what"`
	At     int64 `json:"at"` // see clock
	Fence  int64 `json:"fence,omitempty"`
	Weight int64 `json:"weight,omitempty"` // of the turn, see kind
}

type what string

const (
	ready     what = "ready"     // the worker has started
	requested what = "requested" // stamped before it asks for the lock
	acquired  what = "acquired"  // stamped when it has the lock
	doomed    what = "doomed"    // it has the lock, and waits to be killed, see fault
	released  what = "released"  // stamped before it gives the lock up
	torn      what = "torn"      // the same, but the counter changed while it had the lock for reading
	lost      what = "lost"      // it found its lease lost, and did not write
	gone      what = "gone"      // the process has ended; told by the parent
	left      what = "left"      // it has ended because it was asked to
)
