package session_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/session"
)

// The first Close returns when the last operation has ended, whoever else closes just then.
func TestCloseBesideCloseAndTheLastOperationReturns(t *testing.T) {
	for range redistest.Rounds(20_000) {
		s := session.New(memdriver.New())
		require.True(t, s.Begin())
		start, closed := make(chan struct{}), make(chan struct{})
		go func() { s.Close(func() {}); close(closed) }()
		for s.Open() { // until it has begun
		}
		var wg sync.WaitGroup
		wg.Go(func() { <-start; s.Done() })
		wg.Go(func() { <-start; require.False(t, s.Close(func() {})) })
		close(start)
		wg.Wait()
		select {
		case <-closed:
		case <-time.After(10 * time.Second):
			t.Fatal("it waits for nobody")
		}
	}
}
