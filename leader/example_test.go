package leader_test

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// Campaign and Resign are for code whose term begins and ends in different places.
func ExampleElection_Campaign() {
	locks := holdfast.Open(memdriver.New())
	defer locks.Close()
	ctx := context.Background()

	term, err := leader.New(locks, "scheduler").Campaign(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("leads:", term.Err() == nil, "with a fence:", term.Fence() > 0)
	_ = locks.Mutex("scheduler").ForceUnlock(ctx) // or it was cut off for longer than its TTL
	<-term.Context().Done()                       // what works under it stops
	fmt.Println("lost:", errors.Is(term.Resign(ctx), holdfast.ErrLost))
	// Output:
	// leads: true with a fence: true
	// lost: true
}

// Any process can see who leads, such as to send requests there.
func ExampleElection_Observe() {
	locks := holdfast.Open(memdriver.New())
	defer locks.Close()
	ctx := context.Background()

	var term *leader.Term
	for now, err := range leader.New(locks, "scheduler").Observe(ctx, 10*time.Millisecond) {
		switch {
		case errors.Is(err, leader.ErrNoLeader) && term == nil:
			fmt.Println("nobody leads")
			term, _ = leader.New(locks, "scheduler", holdfast.WithHolder("worker-3")).Campaign(ctx)
		case err == nil:
			fmt.Println(now.Name, "leads")
			_ = term.Resign(ctx)
		default:
			fmt.Println("again nobody")
			return
		}
	}
	// Output:
	// nobody leads
	// worker-3 leads
	// again nobody
}
