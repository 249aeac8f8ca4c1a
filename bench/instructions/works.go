package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
)

var works = []work{
	{"mutex: take and give up", queue(driver.Request{Kind: driver.Mutex}, 1, 0)},
	{"mutex: hand over, queue again", queue(driver.Request{Kind: driver.Mutex}, 1, 1)},
	{"mutex: the same, 8 wait", queue(driver.Request{Kind: driver.Mutex}, 1, 8)},
	{"reader: come in and leave, alone", queue(driver.Request{Kind: driver.RWMutex, Shared: true}, 1, 0)},
	{"reader: come in and leave, beside 1", queue(driver.Request{Kind: driver.RWMutex, Shared: true}, 2, 0)},
	{"reader: come in and leave, beside 32", queue(driver.Request{Kind: driver.RWMutex, Shared: true}, 33, 0)},
	{"permit: come in and leave, beside 15", queue(driver.Request{Kind: driver.Semaphore, Limit: 64}, 16, 0)},
	{"permit: hand over 1 of 16, queue again", queue(driver.Request{Kind: driver.Semaphore, Limit: 16}, 16, 8)},
}

// queue returns a work of so many holders and waiters. In a cycle one asks, which waits if anybody
// does, and the one that has held for the longest gives up.
func queue(shape driver.Request, holders, waiters int) func(ctx context.Context, addr string) (func() error, error) {
	return func(ctx context.Context, addr string) (func() error, error) {
		d := redisdriver.New(client(addr))
		granted, asked, released := make(chan struct{}, 1), 0, 0
		token := func(n int) string { return "a-token-of-22-letters-" + strconv.Itoa(n) }
		ask := func() error {
			asked++
			r := shape
			r.Name, r.Token, r.Ask, r.TTL, r.Wait, r.Weight = "lock", token(asked), 1, time.Minute, true, 1
			r.Holder, r.Fences, r.Limit = "host.example.com:4711", 32, max(r.Limit, 1)
			r.Wake = func(g driver.Grant) {
				if g.Status == driver.Granted {
					granted <- struct{}{}
				}
			}
			g, err := d.Acquire(ctx, &r)
			if want := asked <= holders || waiters == 0; err == nil && (g.Status == driver.Granted) != want {
				err = fmt.Errorf("request %d: %v", asked, g.Status)
			}
			return err
		}
		for range holders - 1 + waiters {
			if err := ask(); err != nil {
				return nil, err
			}
		}
		return func() error {
			if err := ask(); err != nil {
				return err
			}
			released++
			err := d.Release(ctx, driver.Lease{Kind: shape.Kind, Name: "lock", Token: token(released), TTL: time.Minute})
			if err == nil && waiters > 0 {
				select {
				case <-granted:
				case <-ctx.Done():
					err = ctx.Err()
				}
			}
			return err
		}, nil
	}
}
