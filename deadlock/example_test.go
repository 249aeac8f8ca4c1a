package deadlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/deadlock"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// Two transfers take the same two accounts in different orders. The one that began to wait last is
// ended, gives back what it has, and begins anew.
func Example() {
	locks := holdfast.Open(memdriver.New())
	defer locks.Close()
	locks.AddHook(deadlock.New(locks, deadlock.WithPause(20*time.Millisecond)))

	var started, done sync.WaitGroup
	started.Add(2)
	transfer := func(from, to string) {
		defer done.Done()
		wait := sync.OnceFunc(func() { started.Done(); started.Wait() }) // so that they meet
		for {
			err := locks.Mutex(from).Do(context.Background(), func(ctx context.Context) error {
				wait()
				return locks.Mutex(to).Do(ctx, func(context.Context) error { return nil })
			})
			var circle *deadlock.Error
			if !errors.As(err, &circle) {
				fmt.Println("done:", err == nil)
				return
			}
			fmt.Println("a circle of", len(circle.Circle))
		}
	}
	done.Add(2)
	go transfer("alice", "bob")
	go transfer("bob", "alice")
	done.Wait()
	// Unordered output:
	// a circle of 2
	// done: true
	// done: true
}
