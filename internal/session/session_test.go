package session_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
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

// bounded is a driver whose methods take no longer than that for an answer.
type bounded struct {
	*memdriver.Driver
	timeout time.Duration
}

func (b bounded) Timeout() time.Duration { return b.timeout }

// wrapped has another driver, and may take longer than that.
type wrapped struct{ driver.Driver }

func (w wrapped) Unwrap() driver.Driver { return w.Driver }

func TestCallerWaitsInPlaceIfItNeedNotReturnBefore(t *testing.T) {
	for _, scene := range []struct {
		d             driver.Driver
		ttl, deadline time.Duration // 0: none
		background    bool          // if the context cannot end
		cancelable    bool          // if it can be canceled
	}{
		{bounded{memdriver.New(), 5 * time.Second}, 10 * time.Second, 0, true, true},
		{bounded{memdriver.New(), 5 * time.Second}, 10 * time.Second, 7*time.Second + 1, true, true},
		{bounded{memdriver.New(), 5 * time.Second}, 10 * time.Second, 7 * time.Second, true, false},
		{bounded{memdriver.New(), 5 * time.Second}, 9 * time.Second, 0, true, false},
		{bounded{memdriver.New(), 6 * time.Second}, time.Hour, 0, true, false},
		{bounded{memdriver.New(), 0}, time.Hour, 0, true, false},
		{wrapped{bounded{memdriver.New(), 5 * time.Second}}, 10 * time.Second, 0, true, false},
		{memdriver.New(), time.Hour, 0, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := session.New(scene.d)
			ctx, cancel := context.WithCancel(t.Context())
			if scene.deadline > 0 {
				ctx, cancel = context.WithTimeout(ctx, scene.deadline)
			}
			defer cancel()
			require.False(t, s.InPlace(context.Background(), scene.ttl), "it has never answered")
			s.Answered()
			require.Equal(t, scene.background, s.InPlace(context.Background(), scene.ttl))
			require.Equal(t, scene.cancelable, s.InPlace(ctx, scene.ttl))
			s.Kept()
			for range 100 {
				time.Sleep(100 * time.Millisecond)
				require.False(t, s.InPlace(context.Background(), scene.ttl), "somebody was kept")
				s.Answered() // by another node of a Cluster
			}
			require.Equal(t, scene.background, s.InPlace(context.Background(), scene.ttl))
			cancel()
			require.False(t, s.InPlace(ctx, scene.ttl), "it has ended")
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
