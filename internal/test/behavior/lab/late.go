//go:build unix

package lab

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/crew"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// WriteLate is the work of a process that takes a lock, and then writes what it is told without looking
// whether it still has the lock. writer returns how, and may use rdb for that: the lock does not. What a
// write returns is reported.
func WriteLate(writer func(rdb *redis.Client, prefix string, l *holdfast.Lease) (write func(text string) string)) {
	connect := func() *redis.Client {
		return redis.NewClient(&redis.Options{Network: os.Getenv("LATE_NETWORK"), Addr: os.Getenv("LATE_ADDR")})
	}
	prefix := os.Getenv("LATE_PREFIX")
	locks := holdfast.New(connect(), holdfast.WithPrefix(prefix), holdfast.WithTTL(3*time.Second))
	lease, err := locks.Mutex(prefix).Lease(context.Background())
	if err != nil {
		panic(err)
	}
	write := writer(connect(), prefix, lease)
	crew.Report("leased")
	for text := range crew.Orders[string]() {
		crew.Report(write(text))
	}
}

// WriteTooLate pauses a process, whose role is [WriteLate], for longer than its lease lasts. The next
// holder writes "of the next". The process writes "too late" as soon as it goes on, and WriteTooLate
// returns its report. value returns what was written last.
func WriteTooLate(t *testing.T, s *redistest.Server, role string, env []string, write func(ctx context.Context, text string) error, value func() string) string {
	t.Helper()
	locks := holdfast.New(s.Client(t), holdfast.WithPrefix(s.Prefix()))
	t.Cleanup(func() { require.NoError(t, locks.Close()) })
	p := crew.Start(t, role, append(env, "LATE_NETWORK="+s.Network(), "LATE_ADDR="+s.Addr(), "LATE_PREFIX="+s.Prefix())...)
	require.Equal(t, "leased", crew.Hear[string](p))
	p.Tell("in time")
	answer := crew.Hear[string](p)
	require.Equal(t, "in time", value(), answer)

	p.Pause()
	next, err := locks.Mutex(s.Prefix()).Lease(t.Context())
	require.NoError(t, err)
	require.NoError(t, write(next.Context(), "of the next"))
	require.Equal(t, "of the next", value())
	p.Tell("too late") // is read when it goes on
	p.Resume()
	answer = crew.Hear[string](p)
	require.NoError(t, next.Release(t.Context()))
	return answer
}
