package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
)

// A value that is costly to compute is computed by one process, while the others wait for it.
func Example_singleFlight() {
	rdb, disconnect := connect()
	defer disconnect()
	locks := holdfast.New(rdb)
	defer locks.Close()

	price := func(ctx context.Context, item string) (value string, err error) {
		value, err = rdb.Get(ctx, "price:"+item).Result()
		if !errors.Is(err, redis.Nil) {
			return value, err
		}
		err = locks.Mutex("price:"+item).Do(ctx, func(ctx context.Context) error {
			value, err = rdb.Get(ctx, "price:"+item).Result() // another may have been here
			if !errors.Is(err, redis.Nil) {
				return err
			}
			fmt.Println("compute the price of", item)
			value = "42"
			return rdb.Set(ctx, "price:"+item, value, time.Minute).Err()
		})
		return value, err
	}

	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if value, err := price(context.Background(), "tea"); value != "42" {
				fmt.Println(value, err)
			}
		})
	}
	wg.Wait()
	// Output: compute the price of tea
}

// Each replica has a timer, but the job runs once a day. The name of the lock has the day in
// it, so clocks of replicas may differ. Detach leaves the lock with the store for the rest of
// its TTL, even if this program ends. If the job crashes, nobody runs it again that day.
func Example_jobOncePerDay() {
	rdb, disconnect := connect()
	defer disconnect()

	report := func(ctx context.Context, replica, day string) error {
		locks := holdfast.New(rdb)
		defer locks.Close()
		lease, err := locks.Mutex("report:"+day, holdfast.WithTTL(20*time.Hour), holdfast.WithoutRenewal()).TryLease(ctx)
		if errors.Is(err, holdfast.ErrLocked) {
			fmt.Println(replica, "has nothing to do")
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Println(replica, "writes the report of", day)
		_, err = lease.Detach(ctx)
		return err
	}

	for _, replica := range []string{"a", "b", "c"} {
		if err := report(context.Background(), replica, "2026-11-22"); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// a writes the report of 2026-11-22
	// b has nothing to do
	// c has nothing to do
}

// A request gets its turn within 2 s, or is told that the order is busy.
func Example_httpHandler() {
	rdb, disconnect := connect()
	defer disconnect()
	locks := holdfast.New(rdb)
	defer locks.Close()

	ship := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		order := locks.Mutex("order:"+r.URL.Query().Get("id"), holdfast.WithWait(2*time.Second))
		err := order.Do(r.Context(), func(ctx context.Context) error {
			_, err := fmt.Fprintln(w, "shipped") // pass ctx on to all that is written
			return err
		})
		switch {
		case errors.Is(err, holdfast.ErrLocked):
			w.Header().Set("Retry-After", "2")
			http.Error(w, "somebody works on that order", http.StatusConflict)
		case err != nil:
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		}
	})

	server := httptest.NewServer(ship)
	defer server.Close()
	response, err := http.Get(server.URL + "?id=42")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	fmt.Println(response.Status)
	// Output: 200 OK
}

// However many processes there are, two reports are made at a time.
func Example_workers() {
	rdb, disconnect := connect()
	defer disconnect()

	var running, most atomic.Int64
	var wg sync.WaitGroup
	for range 3 { // each like a process
		wg.Go(func() {
			locks := holdfast.New(rdb)
			defer locks.Close()
			reports := locks.Semaphore("reports", 2)
			for range 4 {
				err := reports.Do(context.Background(), 1, func(context.Context) error {
					n := running.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					time.Sleep(time.Millisecond)
					running.Add(-1)
					return nil
				})
				if err != nil {
					fmt.Println(err)
				}
			}
		})
	}
	wg.Wait()
	fmt.Println("more than two at a time:", most.Load() > 2)
	// Output: more than two at a time: false
}
