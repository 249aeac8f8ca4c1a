package httpfence_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/httpfence"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/internal/test/seed"
)

func mutex(number int64) fence.Fence {
	return fence.Fence{Kind: driver.Mutex, Name: "x", Number: number}
}

// direct is a RoundTripper that calls a handler.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r.Clone(context.Background())) // no context travels
	return w.Result(), nil
}

// put sends a request with a client that sends fences.
func put(ctx context.Context, t testing.TB, h http.Handler) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://localhost/", strings.NewReader("body"))
	require.NoError(t, err)
	client := &http.Client{Transport: httpfence.Transport(direct{h})}
	answer, err := client.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, answer.Body.Close()) })
	assert.Empty(t, r.Header, "the request of the caller is changed")
	return answer
}

var fine = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	fences, err := fence.Of(r.Context())
	_, _ = fmt.Fprint(w, fences, err)
})

func TestServerRefusesStaleRequests(t *testing.T) {
	var seen httpfence.Memory
	h := httpfence.Handler(seen.Check, fine)
	send := func(f ...fence.Fence) *http.Response { return put(fence.With(t.Context(), f...), t, h) }
	other := mutex(3)
	other.Name = "y"
	assert.Equal(t, http.StatusOK, send(mutex(5)).StatusCode)
	assert.Equal(t, http.StatusOK, send(mutex(5)).StatusCode)
	assert.Equal(t, http.StatusOK, send(mutex(6), other).StatusCode)
	other.Number = 4
	answer := send(mutex(5), other)
	assert.Equal(t, http.StatusConflict, answer.StatusCode)
	assert.Equal(t, "application/problem+json", answer.Header.Get("Content-Type"))
	var problem map[string]any
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&problem))
	assert.Equal(t, "Stale fence", problem["title"])
	assert.Equal(t, 409.0, problem["status"])
	other.Number = 3
	assert.Equal(t, http.StatusOK, send(other).StatusCode, "4 was not recorded")
	assert.Equal(t, http.StatusOK, put(t.Context(), t, h).StatusCode, "there is no lease")
}

func TestReadersAreStaleOnlyAfterALaterWriterAndPermitsNever(t *testing.T) {
	var seen httpfence.Memory
	h := httpfence.Handler(seen.Check, fine)
	send := func(k driver.Kind, number int64, shared bool) int {
		f := fence.Fence{Kind: k, Name: "x", Number: number, Shared: shared}
		return put(fence.With(t.Context(), f), t, h).StatusCode
	}
	assert.Equal(t, 200, send(driver.RWMutex, 3, true))
	assert.Equal(t, 200, send(driver.RWMutex, 2, true))
	assert.Equal(t, 200, send(driver.RWMutex, 4, false))
	assert.Equal(t, 409, send(driver.RWMutex, 3, true))
	assert.Equal(t, 200, send(driver.RWMutex, 6, true))
	assert.Equal(t, 200, send(driver.RWMutex, 5, true))
	assert.Equal(t, 200, send(driver.Semaphore, 2, true))
	assert.Equal(t, 200, send(driver.Semaphore, 1, true))
}

func TestMain(m *testing.M) { redistest.Main(m) }

func init() { seed.Rapid() }

func TestHandlerHasTheFencesInItsContext(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var want []fence.Fence
		for i := range rapid.IntRange(1, 3).Draw(rt, "n") {
			f := fence.Fence{
				Kind:   rapid.SampledFrom([]driver.Kind{driver.Mutex, driver.RWMutex, driver.Semaphore}).Draw(rt, "kind"),
				Name:   string(rapid.SliceOfN(rapid.Byte(), 1, driver.MaxName).Draw(rt, "name")) + fmt.Sprint(i),
				Number: rapid.Int64Min(1).Draw(rt, "number"),
			}
			f.Name = f.Name[max(0, len(f.Name)-driver.MaxName):]
			f.Shared = f.Kind == driver.Semaphore || f.Kind == driver.RWMutex && rapid.Bool().Draw(rt, "shared")
			want = append(want, f)
		}
		ctx := fence.With(t.Context(), want...)
		want, err := fence.Of(ctx)
		require.NoError(rt, err)
		var got []fence.Fence
		answer := put(ctx, t, httpfence.Handler(nil, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			got, err = fence.Of(r.Context())
		})))
		require.NoError(rt, err)
		require.Equal(rt, 200, answer.StatusCode)
		require.Equal(rt, want, got)
	})
}

