package store

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/getset"
	"github.com/holdfast-go/holdfast/driver/redisson"
	"github.com/holdfast-go/holdfast/driver/setnx"
)

// Form is a form of locks that other programs use, too.
type Form struct {
	Text   string // for people
	open   func(rdb redis.UniversalClient, prefix string) driver.Driver
	Beside string   // what our keys beside those of the locks begin with
	Waits  string   // how a waiter finds out that the lock is free
	Rights []string // the commands that a user must be allowed to call
}

// Forms are what stands before a plus in the URL of a Redis.
var Forms = map[string]*Form{
	"setnx": {
		"SET NX PX", func(rdb redis.UniversalClient, prefix string) driver.Driver {
			return setnx.New(rdb, setnx.WithPrefix(prefix))
		},
		"holdfast:settled:", "asks every 50 to 150 ms", strings.Fields("eval evalsha exists set pttl get pexpire del"),
	},
	"getset": {
		"SETNX and GETSET", func(rdb redis.UniversalClient, prefix string) driver.Driver {
			return getset.New(rdb, getset.WithPrefix(prefix))
		},
		"holdfast:", "asks every 50 to 150 ms", strings.Fields("eval evalsha exists time get set pexpire del"),
	},
	"redisson": {
		"RLock and RReadWriteLock of Redisson", func(rdb redis.UniversalClient, prefix string) driver.Driver {
			return redisson.New(rdb, redisson.WithPrefix(prefix))
		},
		"holdfast:redisson:", "is told, and races with the others", strings.Fields("eval evalsha zscore exists hset pexpire pttl hexists hget hlen hkeys hgetall zrange hdel time zremrangebyscore zadd"),
	},
}

// formOf returns the form that a URL of a store begins with, and the rest, or nil.
func formOf(url string) (*Form, string) {
	name, rest, _ := strings.Cut(url, "+")
	return Forms[name], rest
}

// openForm connects to a Redis whose locks have that form.
func (a *Address) openForm(ctx context.Context, f *Form, url, password string) (*Store, error) {
	scheme, _, _ := strings.Cut(url, "://")
	switch kind, _, _ := strings.Cut(scheme, "+"); kind {
	case "redis", "rediss", "unix":
	default:
		return nil, exit.WrongUsage(errors.New("--store: only the URL of a Redis can follow setnx+, getset+ or redisson+"))
	}
	plain := *a
	plain.URL = url
	s, err := plain.openRedis(ctx, password)
	if err != nil {
		return nil, err
	}
	s.Form, s.Driver = f, f.open(s.Redis, a.Prefix)
	s.Name += ", locks by " + f.Text
	return s, nil
}
