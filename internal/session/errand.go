package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Errand is something that a caller wants done at the store.
type Errand struct {
	Op    string
	Able  bool         // the driver can do it
	First func() error // comes before Do, in this process; nil for nothing
	Do    func() error // at the store; runs on another goroutine, perhaps beyond the call
	Once  bool         // what was perhaps done must not be done again

	Endure  time.Duration // gives up if the store has not answered for so long; 0: never
	Answers *atomic.Int64 // how many there were, of a Do that asks more than once; nil for others
}

// retries reports whether to try again after an error.
func (e *Errand) retries(err error) bool {
	return errors.Is(err, driver.ErrTransient) && (!e.Once || errors.Is(err, driver.ErrNotExecuted))
}

// Await runs an errand, and repeats it after errors that match driver.ErrTransient. It
// waits no longer than ctx, for go-redis cannot be relied on to return when its context
// ends. If ctx has already ended, nothing is done. end says why ctx has ended.
func (s *Session) Await(ctx context.Context, e Errand, said Complaint, end func(context.Context) error) error {
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
	attempts := make(chan error, 1)
	attempt := func() { attempts <- e.Do() }
	go attempt()
	said.Asked()
	defer said.Leave(s)
	timer := time.NewTimer(said.Tell(s))
	defer timer.Stop()
	var failed error // at the last attempt
	var pause time.Duration
	var retry, outage <-chan time.Time
	var over *time.Timer
	if e.Endure > 0 {
		over = time.NewTimer(e.Endure)
		defer over.Stop()
		outage = over.C
	}
	leave := func(err error) error {
		if retry != nil { // nothing is under way
			s.Done()
		} else {
			go func() { <-attempts; s.Done() }()
		}
		return err
	}
	var told, endured int64 // of the answers, when the timers last went off
	more := func(than *int64) bool {
		if e.Answers == nil || failed != nil { // it may fail again and again for one of many
			return false
		}
		before := *than
		*than = e.Answers.Load()
		return *than > before
	}
	for {
		select {
		case err := <-attempts:
			if ctx.Err() != nil && errors.Is(err, ctx.Err()) { // which says nothing of the store
				s.Done()
				return WithTrouble(end(ctx), cmp.Or(failed, s.Silent()))
			}
			if err == nil || !e.retries(err) {
				s.Done()
				return err
			}
			failed = err
			said.Failed(failed)
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			retry = time.After(pause/2 + rand.N(pause))
		case <-retry:
			retry = nil
			go attempt()
		case <-timer.C:
			if more(&told) {
				said.Answered(s)
				said.Asked()
			}
			timer.Reset(said.Tell(s))
		case <-outage:
			if more(&endured) {
				over.Reset(e.Endure)
				continue
			}
			return leave(&Outage{e.Endure, cmp.Or(failed, s.Explain())})
		case <-ctx.Done():
			return leave(WithTrouble(end(ctx), cmp.Or(failed, s.Silent())))
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
