package session

// Sentinel is an error of this library that callers look for, with a word for it that is
// fit for telemetry.
type Sentinel struct {
	Kind, Text string
	Same       error // that of a driver which means the same; nil for none
}

func (e *Sentinel) Error() string { return "holdfast: " + e.Text }

// Is makes an error of a hook match what the driver's error matches.
func (e *Sentinel) Is(target error) bool { return e.Same != nil && target == e.Same }

// ErrClosed says that the client is closed.
var ErrClosed error = &Sentinel{Kind: "closed", Text: "client closed"}
