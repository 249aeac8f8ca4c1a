package redisscript

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Receive is ReceiveTimeout of ps. A message there may have any form, as behind a proxy that
// answers for the server: go-redis panics, and no program can recover on a goroutine of ours.
func Receive(ctx context.Context, ps *redis.PubSub, timeout time.Duration) (msg any, err error) {
	defer func() {
		if p := recover(); p != nil {
			msg, err = nil, fmt.Errorf("redis: not a message: %v", p)
		}
	}()
	return ps.ReceiveTimeout(ctx, timeout)
}
