package holdfast

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cohort"
)

// line is where the goroutines of this client queue that want a lock for themselves alone.
type line = cohort.Cohort[*acquisition, config]

type waiter = cohort.Waiter[*acquisition, config]

func newWaiter() any { return cohort.NewWaiter[*acquisition, config]() }

// passes reports whether a lease can pass from one to another in this process. One that
// is not renewed ends when it ends; an owner has no need to wait for himself; those who
// share something with others, permits or reading, have each their own; and who attaches
// wants one certain lease.
func (t *attempt) passes() bool {
	return t.want.Kind != driver.Semaphore && !t.want.Shared && !t.cfg.strict && !t.cfg.fixed &&
		t.want.Owner == "" && t.cfg.from == nil
}

// inLine gets a lease from another goroutine, or from the store for this one and those
// that wait behind it.
func (t *attempt) inLine() (*Lease, error) {
	t.want.Fences, t.want.Notice = maxPasses, t.cfg.linger > 0
	at := t.at
	if at == nil {
		if at = t.c.approach(door{kind: t.want.Kind, name: t.want.Name}); at == nil {
			return nil, ErrClosed
		}
		defer t.c.withdraw(at)
	}
	w := t.c.waiters.Get().(*waiter)
	defer t.c.waiters.Put(w)
	for {
		news, ended := at.line.Join(w, t.alike, t.want.Wait)
		t.giveBack(ended)
		if news.Status == cohort.Wait {
			at.line.Wanted().provide()
			var err error
			if news, err = t.hear(at, w); err != nil {
				return nil, err
			}
		}
		switch news.Status {
		case cohort.Busy:
			t.behind(at)
			return nil, ErrLocked
		case cohort.Ask:
			return t.lead(at, news.Term)
		}
		if !t.numbered(news.Term) {
			t.decline(at, news)
			switch {
			case t.wait.Err() != nil:
				return nil, at.because(context.Cause(t.wait))
			case t.c.closing.Err() != nil:
				return nil, ErrClosed
			}
			continue // the store does not answer
		}
		t.after(news.Term)
		if l := news.Term.hold(t.ctx, t.op, t.plain); l.ended() == nil {
			return l, nil
		}
		// It was lost on the way from hand to hand.
	}
}

// numbered waits until there is a fence for a lease on a term, and reports whether there is
// one. A plain lease takes the one that is there.
func (t *attempt) numbered(a *acquisition) bool {
	if l := a.lease(); t.plain && l != nil && l.ended() == nil {
		return true
	}
	return a.turn.numbered(t.wait.Done(), t.c.closing.Done())
}

// hear waits for the news of a waiter. Who gives up passes on what comes too late.
func (t *attempt) hear(at *doorway, w *waiter) (news cohort.News[*acquisition], err error) {
	t.behind(at)
	told := true
	select {
	case news = <-w.News():
		if t.wait.Err() == nil {
			return news, nil
		}
	case <-t.wait.Done():
		news, told = at.line.Leave(w)
	case <-t.c.closing.Done():
		news, told = at.line.Leave(w)
	}
	if told {
		t.decline(at, news)
	}
	if t.wait.Err() == nil {
		return news, ErrClosed
	}
	return news, at.because(context.Cause(t.wait))
}

func (t *attempt) decline(at *doorway, news cohort.News[*acquisition]) {
	a := news.Term
	switch {
	case news.Status == cohort.Held && a.passOn():
	case news.Status == cohort.Held:
		a.giveBack()
	case a == nil:
		at.line.Failed()
	default:
		t.forsake(at, a)
	}
}

// forsake leaves an acquisition to the next in the queue, who goes on with it, or undoes it.
func (t *attempt) forsake(at *doorway, a *acquisition) {
	a.due = time.Now() // for who goes on with it: perhaps the ask under way ends with our context
	if !at.line.Bequeath(a) {
		a.undo(t.ctx)
		at.line.Failed()
	}
}

// lead asks the store on behalf of all in the queue. a is the acquisition of somebody
// who gave up, or nil.
func (t *attempt) lead(at *doorway, a *acquisition) (*Lease, error) {
	for {
		if a == nil {
			a = t.begin()
			a.at = at
		}
		if t.said != nil {
			a.said = t.said
		}
		l, err := t.win(a)
		if err == nil {
			at.line.Won(a)
			at.line.Wanted().provide()
			at.ahead.Store(nil)
			if a.ceased.Load() { // lost before the queue could know of it
				at.line.Over(a, false)
			}
			return l, nil
		}
		switch {
		case t.again(err):
			a.undo(t.ctx)
			a = nil
			continue
		case t.wait.Err() != nil && t.want.Wait && t.c.closing.Err() == nil:
			t.forsake(at, a) // it has a good place in the store's queue
		default:
			a.undo(t.ctx)
			at.line.Failed()
		}
		return nil, err
	}
}

// behind notes who is in the way now, and after who was just before.
func (t *attempt) behind(at *doorway) {
	if t.op != nil {
		t.op.Contended = true
		if a := at.line.Term(); a != nil {
			t.after(a)
		} else if carrier := at.ahead.Load(); carrier != nil {
			t.op.block(*carrier)
		}
	}
}

func (t *attempt) after(a *acquisition) {
	if l := a.lease(); t.op != nil && l != nil {
		t.op.block(l.carrier())
	}
}

// because adds to the end of a context what was waited for.
func (d *doorway) because(cause error) error {
	if err := d.trouble.Load(); err != nil {
		return fmt.Errorf("%w: %w", cause, *err)
	}
	return fmt.Errorf("%w: %w", cause, ErrLocked)
}
