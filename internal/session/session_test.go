package session_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/session"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
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

// A client in contention hears of each grant, milliseconds apart. It need not have been answered
// a number of times before, nor in quick succession.
func TestStoreIsBriskForAMomentAfterASignOfLife(t *testing.T) {
	for name, sign := range map[string]func(*session.Session){
		"an answer": (*session.Session).Answered,
		"news":      (*session.Session).Heard,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := session.New(memdriver.New())
				require.False(t, s.Brisk(), "it has never answered")
				time.Sleep(time.Second)
				sign(s)
				time.Sleep(49 * time.Millisecond)
				require.True(t, s.Brisk())
				time.Sleep(time.Millisecond)
				require.False(t, s.Brisk())
				require.Equal(t, name == "an answer", s.Accepted(), "news comes without a command")
			})
		})
	}
}

// bell counts how often it is rung.
type bell struct{ rung atomic.Int32 }

func (b *bell) Ring(*session.Alarm) { b.rung.Add(1) }

// An alarm that is used again rings the new bell only.
func TestAlarmRingsTheBellThatItWasLastGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := session.New(memdriver.New())
		var first, second bell
		for range 3 {
			a := s.Alarm(time.Second, &first)
			time.Sleep(time.Second - 1)
			require.True(t, a.Stop())
		}
		a := s.Alarm(time.Second, &second)
		time.Sleep(time.Minute)
		require.False(t, a.Stop())
		require.Zero(t, first.rung.Load())
		require.EqualValues(t, 1, second.rung.Load())
	})
}
