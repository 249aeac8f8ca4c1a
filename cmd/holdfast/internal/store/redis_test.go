package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestOnlyWhereNothingListensThereIsNoRedis(t *testing.T) {
	failed := func(op string, err error) error {
		return fmt.Errorf("holdfast: acquire mutex \"a\": %w", &net.OpError{Op: op, Net: "tcp", Err: err})
	}
	for want, err := range map[string]error{
		`no Redis at h:1: acquire mutex "a": dial tcp: connection refused`:       failed("dial", syscall.ECONNREFUSED),
		`Redis at h:1 does not answer: acquire mutex "a": read tcp: i/o timeout`: failed("read", os.ErrDeadlineExceeded),
		`Redis at h:1: acquire mutex "a": write tcp: connection reset by peer`:   failed("write", syscall.ECONNRESET),
		`Redis at h:1: "a" is full`:                               errors.New(`redisdriver: "a" is full`),
		`Redis at h:1 does not answer: context deadline exceeded`: context.DeadlineExceeded,
	} {
		assert.EqualError(t, explain("Redis at h:1", err), want)
	}
}
