package bench_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/bench"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// small are works of every kind that end soon.
func small() []bench.Work {
	var works []bench.Work
	for _, w := range bench.Works() {
		switch w.Name {
		case "Waiters/1000", "Waiters/10000", "Held/10000", "Clients/64/hold=1ms", "Apart/512", "Many/1000x10":
		default:
			works = append(works, w)
		}
	}
	return works
}

func TestNobodyIsInWhoMustNotBe(t *testing.T) {
	t.Parallel()
	s := bench.NewStage(t, os.Getenv(addrVar))
	contenders := []bench.Contender{bench.Holdfast}
	if redistest.Again() { // The works are the same.
		contenders = append(contenders, bench.Raw, bench.InProcess)
	}
	for _, w := range small() {
		for _, c := range contenders {
			t.Run(w.Name+"/"+c.Name, func(t *testing.T) {
				turn := oneTurn(t, s, w, c, bench.Stint{Time: 50 * time.Millisecond})
				for n := 1; turn.Waits.Count() == 0 && n <= 3; n++ { // a busy machine
					turn = oneTurn(t, s, w, c, bench.Stint{Time: time.Duration(n) * time.Second})
				}
				require.Zero(t, turn.Figures[bench.Overlaps], "FOUL: somebody was in who must not")
				require.Zero(t, turn.Figures[bench.Stuck])
				require.Positive(t, turn.Waits.Count())
				figures := bench.Summary([]bench.Turn{turn}).Figures
				for _, f := range w.Columns {
					if c.Sends != nil {
						require.Contains(t, figures, f, "is a column of the report")
					}
				}
			})
		}
	}
}

// careless is a contender whose locks do nothing.
var careless = bench.Contender{Name: "careless", Open: func(context.Context, *bench.Stage) (bench.Process, error) {
	return nothing{}, nil
}}

type nothing struct{}

func (nothing) Close() error                                        { return nil }
func (nothing) Lock(context.Context) error                          { return nil }
func (nothing) Unlock(context.Context) error                        { return nil }
func (nothing) Semaphore(string, int64) bench.Locker                { return nothing{} }
func (nothing) Mutex(context.Context, string) (bench.Locker, error) { return nothing{}, nil }
func (nothing) RWMutex(context.Context, string) (r, w bench.Locker, err error) {
	return nothing{}, nothing{}, nil
}

func TestLocksThatDoNothingAreFoundOut(t *testing.T) {
	t.Parallel()
	s := bench.NewStage(t, os.Getenv(addrVar))
	for _, w := range bench.Works() {
		if strings.HasSuffix(w.Name, "hold=1ms") || strings.HasPrefix(w.Name, "ReadWrite") || strings.HasPrefix(w.Name, "Semaphore") {
			t.Run(w.Name, func(t *testing.T) {
				overlaps := 0.0
				for n := 1; overlaps == 0 && n <= 8; n++ { // longer and longer, if they meet seldom on a busy machine
					overlaps = oneTurn(t, s, w, careless, bench.Stint{Time: 50 * time.Millisecond << n}).Figures[bench.Overlaps]
				}
				require.Positive(t, overlaps)
			})
		}
	}
}

// jammed is a contender whose locks nobody ever gets who contends.
var jammed = bench.Contender{Name: "jammed", Open: func(context.Context, *bench.Stage) (bench.Process, error) {
	return jam{}, nil
}}

type jam struct{ nothing }

func (jam) Mutex(context.Context, string) (bench.Locker, error) { return jam{}, nil }
func (jam) Lock(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestWaitersThatAreForgottenCountAsStuck(t *testing.T) {
	t.Parallel()
	s := bench.NewStage(t, os.Getenv(addrVar))
	turn := oneTurn(t, s, bench.Clients[1], jammed, bench.Stint{Time: 50 * time.Millisecond})
	require.Equal(t, 8.0, turn.Figures[bench.Stuck])
	require.Zero(t, turn.Figures[bench.Throughput])
}

func TestHandOversAreThoseBetweenProcesses(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	s := bench.NewStage(t, os.Getenv(addrVar))
	turn := oneTurn(t, s, bench.OneClient, bench.InProcess, bench.Stint{Ops: 1000})
	require.InDelta(t, 1, turn.Figures[bench.Handovers]/turn.Figures[bench.Throughput]*1000, 0.1, "the first visit")
	turn = oneTurn(t, s, bench.Clients[1], bench.Holdfast, bench.Stint{Ops: 1000})
	require.Greater(t, turn.Figures[bench.Handovers], 0.8*turn.Figures[bench.Throughput], "who unlocks is last in the queue")
}

func TestTurnsAreInRandomOrder(t *testing.T) {
	t.Parallel()
	s := bench.NewStage(t, os.Getenv(addrVar))
	w := bench.Uncontended
	w.Contenders = []bench.Contender{bench.InProcess, careless}
	first := map[string]int{}
	n := 0
	require.NoError(t, bench.Run(t.Context(), s, w, 64, time.Millisecond, func(c bench.Contender, _ bench.Turn) {
		if n++; n%2 == 1 {
			first[c.Name]++
		}
	}, func(_ bench.Contender, why error) { t.Error(why) }))
	require.Greater(t, first[careless.Name], 8)
	require.Less(t, first[careless.Name], 56)
}

func TestLeasesThatAreHeldAreRenewed(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	s := bench.NewStage(t, os.Getenv(addrVar))
	turn := oneTurn(t, s, bench.Held, bench.Holdfast, bench.Stint{Time: 4 * time.Second}) // longer than a third of the TTL
	require.Greater(t, turn.Figures[bench.CommandsPerSec], 30.0, "10,000 leases renewed once in 4 s at least, 64 in a command")
	require.Positive(t, turn.Figures[bench.HeapPerLease])
}

func TestRunSaysWhoIsAbsentAndWhy(t *testing.T) {
	s := bench.NewStage(t, os.Getenv(addrVar))
	broken := bench.Contender{Name: "broken", Open: func(context.Context, *bench.Stage) (bench.Process, error) {
		return nil, errors.New("cannot open")
	}}
	w := bench.Permits
	w.Contenders = []bench.Contender{bench.InProcess, bench.Raw, broken}
	turns, absent := map[string]int{}, map[string]string{}
	require.NoError(t, bench.Run(t.Context(), s, w, 3, 10*time.Millisecond,
		func(c bench.Contender, _ bench.Turn) { turns[c.Name]++ },
		func(c bench.Contender, why error) { absent[c.Name] = why.Error() }))
	require.Equal(t, map[string]int{"in process": 3}, turns)
	require.Equal(t, map[string]string{"raw": "has no semaphore", "broken": "cannot open"}, absent)
}
