package flags

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/urfave/cli/v3"
)

// Time is a flag whose value is a time as flock has it, in seconds, or as Go has it.
type Time = cli.FlagBase[time.Duration, cli.NoConfig, timeValue]

type timeValue time.Duration

// Create implements [cli.ValueCreator].
func (timeValue) Create(value time.Duration, p *time.Duration, _ cli.NoConfig) cli.Value {
	*p = value
	return (*timeValue)(p)
}

// ToString implements [cli.ValueCreator].
func (timeValue) ToString(value time.Duration) string { return value.String() }

// Set implements [cli.Value].
func (t *timeValue) Set(s string) error {
	seconds, err := strconv.ParseFloat(s, 64)
	if err == nil && math.Abs(seconds) < float64(math.MaxInt64/time.Second) {
		*t = timeValue(seconds * float64(time.Second))
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return errors.New("want seconds, such as 5 or 0.5, or a time with units, such as 2m30s")
	}
	*t = timeValue(d)
	return nil
}

func (t *timeValue) Get() any { return time.Duration(*t) }

func (t *timeValue) String() string { return fmt.Sprint(time.Duration(*t)) }
