// Package cronlock has jobs of [cron] run once among many processes.
//
//	mu := locks.Mutex("report:hourly", holdfast.WithMinHold(time.Minute))
//	c := cron.New()
//	c.AddJob("@hourly", cron.NewChain(cronlock.Once(mu, cron.DefaultLogger)).Then(report))
//
// [cron]: https://github.com/robfig/cron
package cronlock

import (
	"context"
	"errors"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast"
)

// patience is how long a job waits for the store.
const patience = time.Second

// Once returns a wrapper that runs a job while it holds mu. If another has the lock, the job
// is skipped, which log is told at level Info. If the store cannot be asked within 1 s, or
// refuses, the job is skipped, too; that, and a lock that was lost before the job was done,
// is an Error for log.
//
// A short job is done and its lock is free before a process with a slower clock comes to it.
// So make mu with a [holdfast.WithMinHold] that is longer than clocks can differ, and shorter
// than the time between two runs. Each job needs a mutex of its own, so do not use the
// wrapper with [cron.WithChain], which is for all jobs.
func Once(mu *holdfast.Mutex, log cron.Logger) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		return cron.FuncJob(func() {
			lease, err := try(mu)
			switch {
			case errors.Is(err, holdfast.ErrLocked):
				log.Info("skip", "reason", err)
				return
			case err != nil:
				log.Error(err, "skip")
				return
			}
			defer func() {
				if err := lease.Release(context.Background()); err != nil {
					log.Error(err, "release")
				}
			}()
			job.Run()
		})
	}
}

func try(mu *holdfast.Mutex) (*holdfast.Lease, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return mu.TryLease(ctx)
}
