package order_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/getset"
	"github.com/holdfast-go/holdfast/driver/setnx"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// A third of the TTL, after which a waiter asks again elsewhere, is a long time for nothing
// where nobody tells of a release.
func TestWaiterGetsTheLockSoonAfterItsRelease(t *testing.T) {
	for name, store := range map[string]func(redis.UniversalClient) driver.Driver{
		"setnx":  func(rdb redis.UniversalClient) driver.Driver { return setnx.New(rdb) },
		"getset": func(rdb redis.UniversalClient) driver.Driver { return getset.New(rdb) },
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
				holder, waiter := holdfast.Open(store(s.Client(t))), holdfast.Open(store(s.Client(t)))
				defer func() { require.NoError(t, errors.Join(holder.Close(), waiter.Close())) }()
				held, err := holder.Mutex("a").Lease(t.Context())
				require.NoError(t, err)
				free := make(chan time.Time)
				go func() {
					time.Sleep(10 * time.Second)
					_ = held.Release(t.Context())
					free <- time.Now()
				}()
				lease, err := waiter.Mutex("a").Lease(t.Context())
				require.NoError(t, err)
				require.Less(t, time.Since(<-free), 200*time.Millisecond)
				require.NoError(t, lease.Release(t.Context()))
			})
		})
	}
}
