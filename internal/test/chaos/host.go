package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
)

// host lets the servers and processes that are made for tests run in a program. They do not use the
// methods that it lacks.
type host struct {
	testing.TB
	mu       sync.Mutex
	cleanups []func()
}

func (h *host) Helper()           {}
func (h *host) Name() string      { return "holdfast-chaos" }
func (h *host) Failed() bool      { return true } // whatever processes complain of is told
func (h *host) Fatal(args ...any) { panic(failure(fmt.Sprint(args...))) }

func (h *host) Logf(f string, a ...any) { fmt.Fprintf(os.Stderr, f+"\n", a...) }

func (h *host) Cleanup(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cleanups = append(h.cleanups, f)
}

func (h *host) Fatalf(f string, a ...any) { panic(failure(fmt.Sprintf(f, a...))) }
func (h *host) Skipf(f string, a ...any)  { h.Fatalf(f, a...) }

// TempDir returns a directory that is removed in the end.
func (h *host) TempDir() string {
	dir, err := os.MkdirTemp("", "holdfast-chaos-")
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// close does the cleanups, the last one first.
func (h *host) close() {
	for _, f := range slices.Backward(h.cleanups) {
		f()
	}
}

// failure is what a fixture that fails panics with.
type failure string

func (f failure) Error() string { return string(f) }

// attempt returns as an error what a fixture panics with.
func attempt(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			failed, ok := r.(error)
			if !ok || !errors.As(failed, new(failure)) {
				panic(r)
			}
			err = failed
		}
	}()
	return f()
}
