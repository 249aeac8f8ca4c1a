package memdriver_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
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
	fmt.Println("locked:", errors.Is(Ship(ctx, here, "42"), holdfast.ErrLocked))
	elsewhere.Mutex("order:42").Unlock()
	fmt.Println("shipped:", Ship(ctx, here, "42") == nil)
	// Output:
	// locked: true
	// shipped: true
}

// outage is a store that can be away: a wrapper around another one.
type outage struct {
	driver.Driver
	away atomic.Bool
}

// Errors that match ErrTransient are retried, as those of a broken connection are.
var errAway = fmt.Errorf("connection refused: %w: %w", driver.ErrTransient, driver.ErrNotExecuted)

func (o *outage) Unwrap() driver.Driver { return o.Driver }

func (o *outage) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if o.away.Load() {
		return driver.Grant{}, errAway
	}
	return o.Driver.Acquire(ctx, r)
}

func (o *outage) Renew(ctx context.Context, leases []driver.Lease) []error {
	if !o.away.Load() {
		return o.Driver.Renew(ctx, leases)
	}
	errs := make([]error, len(leases))
	for i := range errs {
		errs[i] = errAway
	}
	return errs
}

func (o *outage) Release(ctx context.Context, l driver.Lease) error {
	if o.away.Load() {
		return errAway
	}
	return o.Driver.Release(ctx, l)
}

// What does the program do while the store is away?
func Example_outage() {
	store := &outage{Driver: memdriver.New()}
	locks := holdfast.Open(store)
	defer locks.Close()

	store.away.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := locks.Mutex("order:42").Lease(ctx)
	fmt.Println("waits as long as it may:", errors.Is(err, context.DeadlineExceeded))
	fmt.Println("and says what for:", errors.Is(err, errAway))

	store.away.Store(false)
	fmt.Println("and then goes on:", Ship(context.Background(), locks, "42"))
	// Output:
	// waits as long as it may: true
	// and says what for: true
	// and then goes on: <nil>
}
