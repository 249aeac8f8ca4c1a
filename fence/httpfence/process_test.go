//go:build unix

package httpfence_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/httpfence"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/crew"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func init() { crew.Register("writer", writer) }

// writer is a program that must not know that its lease is over, as if it had been paused after it
// looked: the context has the fence alone.
func writer() {
	lab.WriteLate(func(_ *redis.Client, _ string, l *holdfast.Lease) func(string) string {
		fences, err := fence.Of(l.Context())
		if err != nil {
			panic(err)
		}
		ctx := fence.With(context.Background(), fences...)
		client := &http.Client{Transport: httpfence.Transport(nil)}
		return func(text string) string { return fmt.Sprint(send(ctx, client, os.Getenv("URL"), text)) }
	})
}

func send(ctx context.Context, client *http.Client, url, text string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(text))
	if err != nil {
		return 0, err
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

func TestProcessThatWasSuspendedIsRefused(t *testing.T) {
	for _, guard := range []bool{false, true} {
		t.Run(fmt.Sprint("guarded ", guard), func(t *testing.T) {
			var stored atomic.Value
			var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				stored.Store(string(text))
			})
			if guard {
				h = httpfence.Handler(new(httpfence.Memory).Check, h)
			}
			server := httptest.NewServer(h)
			t.Cleanup(server.Close)
			client := &http.Client{Transport: httpfence.Transport(&http.Transport{})}
			t.Cleanup(client.CloseIdleConnections)

			answer := lab.WriteTooLate(t, redistest.Shared(t), "writer", []string{"URL=" + server.URL}, func(ctx context.Context, text string) error {
				_, err := send(ctx, client, server.URL, text)
				return err
			}, func() string { return stored.Load().(string) })
			if guard {
				assert.Equal(t, "409 <nil>", answer)
				assert.Equal(t, "of the next", stored.Load())
			} else {
				assert.Equal(t, "200 <nil>", answer)
				assert.Equal(t, "too late", stored.Load(), "without the guard the write lands")
			}
		})
	}
}
