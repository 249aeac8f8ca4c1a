package getset_test

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/drivertest"
	"github.com/holdfast-go/holdfast/driver/getset"
	"github.com/holdfast-go/holdfast/driver/internal/foreigntest"
)

// retention is that of tokens that were given up.
const retention = time.Minute

var protocol = foreigntest.Protocol{
	New: func(rdb redis.UniversalClient, prefix string) driver.Driver {
		return getset.New(rdb, getset.WithPrefix(prefix))
	},
	Abilities: []drivertest.Ability{drivertest.Inspect, drivertest.List, drivertest.Whose},
	Owners:    []string{""},
	Hold: func(ctx context.Context, rdb *redis.Client, name string, left time.Duration) error {
		ends := time.Now().Add(left).UnixMilli()
		if left > driver.MaxTTL {
			ends = 9_999_999_999_999_999 // the largest that is understood
		}
		return rdb.Set(ctx, name, ends, 0).Err()
	},
	Shown: regexp.MustCompile(`^\d+$`),
	Slack: time.Second,
	Poll:  100 * time.Millisecond,
	Left: func(ctx context.Context, rdb *redis.Client, name string) (time.Duration, error) {
		ends, err := rdb.Get(ctx, name).Int64()
		if err != nil {
			return 0, err
		}
		kept, err := rdb.PTTL(ctx, name).Result()
		return min(time.Until(time.UnixMilli(ends)), kept), err
	},
	Spoil: func(ctx context.Context, rdb *redis.Client, name string) error {
		return rdb.HSet(ctx, name, "redisson", 1).Err()
	},
	Resemble: func(ctx context.Context, rdb *redis.Client, name string) error {
		return rdb.Set(ctx, name, "a token", 0).Err()
	},
	Scripts: [][]string{{"acquire"}, {"renew"}, {"release"}, {"inspect"}},
}

func TestConformance(t *testing.T)              { protocol.Conformance(t) }
func TestConformanceInVirtualTime(t *testing.T) { protocol.ConformanceInVirtualTime(t) }
func TestProtocol(t *testing.T)                 { protocol.Run(t) }
