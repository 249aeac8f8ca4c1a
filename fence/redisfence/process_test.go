//go:build unix

package redisfence_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/redisfence"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func init() { redistest.RegisterChild("writer", writer) }

// writer is a program that takes a lock and writes each line that it reads. Its process must not
// know that the lease is over, as if it had been paused after it looked: the context has the
// fence alone.
func writer() {
	rdb := redis.NewClient(&redis.Options{Network: os.Getenv("REDIS_NETWORK"), Addr: os.Getenv("REDIS_ADDR")})
	if os.Getenv("GUARD") != "" {
		rdb.AddHook(redisfence.Hook())
	}
	prefix := os.Getenv("REDIS_PREFIX")
	locks := holdfast.New(rdb, holdfast.WithPrefix(prefix), holdfast.WithTTL(3*time.Second))
	lease, err := locks.Mutex(prefix).Lease(context.Background())
	if err != nil {
		panic(err)
	}
	fences, err := fence.Of(lease.Context())
	if err != nil {
		panic(err)
	}
	ctx := fence.With(context.Background(), fences...)
	fmt.Println("leased")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println("wrote", rdb.Set(ctx, prefix+":value", in.Text(), time.Minute).Err())
	}
}

func TestProcessThatWasSuspendedIsRefused(t *testing.T) {
	for _, guard := range []bool{false, true} {
		t.Run(fmt.Sprint("guarded ", guard), func(t *testing.T) {
			s := redistest.Shared(t)
			rdb, key := guarded(t, s), s.Prefix()+":value"
			locks := holdfast.New(rdb, holdfast.WithPrefix(s.Prefix()))
			t.Cleanup(func() { assert.NoError(t, locks.Close()) })
			env := []string{"REDIS_NETWORK=" + s.Network(), "REDIS_ADDR=" + s.Addr(), "REDIS_PREFIX=" + s.Prefix()}
			if guard {
				env = append(env, "GUARD=1")
			}
			p := redistest.Child(t, "writer", env...)
			say := func(line string) { _, err := fmt.Fprintln(p.Stdin(), line); require.NoError(t, err) }
			heard := func() string {
				select {
				case line := <-p.Lines():
					return line
				case <-time.After(20 * time.Second):
					t.Fatal("the process says nothing")
					return ""
				}
			}
			require.Equal(t, "leased", heard())
			say("in time")
			require.Equal(t, "wrote <nil>", heard())

			require.NoError(t, p.Signal(syscall.SIGSTOP))
			require.NoError(t, locks.Mutex(s.Prefix()).Do(t.Context(), func(ctx context.Context) error {
				return rdb.Set(ctx, key, "of the next", time.Minute).Err()
			}))
			say("too late") // is read when it goes on
			require.NoError(t, p.Signal(syscall.SIGCONT))
			answer := heard()
			if guard {
				assert.True(t, strings.HasPrefix(answer, "wrote holdfast: stale fence"), answer)
				assert.Equal(t, "of the next", rdb.Get(t.Context(), key).Val())
			} else {
				assert.Equal(t, "wrote <nil>", answer)
				assert.Equal(t, "too late", rdb.Get(t.Context(), key).Val(), "without the guard the write lands")
			}
		})
	}
}
