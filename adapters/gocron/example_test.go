package gocronlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast"
	gocronlock "github.com/holdfast-go/holdfast/adapters/gocron"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// The first scheduler that comes to a job runs it. The lock has the name of the job.
func ExampleNewLocker() {
	locks := holdfast.Open(memdriver.New()) // holdfast.New(rdb)
	defer locks.Close()

	locker := gocronlock.NewLocker(locks, time.Minute) // longer than clocks differ
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		log.Fatal(err)
	}
	ran := make(chan string)
	_, err = s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), // or gocron.CronJob
		gocron.NewTask(func() { ran <- "report" }), gocron.WithName("report"))
	if err != nil {
		log.Fatal(err)
	}
	s.Start()
	fmt.Println(<-ran)
	fmt.Println(s.Shutdown())
	// Output:
	// report
	// <nil>
}

// One scheduler runs all jobs, until it is closed or lost.
func ExampleNewElector() {
	locks := holdfast.Open(memdriver.New()) // holdfast.New(rdb)
	defer locks.Close()

	elector := gocronlock.NewElector(locks, "scheduler", holdfast.WithHolder("worker-3"))
	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		log.Fatal(err)
	}
	for elector.IsLeader(context.Background()) != nil {
		time.Sleep(time.Millisecond) // no job is run meanwhile
	}
	fmt.Println(s.Shutdown())
	elector.Close() // another leads at once
	fmt.Println("over:", errors.Is(elector.IsLeader(context.Background()), gocronlock.ErrNotLeader))
	// Output:
	// <nil>
	// over: true
}
