package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// Work is something that programs do with locks.
type Work struct {
	Name       string // as of its benchmark
	Title      string
	About      string
	Contenders []Contender
	Columns    []Figure      // what is worth looking at
	Turns      int           // of each contender in a full report
	Time       time.Duration // of a turn there
	// Enter sets the work up for a contender. The error is an [Absence] if that cannot
	// do it.
	Enter func(ctx context.Context, s *Stage, c Contender) (Scene, error)
}

// Scene is a work set up for a contender.
type Scene interface {
	Turn(ctx context.Context, until Stint) (Turn, error)
	Close() error
}

// Works are all works, in the order of the report.
func Works() []Work {
	works := []Work{Uncontended}
	works = append(works, Clients...)
	works = append(works, OneClient)
	works = append(works, Apart...)
	return works
}

// Run has the contenders take turns at a work. It calls each with every turn there is,
// and absent with those who do not take part and why.
func Run(ctx context.Context, s *Stage, w Work, turns int, until Stint,
	each func(Contender, Turn), absent func(Contender, error)) (err error) {
	type player struct {
		Contender
		Scene
	}
	var players []player
	defer func() {
		for _, p := range players {
			err = errors.Join(err, p.Close())
		}
	}()
	for _, c := range w.Contenders {
		scene, err := w.Enter(ctx, s, c)
		if err != nil {
			absent(c, err)
			continue
		}
		players = append(players, player{c, scene})
		if _, err := scene.Turn(ctx, Stint{Time: until.Time / 10}); err != nil { // connections, scripts, caches
			return describe(c, w, err)
		}
	}
	for i := range turns {
		for j := range players {
			p := players[(i+j)%len(players)] // nobody always follows the same
			turn, err := p.Turn(ctx, until)
			if err != nil {
				return describe(p.Contender, w, err)
			}
			each(p.Contender, turn)
		}
	}
	return nil
}

// newName returns a name that nothing else has.
func newName() string { return rand.Text() }

func describe(c Contender, w Work, err error) error {
	return fmt.Errorf("%s, %s: %w", w.Name, c.Name, err)
}
