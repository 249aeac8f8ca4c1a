//go:build unix

package redishook_test

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
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func init() { redistest.RegisterChild("writer", write) }

// write is a program that takes a lock, and writes under it for each line that it reads,
// without looking whether it still has the lock.
func write() {
	rdb := redis.NewClient(&redis.Options{Network: os.Getenv("WRITER_NETWORK"), Addr: os.Getenv("WRITER_ADDR")})
	if os.Getenv("WRITER_GUARD") != "" {
		rdb.AddHook(holdfast.GuardHook())
	}
	prefix := os.Getenv("WRITER_PREFIX")
	locks := holdfast.New(rdb, holdfast.WithPrefix(prefix), holdfast.WithTTL(3*time.Second))
	lease, err := locks.Mutex("x").Lease(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println("leased")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		// As a program would whose context must not end with the lease.
		ctx := context.WithoutCancel(lease.Context())
		fmt.Println("wrote", rdb.Set(ctx, prefix+":value", in.Text(), time.Minute).Err())
	}
}

// A process that was suspended for longer than its lease lasts, and writes as soon as it
// goes on, writes over what the next holder has written, unless it has the hook.
func TestGuardStopsAProcessThatWasSuspended(t *testing.T) {
	t.Parallel()
	for _, guarded := range []bool{false, true} {
		t.Run(fmt.Sprint("guarded ", guarded), func(t *testing.T) {
			t.Parallel()
			a := lab.NewArena(t, 3*time.Second)
			env := []string{"WRITER_NETWORK=" + a.Server.Network(), "WRITER_ADDR=" + a.Server.Addr(), "WRITER_PREFIX=" + a.Server.Prefix()}
			if guarded {
				env = append(env, "WRITER_GUARD=1")
			}
			writer := redistest.Child(t, "writer", env...)
			say := func(line string) { _, err := fmt.Fprintln(writer.Stdin(), line); require.NoError(t, err) }
			heard := func() string {
				select {
				case line := <-writer.Lines():
					return line
				case <-time.After(lab.Patience):
					t.Fatal("the process says nothing")
					return ""
				}
			}
			value := func() string { return a.Redis.Get(t.Context(), a.Server.Prefix()+":value").Val() }
			require.Equal(t, "leased", heard())
			say("in time")
			require.Equal(t, "wrote <nil>", heard())
			require.Equal(t, "in time", value())

			require.NoError(t, writer.Signal(syscall.SIGSTOP))
			next, err := a.Locks.Mutex("x").Lease(t.Context())
			require.NoError(t, err)
			require.NoError(t, a.Redis.Set(next.Context(), a.Server.Prefix()+":value", "of the next", time.Minute).Err())
			say("too late") // is read when it goes on
			require.NoError(t, writer.Signal(syscall.SIGCONT))
			answer := heard()
			if guarded {
				assert.True(t, strings.HasPrefix(answer, `wrote holdfast: hold mutex "x": lock lost`), answer)
				assert.Equal(t, "of the next", value())
				lab.RequireNoToken(t, answer)
			} else {
				assert.Equal(t, "wrote <nil>", answer)
				assert.Equal(t, "too late", value())
			}
			require.NoError(t, next.Release(t.Context()))
		})
	}
}
