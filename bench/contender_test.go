package bench_test

import (
	"context"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/bench"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

var everybody = slices.Concat(bench.All, []bench.Contender{bench.HoldfastLock, bench.HoldfastDo, bench.HoldfastStrict, bench.RawPipelined, bench.SortedSet})

func open(t *testing.T, s *bench.Stage, c bench.Contender) bench.Process {
	t.Helper()
	p, err := c.Open(t.Context(), s)
	if bench.Absent(err) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func locker(t *testing.T, p bench.Process, name string) bench.Locker {
	t.Helper()
	l, err := p.Mutex(t.Context(), name)
	require.NoError(t, err)
	return l
}

func TestContenderKeepsOthersOutUntilItUnlocks(t *testing.T) {
	s := bench.NewStage(t, os.Getenv(addrVar))
	contenders := slices.Concat(everybody, []bench.Contender{bench.HoldfastRedlock, bench.RedsyncThree})
	if redistest.Again() { // Their servers take most of the time.
		contenders = append(contenders, bench.HoldfastPostgres, bench.RowLock, bench.AdvisoryLock, bench.LeaseRow, bench.HoldfastEtcd, bench.Etcd, bench.HoldfastZooKeeper)
	}
	for _, c := range contenders {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel() // It is all waiting.
			p, other := open(t, s, c), open(t, s, c)
			holder := locker(t, p, t.Name())
			require.NoError(t, holder.Lock(t.Context()))

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var in atomic.Int32
			for _, waiter := range []bench.Locker{locker(t, p, t.Name()), locker(t, other, t.Name())} {
				go func() {
					if waiter.Lock(ctx) == nil {
						in.Add(1)
						_ = waiter.Unlock(context.Background())
					}
				}()
			}
			require.Never(t, func() bool { return in.Load() > 0 }, 100*time.Millisecond, time.Millisecond, "FOUL: two holders")
			free := locker(t, other, t.Name()+" else")
			require.NoError(t, free.Lock(t.Context()), "another lock is free")
			defer func() { require.NoError(t, free.Unlock(context.Background())) }()
			require.NoError(t, holder.Unlock(t.Context()))
			if c.Name == bench.Rueidislock.Name {
				return // its waiters can stay stuck although the lock is free, which the report counts
			}
			require.Eventually(t, func() bool { return in.Load() == 2 }, 10*time.Second, time.Millisecond)
		})
	}
}

func TestContendersSendTwoCommandsWhereNobodyElseIs(t *testing.T) {
	redistest.SoakOnly(t)
	s := bench.NewStage(t, os.Getenv(addrVar))
	for _, c := range everybody {
		t.Run(c.Name, func(t *testing.T) {
			if c.Sends == nil {
				return // not on Redis
			}
			turn := oneTurn(t, s, bench.Uncontended, c, bench.Stint{Ops: 200})
			require.InDelta(t, 2, turn.Figures[bench.Commands], 0.1) // one more when the script is not known yet
			require.Positive(t, turn.Figures[bench.RedisCPU])
		})
	}
}

func oneTurn(t *testing.T, s *bench.Stage, w bench.Work, c bench.Contender, until bench.Stint) bench.Turn {
	t.Helper()
	scene, err := w.Enter(t.Context(), s, c)
	if bench.Absent(err) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, scene.Close()) }()
	turn, err := scene.Turn(t.Context(), until)
	require.NoError(t, err)
	return turn
}
