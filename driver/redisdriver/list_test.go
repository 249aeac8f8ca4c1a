package redisdriver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// listed returns the locks that List names, in order.
func listed(t *testing.T, d *redisdriver.Driver, prefix string) []string {
	t.Helper()
	var names []string
	require.NoError(t, d.List(t.Context(), prefix, func(k driver.Kind, name string) error {
		names = append(names, string(k)+" "+name)
		return nil
	}))
	slices.Sort(names)
	return names
}

// take has a lock of that kind taken.
func take(t *testing.T, d *redisdriver.Driver, k driver.Kind, name string) {
	t.Helper()
	r := &driver.Request{Kind: k, Name: name, Holder: "test", Ask: 1, TTL: time.Minute}
	if k == driver.Semaphore {
		r.Weight, r.Limit = 1, 3
	}
	r.Token = fmt.Sprintf("%x", k+driver.Kind(name))
	g, err := d.Acquire(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, driver.Granted, g.Status)
}

func TestListNamesTheLocksOfOnePrefixAndNoOtherKeys(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		d := redisdriver.New(rdb, redisdriver.WithPrefix(s.Prefix()+"[a]*"))
		other := redisdriver.New(rdb, redisdriver.WithPrefix(s.Prefix()+"ab"))
		t.Cleanup(func() { require.NoError(t, errors.Join(d.Close(), other.Close())) })
		require.Empty(t, listed(t, d, ""))
		take(t, d, driver.Mutex, "orders:1")
		take(t, d, driver.RWMutex, "orders:1")
		take(t, d, driver.Semaphore, "orders*:2")
		take(t, d, driver.Mutex, "x:orders")
		take(t, other, driver.Mutex, "of another prefix")
		require.NoError(t, rdb.Set(t.Context(), s.Prefix()+"[a]*:2:wake:orders", 1, time.Minute).Err())

		require.Equal(t, []string{"mutex orders:1", "mutex x:orders", "rwmutex orders:1", "semaphore orders*:2"}, listed(t, d, ""))
		require.Equal(t, []string{"mutex orders:1", "rwmutex orders:1", "semaphore orders*:2"}, listed(t, d, "orders"))
		require.Equal(t, []string{"semaphore orders*:2"}, listed(t, d, "orders*"))
		require.Equal(t, []string{"mutex of another prefix"}, listed(t, other, ""))

		enough := errors.New("enough")
		calls := 0
		err := d.List(t.Context(), "", func(driver.Kind, string) error { calls++; return enough })
		require.ErrorIs(t, err, enough)
		require.Equal(t, 1, calls)
	})
}

func TestListAsksEveryMasterOfACluster(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t)
	d := redisdriver.New(c.Client(t))
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	var want []string
	for i := range 100 {
		name := fmt.Sprintf("lock %03d", i)
		take(t, d, driver.Mutex, name)
		want = append(want, "mutex "+name)
	}
	require.Equal(t, want, listed(t, d, ""))

	// The masters answer at the same time, but after an error of f nobody calls it again.
	enough := errors.New("enough")
	calls := 0
	err := d.List(t.Context(), "", func(driver.Kind, string) error { calls++; return enough })
	require.ErrorIs(t, err, enough)
	require.Equal(t, 1, calls)

	// The test would prove nothing if one node had all.
	require.NoError(t, c.Client(t).ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		n, err := node.DBSize(ctx).Result()
		if err == nil && n == 100 {
			err = errors.New("one master has all locks")
		}
		return err
	}))
}
