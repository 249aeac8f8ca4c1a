package redisdriver_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// BenchmarkReadersAmongOthers measures what it costs the server to let a reader in and
// out again where 10, 1,000 and 10,000 others read. The three take turns.
func BenchmarkReadersAmongOthers(b *testing.B) {
	s := redistest.Real(b)
	rdb := s.Client(b)
	d := redisdriver.New(rdb, redisdriver.WithPrefix(s.Prefix()))
	defer d.Close()
	crowds := []int{10, 1_000, 10_000}
	for _, n := range crowds {
		for i := range n {
			acquire(b, d, reader(fmt.Sprint("crowd", n), fmt.Sprint("t", i)))
		}
	}
	const turn = 100
	costs := make([][]float64, len(crowds))
	b.ResetTimer()
	for t := range (b.N + turn - 1) / turn {
		for c, n := range crowds {
			before := scriptTime(b, rdb)
			for i := range turn {
				r := reader(fmt.Sprint("crowd", n), fmt.Sprint("visitor", t, "-", i))
				acquire(b, d, r)
				release(b, d, r)
			}
			costs[c] = append(costs[c], float64(scriptTime(b, rdb)-before)/turn)
		}
	}
	b.StopTimer()
	b.ReportMetric(0, "ns/op")
	for c, n := range crowds {
		slices.Sort(costs[c])
		costs[c][0] = costs[c][len(costs[c])/2]
		b.ReportMetric(costs[c][0], fmt.Sprintf("server-us/%d", n))
	}
	b.ReportMetric(costs[2][0]/costs[0][0], "x-of-10")
}

// BenchmarkWriterReleasesToReaders measures for how long the server does nothing else
// when a writer lets 10,000 readers in, at most: the longest of the scripts.
func BenchmarkWriterReleasesToReaders(b *testing.B) {
	const crowd = 10_000
	s := redistest.Real(b)
	rdb := s.Client(b)
	d := redisdriver.New(rdb, redisdriver.WithPrefix(s.Prefix()))
	defer d.Close()
	var longest, all []float64
	for n := range min(b.N, 5) {
		name := fmt.Sprint("herd", n)
		w := reader(name, "writer")
		w.Shared = false
		acquire(b, d, w)
		for i := range crowd {
			r := reader(name, fmt.Sprint("t", i))
			r.Wait, r.Wake = true, func(driver.Grant) {}
			acquire(b, d, r)
		}
		require.NoError(b, rdb.ConfigSet(context.Background(), "slowlog-max-len", "1000").Err())
		require.NoError(b, rdb.ConfigSet(context.Background(), "slowlog-log-slower-than", "200").Err())
		require.NoError(b, rdb.Do(context.Background(), "slowlog", "reset").Err())
		release(b, d, w)
		l, a := slowest(b, rdb)
		longest, all = append(longest, l), append(all, a)
		require.NoError(b, rdb.Del(context.Background(), s.Prefix()+":2:rwmutex:"+name).Err())
	}
	slices.Sort(longest)
	slices.Sort(all)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(longest[len(longest)/2], "longest-us")
	b.ReportMetric(all[len(all)/2], "all-us")
}

func reader(name, token string) *driver.Request {
	return &driver.Request{Kind: driver.RWMutex, Name: name, Token: token, Shared: true, TTL: 10 * time.Minute, Ask: 1, Holder: "web-3:4711"}
}

func acquire(b *testing.B, d *redisdriver.Driver, r *driver.Request) {
	_, err := d.Acquire(context.Background(), r)
	require.NoError(b, err)
}

func release(b *testing.B, d *redisdriver.Driver, r *driver.Request) {
	require.NoError(b, d.Release(context.Background(), driver.Lease{Kind: r.Kind, Name: r.Name, Token: r.Token, TTL: r.TTL}))
}

var evalshaTime = regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=(\d+)`)

// scriptTime is how long the server has run scripts, in us.
func scriptTime(b *testing.B, rdb *redis.Client) int64 {
	info, err := rdb.Info(context.Background(), "commandstats").Result()
	require.NoError(b, err)
	m := evalshaTime.FindStringSubmatch(info)
	require.NotNil(b, m, info)
	us, err := strconv.ParseInt(m[1], 10, 64)
	require.NoError(b, err)
	return us
}

// slowest returns the time of the longest script in the slow log, and of all, in us.
func slowest(b *testing.B, rdb *redis.Client) (longest, all float64) {
	log, err := rdb.SlowLogGet(context.Background(), 1000).Result()
	require.NoError(b, err)
	for _, e := range log {
		if e.Args[0] == "evalsha" || e.Args[0] == "eval" {
			longest, all = max(longest, float64(e.Duration.Microseconds())), all+float64(e.Duration.Microseconds())
		}
	}
	return longest, all
}
