package leader_test

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/leader"
)

func ExampleElection_Run() {
	locks := holdfast.Open(memdriver.New()) // holdfast.New(rdb) where there are several processes
	defer locks.Close()

	election := leader.New(locks, "scheduler", holdfast.WithHolder("worker-3"))
	err := election.Run(context.Background(), func(ctx context.Context) error {
		now, err := election.Leader(ctx)
		fmt.Println(now.Name, "leads")
		return err
	})
	fmt.Println(err)
	_, err = election.Leader(context.Background())
	fmt.Println(err)
	// Output:
	// worker-3 leads
	// <nil>
	// holdfast: no leader
}
