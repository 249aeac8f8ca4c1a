package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Pause is how long somebody waits before the next attempt of the same thing: 5 ms, and each time
// twice as long.
type Pause time.Duration

// Next returns the next pause: around a second at most, and around limit. It differs for each, lest
// many who have failed together come together.
func (p *Pause) Next(limit time.Duration) time.Duration {
	*p = min(max(2*(*p), Pause(5*time.Millisecond)), Pause(time.Second), Pause(limit))
	return time.Duration(*p/2 + rand.N(*p))
}

// Errand is something that a caller wants done at the store.
type Errand struct {
	Able  bool         // the driver can do it
	First func() error // comes before Do, in this process; nil for nothing
	Do    func() error // at the store; runs on another goroutine, perhaps beyond the call
	Once  bool         // what was perhaps done must not be done again

	Endure time.Duration // gives up if the store has not answered for so long; 0: never
}

// repeats reports whether to try again after an error.
func (e *Errand) repeats(err error) bool {
	return errors.Is(err, driver.ErrTransient) && (!e.Once || errors.Is(err, driver.ErrNotExecuted))
}

// Await runs an errand, and repeats it after errors that match driver.ErrTransient. It
// waits no longer than ctx, for go-redis cannot be relied on to return when its context
// ends. If ctx has already ended, nothing is done. end says why ctx has ended.
func (s *Session) Await(ctx context.Context, e Errand, said *Complaint, end func(context.Context) error) error {
	switch {
	case !e.Able:
		return fmt.Errorf("the store cannot do this: %w", errors.ErrUnsupported)
	case ctx.Err() != nil:
		return end(ctx)
	case !s.Begin():
		return ErrClosed
	}
	if e.First != nil {
		if err := e.First(); err != nil {
			s.Done()
			return err
		}
	}
	said.Asked()
	defer said.Leave()
	awaited, leave := context.WithCancel(ctx)
	defer leave()
	done := make(chan error, 1)
	go func() {
		defer s.Done()
		defer said.Leave() // if the caller has left, and an answer came after that
		var pause Pause
		for first := true; first || awaited.Err() == nil; first = false {
			err := e.Do()
			if ctx.Err() != nil && errors.Is(err, ctx.Err()) { // which says nothing of the store
				return
			}
			if err == nil || !e.repeats(err) {
				done <- err
				return
			}
			said.Failed(err)
			select {
			case <-awaited.Done():
				return
			case <-time.After(pause.Next(time.Second)):
			}
		}
	}()
	var outage <-chan time.Time
	if e.Endure > 0 {
		outage = time.After(e.Endure)
	}
	for {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			_, trouble := said.Trouble()
			return WithTrouble(end(ctx), cmp.Or(trouble, s.Silent()))
		case <-outage:
			owed, trouble := said.Trouble()
			if owed >= e.Endure {
				return &Outage{e.Endure, cmp.Or(trouble, s.Explain())}
			}
			outage = time.After(e.Endure - owed) // it has answered meanwhile
		}
	}
}

// WithTrouble adds to the end of a context the trouble that the caller waited for, if any.
func WithTrouble(cause, trouble error) error {
	if trouble == nil {
		return cause
	}
	return &troubled{cause, trouble}
}

// troubled is two errors. It is made into a text when somebody reads it: thousands of callers
// may give up at once.
type troubled struct{ cause, trouble error }

func (e *troubled) Error() string   { return e.cause.Error() + ": " + e.trouble.Error() }
func (e *troubled) Unwrap() []error { return []error{e.cause, e.trouble} }
