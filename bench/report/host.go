package main

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

// host lets the servers that are made for tests run in a program. They do not use the
// methods that it lacks.
type host struct {
	testing.TB
	cleanups []func()
}

func (h *host) Helper()           {}
func (h *host) Name() string      { return "holdfast-bench" }
func (h *host) Cleanup(f func())  { h.cleanups = append(h.cleanups, f) }
func (h *host) Fatal(args ...any) { panic(failure(fmt.Sprint(args...))) }

func (h *host) Fatalf(f string, a ...any) { panic(failure(fmt.Sprintf(f, a...))) }
func (h *host) Skipf(f string, a ...any)  { h.Fatalf(f, a...) }

// failure is what the program ends with.
type failure string

func (f failure) Error() string { return string(f) }

// close does the cleanups, the last one first.
func (h *host) close() {
	for _, f := range slices.Backward(h.cleanups) {
		f()
	}
}

// TempDir returns a directory that is removed in the end.
func (h *host) TempDir() string {
	dir, err := os.MkdirTemp("", "holdfast-bench-")
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
