//go:build unix

package redishook_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/crew"
)

func init() { crew.Register("writer", write) }

// write is a program whose context must not end with the lease.
func write() {
	lab.WriteLate(func(rdb *redis.Client, prefix string, l *holdfast.Lease) func(string) string {
		if os.Getenv("WRITER_GUARD") != "" {
			rdb.AddHook(holdfast.GuardHook())
		}
		ctx := context.WithoutCancel(l.Context())
		return func(text string) string { return fmt.Sprint(rdb.Set(ctx, prefix+":value", text, time.Minute).Err()) }
	})
}

// A process that was suspended for longer than its lease lasts, and writes as soon as it
// goes on, writes over what the next holder has written, unless it has the hook.
func TestGuardStopsAProcessThatWasSuspended(t *testing.T) {
	t.Parallel()
	for _, guarded := range []bool{false, true} {
		t.Run(fmt.Sprint("guarded ", guarded), func(t *testing.T) {
			t.Parallel()
			a := lab.NewArena(t, 3*time.Second)
			var env []string
			if guarded {
				env = append(env, "WRITER_GUARD=1")
			}
			key := a.Server.Prefix() + ":value"
			value := func() string { return a.Redis.Get(t.Context(), key).Val() }
			answer := lab.WriteTooLate(t, a.Server, "writer", env, func(ctx context.Context, text string) error {
				return a.Redis.Set(ctx, key, text, time.Minute).Err()
			}, value)
			if guarded {
				assert.Regexp(t, `^holdfast: hold mutex ".*": lock lost`, answer)
				assert.Equal(t, "of the next", value())
				lab.RequireNoToken(t, strings.ReplaceAll(answer, a.Server.Prefix(), ""))
			} else {
				assert.Equal(t, "<nil>", answer)
				assert.Equal(t, "too late", value())
			}
		})
	}
}
