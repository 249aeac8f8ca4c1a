package redisdriver_test

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// through is a hook that lets all through. A hook of a test, for a network, a server or a user's own hook,
// embeds it and does something else in one place.
type through struct{}

func (through) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (through) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (through) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// procedure is what a command of the driver is called, "" if it is none of its.
func procedure(cmd redis.Cmder) string {
	c, ok := cmd.(interface {
		Procedure() (string, context.Context)
	})
	if !ok {
		return ""
	}
	name, _ := c.Procedure()
	return name
}

// answer answers a command of the driver.
func answer(cmd redis.Cmder, v any) { cmd.(interface{ SetVal(any) }).SetVal(v) }

// refuse answers a command with an error.
func refuse(cmd redis.Cmder, err error) error {
	cmd.SetErr(err)
	return err
}

// serverError is what a server has answered.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}
