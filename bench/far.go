package bench

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Far is where a round trip takes much longer than anything else, as between regions.
// Each hand-over needs one at least, for the next holder has to hear of it.
var Far = Work{
	Name:  "Far/rtt=10ms",
	Title: "8 clients on one lock, 10 ms away",
	About: "A proxy holds back all that is sent by 5 ms, either way. Cycles are counted per round trip as PING " +
		"measures it through the same proxy.",
	Contenders: All,
	Columns:    append([]Figure{RTT, CyclesPerRTT}, contended...),
	Turns:      3,
	Time:       2 * time.Second,
	Enter:      enterFar,
}

// Near is where Redis is on another machine of the same place. Timers of Go have no less
// than 1 ms, so neither has the proxy that holds things back.
var Near = Work{
	Name:  "Near/rtt=2ms",
	Title: "Lock and unlock, uncontended, 2 ms away",
	About: "One client, one goroutine. A proxy holds back all that is sent by 1 ms, either way; *rtt* is what PING " +
		"measures through it.",
	Contenders: slices.Concat(All, []Contender{HoldfastLock}),
	Columns:    append([]Figure{RTT, CyclesPerRTT}, even...),
	Turns:      15,
	Time:       200 * time.Millisecond,
	Enter: func(ctx context.Context, s *Stage, c Contender) (Scene, error) {
		return away(ctx, s, c, 2*time.Millisecond, mutexes(1))
	},
}

const farRTT = 10 * time.Millisecond

func enterFar(ctx context.Context, s *Stage, c Contender) (Scene, error) {
	return away(ctx, s, c, farRTT, mutexes(each(8)...))
}

// away sets the work up for a contender with Redis farther away.
func away(ctx context.Context, s *Stage, c Contender, rtt time.Duration, work setting) (Scene, error) {
	if c.Name == InProcess.Name {
		return nil, Absence("there is no way to go")
	}
	far := s.Far(rtt)
	rtt, err := far.ping(ctx)
	if err != nil {
		return nil, err
	}
	crowd, err := work.gather(ctx, far, c)
	return &farScene{crowd, rtt}, err
}

// ping returns the median time of a round trip.
func (s *Stage) ping(ctx context.Context) (time.Duration, error) {
	rdb := s.client()
	defer func() { _ = rdb.Close() }()
	var all Histogram
	errs := []error{rdb.Ping(ctx).Err()} // which also connects
	for range 21 {
		began := time.Now()
		errs = append(errs, rdb.Ping(ctx).Err())
		all.Add(time.Since(began))
	}
	return all.Percentile(50), errors.Join(errs...)
}

type farScene struct {
	*crowd
	rtt time.Duration
}

func (f *farScene) Turn(ctx context.Context, until Stint) (Turn, error) {
	t, err := f.crowd.Turn(ctx, until)
	if err == nil {
		t.Figures[RTT] = micros(f.rtt)
		t.Figures[CyclesPerRTT] = t.Figures[Throughput] * f.rtt.Seconds()
	}
	return t, err
}
