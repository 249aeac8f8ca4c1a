//go:build unix

package redisfence_test

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
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/redisfence"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/crew"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func init() { crew.Register("writer", writer) }

// writer is a program that must not know that its lease is over, as if it had been paused after it
// looked: the context has the fence alone.
func writer() {
	lab.WriteLate(func(rdb *redis.Client, prefix string, l *holdfast.Lease) func(string) string {
		if os.Getenv("GUARD") != "" {
			rdb.AddHook(redisfence.Hook())
		}
		fences, err := fence.Of(l.Context())
		if err != nil {
			panic(err)
		}
		ctx := fence.With(context.Background(), fences...)
		return func(text string) string { return fmt.Sprint(rdb.Set(ctx, prefix+":value", text, time.Minute).Err()) }
	})
}

func TestProcessThatWasSuspendedIsRefused(t *testing.T) {
	for _, guard := range []bool{false, true} {
		t.Run(fmt.Sprint("guarded ", guard), func(t *testing.T) {
			s := redistest.Shared(t)
			rdb, key := guarded(t, s), s.Prefix()+":value"
			var env []string
			if guard {
				env = append(env, "GUARD=1")
			}
			value := func() string { return rdb.Get(t.Context(), key).Val() }
			answer := lab.WriteTooLate(t, s, "writer", env, func(ctx context.Context, text string) error {
				return rdb.Set(ctx, key, text, time.Minute).Err()
			}, value)
			if guard {
				assert.True(t, strings.HasPrefix(answer, "holdfast: stale fence"), answer)
				assert.Equal(t, "of the next", value())
			} else {
				assert.Equal(t, "<nil>", answer)
				assert.Equal(t, "too late", value(), "without the guard the write lands")
			}
		})
	}
}
