package redisfence_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/httpfence"
	"github.com/holdfast-go/holdfast/fence/redisfence"
)

func ExampleHook() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	rdb.AddHook(redisfence.Hook())
	locks := holdfast.New(rdb)
	defer locks.Close()

	ctx := context.Background()
	mu := locks.Mutex("order:42")
	var late context.Context
	err = mu.Do(ctx, func(ctx context.Context) error {
		fences, err := fence.Of(ctx)
		// The holder does not hear of its loss, as if it was paused.
		late = fence.With(context.Background(), fences...)
		return errors.Join(err, rdb.Set(ctx, "order:42", "paid", 0).Err())
	})
	fmt.Println("first:", err)
	err = mu.Do(ctx, func(ctx context.Context) error { return rdb.Set(ctx, "order:42", "shipped", 0).Err() })
	fmt.Println("second:", err)
	err = rdb.Set(late, "order:42", "cancelled", 0).Err()
	fmt.Println("first, late:", errors.Is(err, fence.ErrStale))
	fmt.Println(rdb.Get(ctx, "order:42").Val())
	// Output:
	// first: <nil>
	// second: <nil>
	// first, late: true
	// shipped
}

// A server remembers the fences of requests in Redis.
func ExampleCheck() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	check := func(ctx context.Context) error { return redisfence.Check(ctx, rdb) }
	handler := httpfence.Handler(check, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

	for _, number := range []int{7, 8, 7} {
		r := httptest.NewRequest("PUT", "/orders/42", nil)
		r.Header.Set(httpfence.Header, fmt.Sprintf("name=order%%3A42;fence=%d;kind=mutex", number))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(number, w.Code)
	}
	// Output:
	// 7 200
	// 8 200
	// 7 409
}
