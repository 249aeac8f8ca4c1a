package setnx_test

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/drivertest"
	"github.com/holdfast-go/holdfast/driver/internal/foreigntest"
	"github.com/holdfast-go/holdfast/driver/setnx"
)

var protocol = foreigntest.Protocol{
	New: func(rdb redis.UniversalClient, prefix string) driver.Driver {
		return setnx.New(rdb, setnx.WithPrefix(prefix))
	},
	Abilities: []drivertest.Ability{drivertest.Inspect, drivertest.List, drivertest.Whose},
	Owners:    []string{""},
	Hold: func(ctx context.Context, rdb *redis.Client, name string, left time.Duration) error {
		return rdb.Set(ctx, name, "another", left).Err()
	},
	Endless: true,
	Shown:   regexp.MustCompile(`^another$`),
	Slack:   time.Millisecond,
	Poll:    100 * time.Millisecond,
	Left: func(ctx context.Context, rdb *redis.Client, name string) (time.Duration, error) {
		return rdb.PTTL(ctx, name).Result()
	},
	Spoil: func(ctx context.Context, rdb *redis.Client, name string) error {
		return rdb.HSet(ctx, name, "redisson", 1).Err()
	},
	Scripts: [][]string{{"acquire"}, {"renew"}, {"release"}, {"inspect"}},
}

func TestConformance(t *testing.T)              { protocol.Conformance(t) }
func TestConformanceInVirtualTime(t *testing.T) { protocol.ConformanceInVirtualTime(t) }
func TestProtocol(t *testing.T)                 { protocol.Run(t) }
