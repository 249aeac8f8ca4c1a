//go:build unix

package httpfence_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/httpfence"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func init() { redistest.RegisterChild("writer", writer) }

// writer is a program that takes a lock and puts each line that it reads. Its process must not
// know that the lease is over, as if it had been paused after it looked: the context has the
// fence alone.
func writer() {
	rdb := redis.NewClient(&redis.Options{Network: os.Getenv("REDIS_NETWORK"), Addr: os.Getenv("REDIS_ADDR")})
	locks := holdfast.New(rdb, holdfast.WithPrefix(os.Getenv("REDIS_PREFIX")), holdfast.WithTTL(3*time.Second))
	lease, err := locks.Mutex("x").Lease(context.Background())
	if err != nil {
		panic(err)
	}
	fences, err := fence.Of(lease.Context())
	if err != nil {
		panic(err)
	}
	ctx := fence.With(context.Background(), fences...)
	client := &http.Client{Transport: httpfence.Transport(nil)}
	fmt.Println("leased")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		status, err := send(ctx, client, os.Getenv("URL"), in.Text())
		fmt.Println("wrote", status, err)
	}
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

			s := redistest.Shared(t)
			locks := holdfast.New(s.Client(t), holdfast.WithPrefix(s.Prefix()))
			t.Cleanup(func() { assert.NoError(t, locks.Close()) })
			p := redistest.Child(t, "writer", "URL="+server.URL,
				"REDIS_NETWORK="+s.Network(), "REDIS_ADDR="+s.Addr(), "REDIS_PREFIX="+s.Prefix())
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
			require.Equal(t, "wrote 200 <nil>", heard())
			require.Equal(t, "in time", stored.Load())

			require.NoError(t, p.Signal(syscall.SIGSTOP))
			require.NoError(t, locks.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
				_, err := send(ctx, client, server.URL, "of the next")
				return err
			}))
			require.Equal(t, "of the next", stored.Load())
			say("too late") // is read when it goes on
			require.NoError(t, p.Signal(syscall.SIGCONT))
			if guard {
				assert.Equal(t, "wrote 409 <nil>", heard())
				assert.Equal(t, "of the next", stored.Load())
			} else {
				assert.Equal(t, "wrote 200 <nil>", heard())
				assert.Equal(t, "too late", stored.Load(), "without the guard the write lands")
			}
		})
	}
}