func TestHeaderMayBeAList(t *testing.T) {
	r := httptest.NewRequest("PUT", "/", nil)
	r.Header.Set("holdfast-fence", "name=orders%3A42; fence=7; kind=mutex, name=p;fence=8;kind=rwmutex;shared;new=1")
	w := httptest.NewRecorder()
	httpfence.Handler(nil, fine).ServeHTTP(w, r)
	assert.Equal(t, "[{mutex orders:42 7 false} {rwmutex p 8 true}] <nil>", w.Body.String())
}

// What a client may hold, its server may read.
func TestRequestMayHaveManyFences(t *testing.T) {
	ctx := t.Context()
	for i := range 1000 {
		ctx = fence.With(ctx, fence.Fence{Kind: driver.Mutex, Name: fmt.Sprint("orders:", i), Number: 1_795_362_000_123_456})
	}
	var seen httpfence.Memory
	assert.Equal(t, 200, put(ctx, t, httpfence.Handler(seen.Check, fine)).StatusCode)
}

func TestMalformedHeaderIsRefused(t *testing.T) {
	for _, header := range []string{
		"", "x", "name=x", "name=x;fence=1", "name=;fence=1;kind=mutex", "name=x;fence=0;kind=mutex", "name=x;fence=-1;kind=mutex",
		"name=x;fence=1e3;kind=mutex", "name=x;fence=9223372036854775808;kind=mutex", "name=x;fence=1;kind=door",
		"name=x;fence=1;fence=2;kind=mutex", "name=%zz;fence=1;kind=mutex", "name=x;fence=1;kind=mutex,",
		"name=x;fence=1;kind=mutex;shared", "name=x;fence=1;kind=semaphore", "name=x;fence=1;kind=rwmutex;shared=0",
		"name=" + strings.Repeat("x", driver.MaxName+1) + ";fence=1;kind=mutex",
	} {
		r := httptest.NewRequest("PUT", "/", nil)
		r.Header.Set(httpfence.Header, header)
		w := httptest.NewRecorder()
		httpfence.Handler(nil, fine).ServeHTTP(w, r)
		assert.Equal(t, http.StatusBadRequest, w.Code, header)
		assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	}
}

func TestStoreThatCannotTellLetsNobodyThrough(t *testing.T) {
	h := httpfence.Handler(func(context.Context) error { return errors.New("secret") }, fine)
	answer := put(fence.With(t.Context(), mutex(5)), t, h)
	assert.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "secret")
}

func TestKnownLossIsNotSent(t *testing.T) {
	locks := holdfast.Open(memdriver.New())
	t.Cleanup(func() { assert.NoError(t, locks.Close()) })
	lease, err := locks.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	ctx := context.WithoutCancel(lease.Context())
	assert.Equal(t, http.StatusOK, put(ctx, t, fine).StatusCode)
	require.NoError(t, lease.Release(t.Context()))
	body := &closing{}
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://localhost/", body)
	require.NoError(t, err)
	_, err = httpfence.Transport(direct{http.NotFoundHandler()}).RoundTrip(r)
	assert.ErrorIs(t, err, holdfast.ErrLost)
	assert.True(t, body.closed)
}

type closing struct {
	strings.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestOnlyAStaleFenceIsAnsweredAsSuch(t *testing.T) {
	w := httptest.NewRecorder()
	assert.False(t, httpfence.Refused(w, errors.New("other")))
	assert.False(t, httpfence.Refused(w, nil))
	assert.True(t, httpfence.Refused(w, fmt.Errorf("update: %w", fence.ErrStale)))
	assert.Equal(t, http.StatusConflict, w.Code)
}
