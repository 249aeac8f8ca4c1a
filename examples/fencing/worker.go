//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence/httpfence"
)

// work adds to the balance, under a lock.
func work(ctx context.Context, name, amount, addr, url string) error {
	add, err := strconv.Atoi(amount)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	locks := holdfast.New(rdb, holdfast.WithTTL(time.Second))
	defer locks.Close()
	client := &http.Client{Transport: httpfence.Transport(fateful{name})}

	lease, err := locks.Mutex("account:7").Lease(ctx)
	if err != nil {
		return err
	}
	defer lease.Release(ctx)
	fmt.Println(name, "has the lock, with fence", lease.Fence())
	// A program would use lease.Context(), which ends when the lease is known to be lost. The
	// request is on its way by then; without the cancellation one can see what becomes of it.
	ctx = context.WithoutCancel(lease.Context())
	_, text, err := call(ctx, client, http.MethodGet, url)
	if err != nil {
		return err
	}
	balance, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("the balance is %q", text)
	}
	fmt.Println(name, "reads", balance)
	status, text, err := call(ctx, client, http.MethodPut, url+"?balance="+strconv.Itoa(balance+add))
	if err != nil {
		return err
	}
	fmt.Println(name, "is told:", status, text)
	return nil
}

// fateful is the network: it has a worker wait when it writes, after all its own checks.
type fateful struct{ name string }

func (f fateful) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPut {
		fmt.Println(f.name, "sends", r.URL.RequestURI())
		bufio.NewScanner(os.Stdin).Scan()
	}
	return http.DefaultTransport.RoundTrip(r)
}

func call(ctx context.Context, client *http.Client, method, url string) (status, body string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return "", "", err
	}
	answer, err := client.Do(r)
	if err != nil {
		return "", "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.Status, strings.TrimSpace(string(text)), err
}
