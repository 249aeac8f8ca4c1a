package locks

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/show"
	"github.com/holdfast-go/holdfast/deadlock"
	"github.com/holdfast-go/holdfast/driver"
)

// chainsAt returns what each holder of a lock waits for, of those that say so.
func (f *found) chainsAt(ctx context.Context, by driver.Inspector, now time.Time) (all []string) {
	for _, h := range f.Holders {
		if len(deadlock.Waits(h)) > 0 {
			all = append(all, chain(ctx, by, deadlock.Lock{Kind: f.kind, Name: f.Name}, h, now))
		}
	}
	return all
}

// chain tells what a holder of a lock waits for, who holds that, what that one waits for, and
// so on. Holders say so in programs that have the hook of package deadlock. The chain ends at
// a holder that waits for nothing, or with a lock that comes again: a circle.
func chain(ctx context.Context, by driver.Inspector, l deadlock.Lock, h driver.Holder, now time.Time) string {
	seen := map[deadlock.Lock]bool{l: true}
	text := show.Printable(h.Holder)
	for {
		waits := deadlock.Waits(h)
		if len(waits) == 0 {
			return text
		}
		l = waits[0].For
		text += show.WaitsFor(waits[0].Since, now) + " for " + l.String()
		if seen[l] {
			return text + ", a circle"
		}
		seen[l] = true
		info, err := by.Inspect(ctx, l.Kind, l.Name)
		if err != nil || len(info.Holders) == 0 {
			return text
		}
		h = info.Holders[max(slices.IndexFunc(info.Holders, waiting), 0)]
		text += fmt.Sprintf(", held by %s for %s", show.Printable(h.Holder), show.HeldFor(h.Since, now))
		if others := len(info.Holders) - 1; others > 0 {
			text += fmt.Sprintf(" and %s", show.Plural(others, "other", "others"))
		}
		if len(deadlock.Waits(h)) > 0 {
			text += ", which"
		}
	}
}

func waiting(h driver.Holder) bool { return len(deadlock.Waits(h)) > 0 }

// markCircles marks locks whose holders wait, by what they say, for each other.
func markCircles(ctx context.Context, by driver.Inspector, locks []*found) {
	next := map[deadlock.Lock][]deadlock.Lock{} // for what the holders of a lock wait
	see := func(l deadlock.Lock, i driver.Info) {
		next[l] = []deadlock.Lock{}
		for _, h := range i.Holders {
			for _, w := range deadlock.Waits(h) {
				next[l] = append(next[l], w.For)
			}
		}
	}
	for _, f := range locks {
		see(deadlock.Lock{Kind: f.kind, Name: f.Name}, f.Info)
	}
	for _, f := range locks {
		start := deadlock.Lock{Kind: f.kind, Name: f.Name}
		ahead, seen := slices.Clone(next[start]), map[deadlock.Lock]bool{}
		for len(ahead) > 0 && !f.circle {
			l := ahead[0]
			f.circle, ahead = l == start, ahead[1:]
			if seen[l] {
				continue
			}
			seen[l] = true
			if next[l] == nil { // it is not among those that are listed
				info, _ := by.Inspect(ctx, l.Kind, l.Name)
				see(l, info)
			}
			ahead = append(ahead, next[l]...)
		}
	}
}
