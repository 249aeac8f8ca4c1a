package redisscript_test

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// answer is an error that a server sent.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

func TestErrorsAreSortedByWhatTheyMean(t *testing.T) {
	var _ redis.Error = answer("")
	for _, c := range []struct {
		err                    error
		transient, notExecuted bool
	}{
		{io.EOF, true, false},
		{&net.OpError{Op: "read", Err: errors.New("connection reset")}, true, false},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, true, true},
		{redis.ErrPoolTimeout, true, true},
		{redis.ErrAutoPipelineQueueFull, true, true},
		{redis.ErrClosed, false, true},
		{errors.New("vetoed by a hook"), false, false},
		{answer("LOADING Redis is loading the dataset in memory"), true, true},
		{answer("READONLY You can't write against a read only replica."), true, true},
		{answer("OOM command not allowed when used memory > 'maxmemory'."), true, true},
		{answer("NOAUTH Authentication required."), false, true},
		{answer("WRONGTYPE Operation against a key holding the wrong kind of value"), false, true},
		{answer("NOPERM this user has no permissions to run the 'hset' command"), false, false},
		{answer("ERR something else"), false, false},
		// As it comes from Redis 6.2, which wraps what happens in a script.
		{answer("ERR Error running script (call to f_0123): @user_script:5: @user_script: 5: -READONLY You can't write against a read only replica. "), true, true},
		{answer("ERR Error running script (call to f_0123): @user_script:5: @user_script: 5: Wrong number of args"), false, false},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			err := redisscript.Classify(c.err)
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.transient, errors.Is(err, driver.ErrTransient), "transient")
			require.Equal(t, c.notExecuted, errors.Is(err, driver.ErrNotExecuted), "not executed")
		})
	}
}
