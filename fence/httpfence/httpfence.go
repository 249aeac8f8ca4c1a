// Package httpfence carries the fences of leases in requests, and has servers refuse requests
// that were sent under a lease that is over.
//
// The client sends them for each request whose context comes from a lease:
//
//	client := &http.Client{Transport: httpfence.Transport(nil)}
//
// The server refuses a request, with the status 409 and a problem of RFC 9457 as its body, if it
// has seen a larger fence of the lock:
//
//	var seen httpfence.Memory // or sqlfence.Check, or redisfence.Check
//	mux.Handle("PUT /orders/{id}", httpfence.Handler(seen.Check, update))
//
// # What it closes
//
// A request that arrives after the request of a later holder is refused before the handler runs.
// But two requests that have passed may overtake each other in their handlers, because a server
// can be paused, too. So the context of the request has the fences, as if the leases were held
// in the server. A store that is guarded by sqlfence or redisfence checks them at the write,
// which closes that gap. The handler answers an error of the store with [Refused]. With such a
// store the handler needs no other memory:
//
//	mux.Handle("PUT /orders/{id}", httpfence.Handler(nil, update)) // update writes with r.Context()
//
// # What it cannot close
//
// A server believes the fences that it is sent. A client that sends a very large one shuts all
// others out, so accept the header only from clients that you trust. The header tells the names
// of locks to every server that the client asks, including after a redirect: use a separate
// client for the servers that should know them. Requests without the header pass.
//
// # Header
//
//	Holdfast-Fence: name=orders%3A42;fence=1795362000123456;kind=mutex
//	Holdfast-Fence: name=prices;fence=1795362000123999;kind=rwmutex;shared
//
// There is a line, or an element of a list with commas, for each lease: the name of the lock in
// percent encoding, the fence, the kind, and shared if others may hold the lock, too. How many
// there may be is a matter of [http.Server].MaxHeaderBytes.
package httpfence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/fence"
)

// Header is the name of the header that has the fences.
const Header = "Holdfast-Fence"

// ErrStale is [fence.ErrStale].
var ErrStale = fence.ErrStale

// Transport returns a RoundTripper that sends the fences of the leases that a request's context
// comes from. If one of these is known to be over, nothing is sent, and the error matches
// holdfast.ErrLost. A nil next is [http.DefaultTransport].
func Transport(next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return transport{next}
}

type transport struct{ next http.RoundTripper }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	fences, err := fence.Of(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // which is promised also if nothing is sent
		}
		return nil, err
	}
	if len(fences) == 0 {
		return t.next.RoundTrip(r)
	}
	r = r.Clone(r.Context()) // the caller's must stay as it is
	r.Header.Del(Header)
	for _, f := range fences {
		r.Header.Add(Header, format(f))
	}
	return t.next.RoundTrip(r)
}

// CloseIdleConnections is called by that of [http.Client].
func (t transport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Handler returns a handler that has next called with the fences of the request in its context,
// if check returns nil for that context. If the error of check matches [fence.ErrStale] the
// answer is 409, otherwise 503; if the header is malformed, 400. A nil check is none.
func Handler(check func(context.Context) error, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lines := r.Header.Values(Header)
		if len(lines) == 0 {
			next.ServeHTTP(w, r)
			return
		}
		fences, err := parse(lines)
		if err != nil {
			problem(w, http.StatusBadRequest, "about:blank", "Malformed "+Header, err.Error())
			return
		}
		ctx := fence.With(r.Context(), fences...)
		if check != nil {
			err = check(ctx)
		}
		switch {
		case err == nil:
			next.ServeHTTP(w, r.WithContext(ctx))
		case !Refused(w, err): // what is wrong is nobody else's business
			problem(w, http.StatusServiceUnavailable, "about:blank", "Fence not checked", "the fence could not be checked")
		}
	})
}

// Refused answers a request with 409 if err matches [fence.ErrStale], and reports whether it has.
func Refused(w http.ResponseWriter, err error) bool {
	if !errors.Is(err, fence.ErrStale) {
		return false
	}
	problem(w, http.StatusConflict, "https://pkg.go.dev/github.com/holdfast-go/holdfast/fence#ErrStale", "Stale fence",
		"another has had the lock since, so the lease is over under which the request was sent")
	return true
}

// problem is that of RFC 9457.
func problem(w http.ResponseWriter, status int, kind, title, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct { // the client is gone if this fails
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{kind, title, status, detail})
}

// Memory remembers fences in this process, for as long as it runs: after a restart no request
// is refused until one of a later holder has come. It keeps an entry for each lock that it has seen.
// The zero value is ready for use.
type Memory struct {
	mu   sync.Mutex
	seen map[string]int64
}

// Check checks and records the fences of the leases that ctx comes from: all of them, or none
// if there is an error.
func (m *Memory) Check(ctx context.Context) error {
	fences, err := fence.Of(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range fences {
		if err := f.Check(m.seen[f.Key()]); err != nil {
			return err
		}
	}
	if m.seen == nil {
		m.seen = map[string]int64{}
	}
	for _, f := range fences {
		if !f.Shared {
			m.seen[f.Key()] = f.Number
		}
	}
	return nil
}

func format(f fence.Fence) string {
	s := "name=" + url.QueryEscape(f.Name) + ";fence=" + strconv.FormatInt(f.Number, 10) + ";kind=" + string(f.Kind)
	if f.Shared {
		s += ";shared"
	}
	return s
}

func parse(lines []string) ([]fence.Fence, error) {
	var fences []fence.Fence
	for _, line := range lines {
		for element := range strings.SplitSeq(line, ",") {
			f, err := parseOne(element)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", element, err)
			}
			fences = append(fences, f)
		}
	}
	return fences, nil
}

func parseOne(element string) (f fence.Fence, err error) {
	had := map[string]bool{}
	for part := range strings.SplitSeq(element, ";") {
		key, value, hasValue := strings.Cut(strings.TrimSpace(part), "=")
		if had[key] {
			return f, errors.New(key + " stands there twice")
		}
		had[key] = true
		switch key {
		case "name":
			f.Name, err = url.QueryUnescape(value)
		case "fence":
			f.Number, err = strconv.ParseInt(value, 10, 64)
		case "kind":
			f.Kind = driver.Kind(value)
		case "shared":
			f.Shared = true
			if hasValue {
				err = errors.New("shared has no value")
			}
		}
		if err != nil {
			return f, err
		}
	}
	known := f.Kind == driver.Mutex || f.Kind == driver.RWMutex || f.Kind == driver.Semaphore
	switch {
	case len(f.Name) < 1 || len(f.Name) > driver.MaxName:
		return f, fmt.Errorf("want a name of 1 to %d bytes", driver.MaxName)
	case f.Number < 1:
		return f, errors.New("want a positive fence")
	case !known:
		return f, errors.New("want a kind: mutex, rwmutex or semaphore")
	case f.Kind == driver.Mutex && f.Shared, f.Kind == driver.Semaphore && !f.Shared:
		return f, errors.New("a mutex is never shared, and a semaphore always")
	}
	return f, nil
}
