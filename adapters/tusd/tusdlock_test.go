package tusdlock_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tus/tusd/v2/pkg/filestore"
	"github.com/tus/tusd/v2/pkg/handler"

	"github.com/holdfast-go/holdfast"
	tusdlock "github.com/holdfast-go/holdfast/adapters/tusd"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// each runs body for lockers of two servers that share a store.
func each(t *testing.T, body func(t *testing.T, one, two *tusdlock.Locker)) {
	t.Run("memory", func(t *testing.T) {
		store := memdriver.New()
		body(t, lockerOf(t, holdfast.Open(store)), lockerOf(t, holdfast.Open(store)))
	})
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		prefix := holdfast.WithPrefix(s.Prefix())
		body(t, lockerOf(t, holdfast.New(s.Client(t), prefix)), lockerOf(t, holdfast.New(s.Client(t), prefix)))
	})
	t.Run("one server", func(t *testing.T) {
		l := lockerOf(t, holdfast.Open(memdriver.New()))
		body(t, l, l)
	})
}

func lockerOf(t *testing.T, locks *holdfast.Client) *tusdlock.Locker {
	t.Cleanup(func() { assert.NoError(t, locks.Close()) })
	return tusdlock.New(locks)
}

func lockOf(t *testing.T, l *tusdlock.Locker) handler.Lock {
	lock, err := l.NewLock("one")
	require.NoError(t, err)
	return lock
}

func never() { panic("must not be called") }

// The next three are tusd's own tests of lockers, from pkg/memorylocker.

func TestLockAndUnlock(t *testing.T) {
	each(t, func(t *testing.T, one, _ *tusdlock.Locker) {
		lock := lockOf(t, one)
		require.NoError(t, lock.Lock(context.Background(), never))
		require.NoError(t, lock.Unlock())
	})
}

func TestTimeout(t *testing.T) {
	each(t, func(t *testing.T, one, two *tusdlock.Locker) {
		asked := make(chan struct{})
		lock1 := lockOf(t, one)
		require.NoError(t, lock1.Lock(context.Background(), func() { close(asked) })) // and goes on
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		require.Equal(t, handler.ErrLockTimeout, lockOf(t, two).Lock(ctx, never))
		ends(t, asked)
		require.NoError(t, lock1.Unlock())
	})
}

func TestRequestUnlock(t *testing.T) {
	each(t, func(t *testing.T, one, two *tusdlock.Locker) {
		var asked atomic.Int32
		lock1 := lockOf(t, one)
		require.NoError(t, lock1.Lock(context.Background(), func() {
			asked.Add(1)
			<-time.After(10 * time.Millisecond)
			assert.NoError(t, lock1.Unlock())
		}))
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		lock2 := lockOf(t, two)
		require.NoError(t, lock2.Lock(ctx, never))
		require.NoError(t, lock2.Unlock())
		require.EqualValues(t, 1, asked.Load())
	})
}

func ends(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatal("it does not end")
	}
}

// server is a tusd that keeps uploads in dir.
func server(t *testing.T, dir string, l *tusdlock.Locker) *httptest.Server {
	composer := handler.NewStoreComposer()
	filestore.New(dir).UseIn(composer)
	l.UseIn(composer)
	h, err := handler.NewHandler(handler.Config{BasePath: "/files/", StoreComposer: composer, GracefulRequestCompletionTimeout: 100 * time.Millisecond})
	require.NoError(t, err)
	s := httptest.NewServer(http.StripPrefix("/files/", h))
	t.Cleanup(s.Close)
	return s
}

func call(t *testing.T, method, url string, body io.Reader, headers ...string) *http.Response {
	r, err := http.NewRequest(method, url, body)
	require.NoError(t, err)
	r.Header.Set("Tus-Resumable", "1.0.0")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	_ = answer.Body.Close()
	return answer
}

// A client has lost its connection, which its server does not know yet. It goes on at the other one.
func TestUploadIsTakenOverByAnotherServer(t *testing.T) {
	each(t, func(t *testing.T, one, two *tusdlock.Locker) {
		dir := t.TempDir()
		a, b := server(t, dir, one), server(t, dir, two)
		made := call(t, "POST", a.URL+"/files/", nil, "Upload-Length", "10")
		require.Equal(t, http.StatusCreated, made.StatusCode)
		location := made.Header.Get("Location")
		id := location[strings.LastIndex(location, "/"):]

		slow, write := io.Pipe()
		first := make(chan struct{})
		go func() {
			defer close(first)
			r, _ := http.NewRequest("PATCH", a.URL+"/files"+id, slow)
			for k, v := range map[string]string{"Tus-Resumable": "1.0.0", "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"} {
				r.Header.Set(k, v)
			}
			if answer, err := http.DefaultClient.Do(r); err == nil {
				_ = answer.Body.Close()
			}
		}()
		_, err := write.Write([]byte("hello"))
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond) // for a to be at work; if not, b is simply first

		head := call(t, "HEAD", b.URL+"/files"+id, nil)
		require.Equal(t, http.StatusOK, head.StatusCode)
		offset := head.Header.Get("Upload-Offset")
		rest := map[string]string{"5": "world", "0": "helloworld"}[offset]
		require.NotEmpty(t, rest, "offset %q", offset)
		patched := call(t, "PATCH", b.URL+"/files"+id, strings.NewReader(rest), "Upload-Offset", offset, "Content-Type", "application/offset+octet-stream")
		require.Equal(t, http.StatusNoContent, patched.StatusCode)
		require.Equal(t, "10", patched.Header.Get("Upload-Offset"))
		_ = write.Close()
		ends(t, first)
	})
}
