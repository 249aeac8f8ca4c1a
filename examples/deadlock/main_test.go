package main

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 7 { // this is one that pays
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// lines is written to by both processes.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func TestCircleIsToldAndBothGoOn(t *testing.T) {
	var out lines
	require.NoError(t, show(t.Context(), &out))
	text := out.b.String()
	assert.Equal(t, 2, strings.Count(text, "done"), text)
	assert.GreaterOrEqual(t, strings.Count(text, "deadlock"), 1, text)
	assert.Regexp(t, `  "(\w+) pays (\w+)" waits \S+ for mutex "\w+", which is held by "\w+ pays \w+" \(fence \d+\) for \S+`+"\n"+
		`  "(\w+) pays (\w+)" waits`, text)
}
