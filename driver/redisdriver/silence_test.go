package redisdriver_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver/redisdriver"
)

// go-redis may have counted one connection less than none, for a moment.
func TestNumberOfIdleConnectionsIsNoLessThanNone(t *testing.T) {
	require.Equal(t, 10, redisdriver.IdleConns(10))
	require.Zero(t, redisdriver.IdleConns(math.MaxUint32))
}
