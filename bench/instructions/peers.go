package main

import (
	"context"

	"github.com/holdfast-go/holdfast/bench"
)

func init() {
	works = append(works,
		work{"by hand: mutex", peer(bench.Raw, 1)},
		work{"by hand: sorted set, alone", peer(bench.SortedSet, 1)},
		work{"by hand: sorted set, beside 32", peer(bench.SortedSet, 33)},
	)
}

// peer returns a work of so many holders, of which each cycle adds one, and removes another.
func peer(c bench.Contender, holders int) func(ctx context.Context, addr string) (func() error, error) {
	return func(ctx context.Context, addr string) (func() error, error) {
		p, err := c.Open(ctx, &bench.Stage{Addr: addr})
		if err != nil {
			return nil, err
		}
		lockers := make([]bench.Locker, holders)
		for i := range lockers {
			if s, ok := p.(bench.SemaphoreProcess); ok {
				lockers[i] = s.Semaphore("lock", 1000)
			} else if lockers[i], err = p.Mutex(ctx, "lock"); err != nil {
				return nil, err
			}
			if err == nil && i > 0 {
				err = lockers[i].Lock(ctx)
			}
		}
		next := 0
		return func() error {
			err := lockers[next].Lock(ctx)
			next = (next + 1) % holders
			if err == nil {
				err = lockers[next].Unlock(ctx)
			}
			return err
		}, err
	}
}
