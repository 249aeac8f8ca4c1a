package memdriver_test

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// Ship is code to be tested: it ships an order once, whoever else tries to.
func Ship(ctx context.Context, locks *holdfast.Client, order string) error {
	lease, err := locks.Mutex("order:" + order).TryLease(ctx)
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}

// Two clients of one store are like two processes with one Redis.
func Example() {
	store := memdriver.New()
	here, elsewhere := holdfast.Open(store), holdfast.Open(store)
	defer func() { _, _ = here.Close(), elsewhere.Close() }()

	ctx := context.Background()
	elsewhere.Mutex("order:42").Lock()
	fmt.Println(Ship(ctx, here, "42"))
	elsewhere.Mutex("order:42").Unlock()
	fmt.Println(Ship(ctx, here, "42"))
	// Output:
	// holdfast: acquire mutex "order:42": held by another
	// <nil>
}
