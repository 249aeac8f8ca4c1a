package httpfence_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/httpfence"
)

// Whatever the header says, it is refused, or has fences that make sense and that the next
// server understands in the same way.
func FuzzHeader(f *testing.F) {
	for _, header := range []string{
		"name=orders%3A42;fence=1795362000123456;kind=mutex", "name=prices;fence=3;kind=rwmutex;shared",
		"name=a;fence=1;kind=mutex, name=b;fence=2;kind=semaphore;shared", "name=%00%ff+%2C%3B;fence=1;kind=mutex",
		"", ",", ";", "name=a", "name=a;fence=0;kind=mutex", "name=a;fence=9223372036854775808;kind=mutex",
		"name=%zz;fence=1;kind=mutex", "name=a;fence=1;kind=mutex;shared", "name=a;name=b;fence=1;kind=mutex",
		"name=a;fence=+1;kind=mutex;shared=1", "name=a;fence=1;kind=mutex;new=thing", "name==;fence=1;kind=mutex",
	} {
		f.Add(header, "name=x;fence=5;kind=mutex")
	}
	f.Fuzz(func(t *testing.T, line1, line2 string) {
		r := httptest.NewRequest(http.MethodPut, "/", nil)
		r.Header[httpfence.Header] = []string{line1, line2} // a server would refuse some of it before
		var fences []fence.Fence
		var again []string
		seen := httpfence.Memory{}
		w := httptest.NewRecorder()
		httpfence.Handler(seen.Check, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			var err error
			fences, err = fence.Of(r.Context())
			require.NoError(t, err)
			require.NotEmpty(t, fences)
			for _, f := range fences {
				require.Positive(t, f.Number)
				require.NotEmpty(t, f.Name)
				require.LessOrEqual(t, len(f.Name), driver.MaxName)
			}
			forward := httptest.NewRequestWithContext(r.Context(), http.MethodPut, "/", nil)
			_, err = httpfence.Transport(direct{http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				again = r.Header.Values(httpfence.Header)
			})}).RoundTrip(forward)
			require.NoError(t, err)
		})).ServeHTTP(w, r)
		switch w.Code {
		case http.StatusOK:
			require.Len(t, again, len(fences))
		case http.StatusBadRequest, http.StatusConflict: // a lock that stands there twice may be stale
			require.Empty(t, fences)
			return
		default:
			t.Fatalf("answered %d", w.Code)
		}

		same := httptest.NewRequest(http.MethodPut, "/", nil)
		same.Header[httpfence.Header] = again
		w = httptest.NewRecorder()
		httpfence.Handler(nil, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			got, err := fence.Of(r.Context())
			require.NoError(t, err)
			require.ElementsMatch(t, fences, got)
		})).ServeHTTP(w, same)
		require.Equal(t, http.StatusOK, w.Code)
	})
}
