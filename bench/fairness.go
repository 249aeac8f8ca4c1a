package bench

import (
	"context"
	"time"
)

// Fairness is where one process wants a lock more than others do.
var Fairness = Work{
	Name:  "Fairness/64+1+1+1",
	Title: "A process with 64 goroutines beside three with one",
	About: "All want one lock, and hold it no longer than it takes to look around. Waits are those of the three lone " +
		"goroutines. A share of 3/67 is what they would have if all goroutines had the same, 3/4 if all processes had.",
	Contenders: All,
	Columns:    append([]Figure{LoneShare}, contended...),
	Turns:      3,
	Time:       1500 * time.Millisecond,
	Enter: func(ctx context.Context, s *Stage, c Contender) (Scene, error) {
		crowd, err := mutexes(64, 1, 1, 1).gather(ctx, s, c)
		if err != nil {
			return nil, err
		}
		for _, m := range crowd.members[:64] {
			m.hidden = true
		}
		return unequal{crowd}, nil
	},
}

// unequal is a crowd of which some are hidden in a mass.
type unequal struct{ *crowd }

func (u unequal) Turn(ctx context.Context, until Stint) (Turn, error) {
	t, err := u.crowd.Turn(ctx, until)
	var lone, all float64
	for _, m := range u.members {
		all += float64(m.punctual)
		if !m.hidden {
			lone += float64(m.punctual)
		}
	}
	if err == nil {
		t.Figures[LoneShare] = lone / max(1, all)
	}
	return t, err
}
