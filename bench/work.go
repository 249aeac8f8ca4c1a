package bench

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"math/rand/v2"
	"slices"
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
	return slices.Concat(
		[]Work{Uncontended, Linger}, Clients, []Work{OneClient}, Apart, Cluster, []Work{Many, Near, Far}, Waiters,
		[]Work{Held, Readers}, ReadWrite, []Work{Permits, Fairness}, Disk, Redlock, Postgres, OnEtcd, OnZooKeeper,
	)
}

// Run has the contenders take turns at a work. It calls each with every turn there is. It
// calls absent with contenders that do not take part, or not to the end, and the reason.
func Run(ctx context.Context, s *Stage, w Work, turns int, time time.Duration,
	each func(Contender, Turn), absent func(Contender, error)) (err error) {
	var players []*player
	defer func() {
		for _, p := range players {
			err = errors.Join(err, p.Close())
		}
	}()
	for _, c := range w.Contenders {
		scene, err := w.Enter(ctx, s, c)
		if err == nil {
			players = append(players, &player{Contender: c, Scene: scene})
			_, err = scene.Turn(ctx, Stint{Time: time / 10}) // connections, scripts, caches
			players[len(players)-1].gone = err != nil
		}
		if err != nil {
			absent(c, err)
		}
	}
	for range turns {
		for _, i := range rand.Perm(len(players)) { // nobody always follows the same
			p := players[i]
			if ctx.Err() != nil || p.gone {
				continue
			}
			turn, err := p.Turn(ctx, Stint{Time: time})
			if err != nil {
				p.gone = true
				absent(p.Contender, err)
				continue
			}
			each(p.Contender, turn)
		}
	}
	return ctx.Err()
}

type player struct {
	Contender
	Scene
	gone bool
}

// newName returns a name that nothing else has.
func newName() string { return cryptorand.Text() }
