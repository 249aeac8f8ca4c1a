package bench

import (
	"context"
	"runtime"
	"time"
)

// meter reads what a turn costs.
type meter struct {
	stage          *Stage
	sends          []string
	before         counters
	allocs         uint64
	postgres, self time.Duration // CPU time
}

func startMeter(ctx context.Context, s *Stage, sends []string) (*meter, error) {
	before, err := s.counters(ctx)
	return &meter{s, sends, before, allocs(), s.postgres.cpu(), processCPU()}, err
}

// read adds the costs of a cycle to figures, if there was one.
func (m *meter) read(ctx context.Context, cycles float64, figures map[Figure]float64) error {
	if cycles == 0 {
		return nil
	}
	figures[Allocs] = float64(allocs()-m.allocs) / cycles
	figures[ClientPerOp] = micros(processCPU()-m.self) / cycles
	figures[PostgresCPU] = micros(m.stage.postgres.cpu()-m.postgres) / cycles
	if m.sends == nil {
		return nil
	}
	after, err := m.stage.counters(ctx)
	calls, cpu := after.since(m.before, m.sends)
	figures[Commands] = calls / cycles
	figures[RedisCPU] = cpu * 1e6 / cycles
	return err
}

func allocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
