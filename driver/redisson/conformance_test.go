package redisson_test

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/drivertest"
	"github.com/holdfast-go/holdfast/driver/internal/foreigntest"
	"github.com/holdfast-go/holdfast/driver/redisson"
)

// retention is that of tokens that were given up.
const retention = time.Minute

var protocol = foreigntest.Protocol{
	New: func(rdb redis.UniversalClient, prefix string) driver.Driver {
		return redisson.New(rdb, redisson.WithPrefix(prefix))
	},
	Abilities: []drivertest.Ability{drivertest.Inspect, drivertest.List, drivertest.Whose, drivertest.Force, drivertest.Owner, drivertest.RWMutex},
	RWMutex:   true,
	Owners:    []string{"", "o"},
	Hold: func(ctx context.Context, rdb *redis.Client, name string, left time.Duration) error {
		if err := rdb.HSet(ctx, name, "another", 1).Err(); err != nil || left == 0 {
			return err
		}
		return rdb.PExpire(ctx, name, left).Err()
	},
	Endless: true,
	Shown:   regexp.MustCompile(`^another$`),
	Slack:   time.Millisecond,
	Left: func(ctx context.Context, rdb *redis.Client, name string) (time.Duration, error) {
		return rdb.PTTL(ctx, name).Result()
	},
	Spoil: func(ctx context.Context, rdb *redis.Client, name string) error {
		return rdb.Set(ctx, name, "redlock", 0).Err()
	},
	Resemble: func(ctx context.Context, rdb *redis.Client, name string) error {
		return rdb.HSet(ctx, name, "colour", "red").Err()
	},
	Scripts: redisson.ScriptParts(),
}

func TestConformance(t *testing.T)              { protocol.Conformance(t) }
func TestConformanceInVirtualTime(t *testing.T) { protocol.ConformanceInVirtualTime(t) }
func TestProtocol(t *testing.T)                 { protocol.Run(t) }
