package redisdriver_test

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func stat(rdb *redis.Client) string {
	ctx := context.Background()
	s := rdb.Info(ctx, "commandstats").Val()
	m := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+),usec_per_call=([\d.]+)`).FindStringSubmatch(s)
	c := regexp.MustCompile(`used_cpu_(sys|user):([\d.]+)`).FindAllStringSubmatch(rdb.Info(ctx, "cpu").Val(), -1)
	return fmt.Sprint(m[1:], " cpu ", c[0][2], " ", c[1][2])
}

func TestZZ(t *testing.T) {
	s := redistest.Real(t)
	rdb := s.Client(t)
	d := redisdriver.New(rdb, redisdriver.WithPrefix("zz"))
	defer d.Close()
	ctx := context.Background()
	const n = 10000
	for round := range 3 {
		rdb.ConfigResetStat(ctx)
		a := rdb.Info(ctx, "cpu").Val()
		_ = a
		fmt.Println("before", regexp.MustCompile(`used_cpu_(sys|user):([\d.]+)`).FindAllString(a, -1))
		st := time.Now()
		for i := range n {
			tok := fmt.Sprint("t", round, "-", i)
			_, err := d.Acquire(ctx, &driver.Request{Kind: driver.Mutex, Name: "x", Token: tok, Ask: 1, TTL: 30 * time.Second, Wait: true, Holder: "host:123", Fences: 1})
			if err != nil { t.Fatal(err) }
			if err := d.Release(ctx, driver.Lease{Kind: driver.Mutex, Name: "x", Token: tok, TTL: 30 * time.Second}); err != nil { t.Fatal(err) }
		}
		fmt.Println("thin", time.Since(st)/n, stat(rdb))
	}
	// contended: a holds, b waits; a releases; b granted; a asks ...
	for range 2 {
		rdb.ConfigResetStat(ctx)
		got := make(chan driver.Grant, 10)
		st := time.Now()
		req := func(tok string, ask uint64) driver.Grant {
			g, err := d.Acquire(ctx, &driver.Request{Kind: driver.Mutex, Name: "y", Token: tok, Ask: ask, TTL: 30 * time.Second, Wait: true, Holder: "host:123", Fences: 1, Wake: func(g driver.Grant) { if g.Status == driver.Granted { got <- g } }})
			if err != nil { t.Fatal(err) }
			return g
		}
		tok := func(i int) string { return fmt.Sprint("c", i, "-", time.Now().UnixNano()) }
		h := tok(0)
		req(h, 1)
		w1 := tok(1); req(w1, 1)
		for i := range n/2 {
			w := tok(i+2)
			if g := req(w, 1); g.Status != driver.Queued { t.Fatal(g) }
			if err := d.Release(ctx, driver.Lease{Kind: driver.Mutex, Name: "y", Token: h, TTL: 30 * time.Second}); err != nil { t.Fatal(err) }
			<-got
			h, w1 = w1, w
		}
		fmt.Println("fat", time.Since(st)/(n/2), stat(rdb))
		d.Release(ctx, driver.Lease{Kind: driver.Mutex, Name: "y", Token: h, TTL: 30 * time.Second})
		d.Release(ctx, driver.Lease{Kind: driver.Mutex, Name: "y", Token: w1, TTL: 30 * time.Second})
	}
	// raw
	rdb.ConfigResetStat(ctx)
	del := redis.NewScript("if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0")
	for range n { rdb.SetNX(ctx, "raw", "tok", 30*time.Second); del.Run(ctx, rdb, []string{"raw"}, "tok") }
	fmt.Println("raw", stat(rdb), regexp.MustCompile(`cmdstat_set:[^\r]*`).FindString(rdb.Info(ctx, "commandstats").Val()))
}
