package cronlock_test

import (
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast"
	cronlock "github.com/holdfast-go/holdfast/adapters/cron"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// Two processes have the same schedule. The one that comes first runs the job.
func ExampleOnce() {
	store := memdriver.New() // a Redis
	report := cron.FuncJob(func() { fmt.Println("report") })
	for range 2 {
		locks := holdfast.Open(store) // holdfast.New(rdb)
		defer locks.Close()
		tick := locks.Mutex("report:hourly", holdfast.WithMinHold(time.Minute)) // longer than clocks differ
		job := cron.NewChain(cronlock.Once(tick, cron.DiscardLogger)).Then(report)

		jobs := cron.New()
		if _, err := jobs.AddJob("@hourly", job); err != nil {
			fmt.Println(err)
		}
		job.Run() // as jobs.Start does each hour
	}
	// Output: report
}
