package fence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/fence"
)

// A guard of one's own remembers the largest fence of each lock, and refuses smaller ones.
func Example() {
	seen := map[string]int64{} // by the key of the lock; keep it with the data, and change both in one step
	write := func(ctx context.Context, text string) error {
		fences, err := fence.Of(ctx)
		if err != nil {
			return err // the lease is known to be over
		}
		for _, f := range fences {
			if err := f.Check(seen[f.Key()]); err != nil {
				return err
			}
		}
		for _, f := range fences {
			if !f.Shared { // readers refuse nobody
				seen[f.Key()] = f.Number
			}
		}
		fmt.Println("write", text)
		return nil
	}

	locks := holdfast.Open(memdriver.New())
	defer locks.Close()
	mu := locks.Mutex("orders:42")
	var late context.Context
	_ = mu.Do(context.Background(), func(ctx context.Context) error {
		fences, err := fence.Of(ctx)
		late = fence.With(context.Background(), fences...) // as if paused: it hears of no loss
		return err
	})
	_ = mu.Do(context.Background(), func(ctx context.Context) error { return write(ctx, "paid") })
	fmt.Println("late:", errors.Is(write(late, "cancelled"), fence.ErrStale))
	// Output:
	// write paid
	// late: true
}
