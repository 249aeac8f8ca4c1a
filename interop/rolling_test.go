package interop_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/setnx"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// release is a program at one point of a migration: it does work under its locks.
type release func(ctx context.Context, work func(context.Context) error) error

// The way that docs/migration.md describes: release 1 takes the lock of the old programs, and
// within it that of the new ones.
func TestFleetIsChangedOverWithoutASecondHolder(t *testing.T) {
	for _, old := range []struct {
		name    string
		keys    []string // what release 1 takes of the old lock, as names of driver/setnx
		program func(t *testing.T, s *redistest.Server) release
	}{
		{"redsync", []string{"orders:42"}, polling(peers[0])},
		{"redislock", []string{"orders:42"}, polling(peers[1])},
		{"documentation", []string{"orders:42"}, polling(peers[2])},
		{"rueidislock of one key", []string{"rueidislock:0:orders:42"}, usingRueidis(1)},
		{"rueidislock of three keys", []string{"rueidislock:0:orders:42", "rueidislock:1:orders:42"}, usingRueidis(2)},
	} {
		t.Run(old.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Real(t)
			first := func() release {
				older, newer := holdfast.Open(setnx.New(s.Client(t))), holdfast.New(s.Client(t))
				t.Cleanup(func() { assert.NoError(t, older.Close()); assert.NoError(t, newer.Close()) })
				do := newer.Mutex("orders:42").Do
				for _, key := range old.keys {
					inner, outer := do, older.Mutex(key)
					do = func(ctx context.Context, work func(context.Context) error) error {
						return outer.Do(ctx, func(ctx context.Context) error { return inner(ctx, work) })
					}
				}
				return do
			}
			second := func() release {
				newer := holdfast.New(s.Client(t))
				t.Cleanup(func() { assert.NoError(t, newer.Close()) })
				return newer.Mutex("orders:42").Do
			}
			requireExclusion(t, old.program(t, s), old.program(t, s), first(), first())
			requireExclusion(t, first(), first(), second(), second())
		})
	}
}

// requireExclusion has the programs work side by side, each until all have worked so often.
func requireExclusion(t *testing.T, programs ...release) {
	t.Helper()
	const times = 10
	var inside atomic.Int64
	var wg sync.WaitGroup
	for _, do := range programs {
		wg.Go(func() {
			for range times {
				err := do(t.Context(), func(context.Context) error {
					assert.EqualValues(t, 1, inside.Add(1), "FOUL: two are in the room")
					time.Sleep(time.Millisecond)
					inside.Add(-1)
					return nil
				})
				if !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	wg.Wait()
}

// polling is a program that asks for the lock again and again, as users of such peers do.
func polling(p peer) func(*testing.T, *redistest.Server) release {
	return func(t *testing.T, s *redistest.Server) release {
		rdb := s.Client(t)
		return func(ctx context.Context, work func(context.Context) error) error {
			for {
				l, err := p.try(ctx, rdb, "orders:42", long)
				if err != nil {
					return err
				}
				if l != nil {
					err = work(ctx)
					if unlocked := l.unlock(ctx); err == nil {
						err = unlocked
					}
					return err
				}
				time.Sleep(2 * time.Millisecond)
			}
		}
	}
}

// usingRueidis is a program that uses rueidislock, with so many keys as the majority. It asks
// again and again, too: version 1.0.79 can forget those who wait for another client.
func usingRueidis(majority int32) func(*testing.T, *redistest.Server) release {
	return func(t *testing.T, s *redistest.Server) release {
		locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: rueidis.ClientOption{InitAddress: []string{s.Addr()}},
			KeyMajority:  majority,
			TryNextAfter: time.Second, // as long may a command take
		})
		require.NoError(t, err)
		t.Cleanup(locker.Close)
		return func(ctx context.Context, work func(context.Context) error) error {
			for {
				held, cancel, err := locker.TryWithContext(ctx, "orders:42")
				if err == nil {
					defer cancel()
					return work(held)
				}
				if !errors.Is(err, rueidislock.ErrNotLocked) {
					return err
				}
				time.Sleep(2 * time.Millisecond)
			}
		}
	}
}
