package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"
)

// Environment variables for what is the same in all calls.
const (
	redisEnv  = "HOLDFAST_REDIS"
	prefixEnv = "HOLDFAST_PREFIX"
)

// connectTimeout bounds the first question to Redis. Later ones may take longer:
// a Redis that has answered once is waited for.
const connectTimeout = 5 * time.Second

func prefixFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "prefix", Value: "holdfast", Usage: "`TEXT` that keys in Redis begin with, as in holdfast.WithPrefix",
		Sources: cli.EnvVars(prefixEnv), Local: true, Validator: notEmpty,
	}
}

func notEmpty(s string) error {
	if s == "" {
		return errors.New("must not be empty")
	}
	return nil
}

// connect returns a client of the Redis at rawURL that has answered.
func connect(ctx context.Context, rawURL string) (*redis.Client, error) {
	o, err := redis.ParseURL(rawURL)
	if _, ok := errors.AsType[*url.Error](err); ok {
		// It quotes the URL, and with it the password.
		err = errors.New("not a URL")
	}
	if err != nil {
		return nil, usage(fmt.Errorf("--redis: %w; want redis://user:password@host:port/db", err))
	}
	// It logs each failed attempt. The error says it once.
	redis.SetLogger(&silence{})
	// So that --timeout and Ctrl-C end a command that Redis does not answer.
	o.ContextTimeoutEnabled = true
	rdb := redis.NewClient(o)

	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := rdb.Ping(ctx).Err(); err != nil {
		_ = rdb.Close()
		return nil, &failure{exitUnavailable, fmt.Errorf("no Redis at %s: %w", o.Addr, err)}
	}
	return rdb, nil
}

type silence struct{}

func (*silence) Printf(context.Context, string, ...any) {}

// warnings is the logger given to the library.
func warnings() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
