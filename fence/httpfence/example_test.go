package httpfence_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/httpfence"
)

// The client sends the fences of its leases, and the server refuses those that are out of date.
func Example() {
	var seen httpfence.Memory
	server := httptest.NewServer(httpfence.Handler(seen.Check, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	defer server.Close()
	client := &http.Client{Transport: httpfence.Transport(nil)}
	put := func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		fmt.Println(response.Status)
		return response.Body.Close()
	}

	locks := holdfast.Open(memdriver.New())
	defer locks.Close()
	mu := locks.Mutex("orders:42")
	var late context.Context
	err := mu.Do(context.Background(), func(ctx context.Context) error {
		fences, err := fence.Of(ctx)
		late = fence.With(context.Background(), fences...) // it does not hear of its loss, as if paused
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	if err := mu.Do(context.Background(), put); err != nil {
		fmt.Println(err)
	}
	if err := put(late); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 200 OK
	// 409 Conflict
}

// A store that checks fences when it is written to needs no memory in the server.
func ExampleRefused() {
	store := func(ctx context.Context) error { return fmt.Errorf("orders: %w", fence.ErrStale) } // sqlfence, redisfence
	update := httpfence.Handler(nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := store(r.Context()); !httpfence.Refused(w, err) && err != nil {
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		}
	}))
	w := httptest.NewRecorder()
	update.ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/orders/42", nil))
	fmt.Println(w.Code)
	// Output: 409
}
