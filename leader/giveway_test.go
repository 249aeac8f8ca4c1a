package leader_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/leader"
)

// A term that is lost while its leader finishes is over all the same: the process does not stand again.
func TestLeaderThatGaveWayDoesNotStandAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		a, b := holdfast.Open(store), holdfast.Open(store)
		ended := make(chan error)
		go func() {
			ended <- leader.New(a, "x").GiveWay(0).Run(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Minute)
				return context.Cause(ctx)
			})
		}()
		time.Sleep(time.Second)
		term := make(chan *leader.Term)
		go func() {
			next, err := leader.New(b, "x").Campaign(t.Context())
			assert.NoError(t, err)
			term <- next
		}()
		time.Sleep(time.Second)
		require.NoError(t, b.Mutex("x").ForceUnlock(t.Context()))
		next := <-term
		require.ErrorIs(t, <-ended, leader.ErrWanted)
		require.NoError(t, next.Resign(t.Context()))
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	})
}

func TestLeaderGivesWayWhenAnotherWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		a, b := holdfast.Open(store), holdfast.Open(store)
		began := time.Now()
		ended := make(chan error)
		go func() {
			ended <- leader.New(a, "x").GiveWay(time.Minute).Run(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		time.Sleep(time.Second)
		lead := func(context.Context) error { return nil }
		require.NoError(t, leader.New(b, "x").Run(t.Context(), lead))
		require.Equal(t, time.Minute, time.Since(began))
		require.ErrorIs(t, <-ended, leader.ErrWanted)

		// Nobody waits: it leads on.
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			ended <- leader.New(a, "x").GiveWay(0).Run(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		time.Sleep(time.Hour)
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	})
}
