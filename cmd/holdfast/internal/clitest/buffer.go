package clitest

import (
	"bytes"
	"slices"
	"sync"
)

// Buffer is a bytes.Buffer that can be read while a process writes to it.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements [io.Writer].
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// Bytes returns what has been written so far.
func (b *Buffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.b.Bytes())
}

// String returns what has been written so far.
func (b *Buffer) String() string { return string(b.Bytes()) }
